package archive

import (
	"context"
	"errors"
	"fmt"
	"sort"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/rowmill/rowmill/blob/layout"
	"github.com/rowmill/rowmill/results"
	"github.com/rowmill/rowmill/store"
)

// maxPreviewParts is how many parts a preview reads: rows that run at the same
// time lie in parts of many sizes. A page that needs more is shorter.
const maxPreviewParts = 64

// Preview is what is committed of some rows.
type Preview struct {
	Record store.Record          // as it was when they were read
	Rows   []*results.PreviewRow // nil for a row that is not done
	End    int64                 // the row behind them
}

// Preview reads the rows of a job from offset on, at most limit of them.
func (a *Archive) Preview(ctx context.Context, record store.Record, offset, limit int64) (p Preview, err error) {
	err = a.reading(ctx, record, func(record store.Record) (err error) {
		p.Record = record
		p.Rows, err = a.preview(ctx, record, offset, limit)
		p.End = offset + int64(len(p.Rows))
		return err
	})
	return p, err
}

func (a *Archive) preview(ctx context.Context, record store.Record, offset, limit int64) ([]*results.PreviewRow, error) {
	total := record.Job.NumRows
	if total == nil || *total <= offset {
		return nil, nil
	}
	rows := previewRows{offset, make([]*results.PreviewRow, min(limit, *total-offset))}
	full, finished := record.Artifacts[layout.Full]
	if !finished {
		return a.previewParts(ctx, record.Job.ID, rows)
	}
	err := a.withObjects(ctx, func(files []results.Source) error {
		found, err := results.PreviewResults(ctx, files[0], files[1], offset, rows.end())
		rows.put(found)
		return err
	}, full.Key, record.Artifacts[layout.Rows].Key)
	return rows.all, err
}

// previewRows are the rows of a page, from a first one on.
type previewRows struct {
	first int64
	all   []*results.PreviewRow
}

func (r previewRows) end() int64 { return r.first + int64(len(r.all)) }

func (r previewRows) put(found []results.PreviewRow) {
	for i := range found {
		r.all[found[i].Row-r.first] = &found[i]
	}
}

// previewParts reads rows from a job's parts. Which part holds a row its record
// says; where a shard begins, its first part.
func (a *Archive) previewParts(ctx context.Context, jobID string, rows previewRows) ([]*results.PreviewRow, error) {
	parts, err := a.parts(ctx, jobID)
	if err != nil {
		return nil, err
	}
	holders := make([]string, len(rows.all)) // keys of parts
	shards := byShard(parts)
	firsts := map[int]int64{}
	first := func(i int) int64 { // of a shard; the error is kept
		row, known := firsts[i]
		if !known && err == nil {
			row, err = a.firstOfShard(ctx, shards[i][0])
			firsts[i] = row
		}
		return row
	}
	begin := sort.Search(len(shards), func(i int) bool { return first(i) > rows.first })
	for i := max(0, begin-1); i < len(shards) && err == nil && first(i) < rows.end(); i++ {
		for _, part := range shards[i] {
			if err == nil {
				err = noteHolder(holders, part, first(i)-rows.first)
			}
		}
	}
	if err != nil {
		return nil, err
	}
	rows.all = rows.all[:withinParts(holders)]
	wanted := map[string][]int64{}
	for i, key := range holders[:len(rows.all)] {
		if key != "" {
			wanted[key] = append(wanted[key], rows.first+int64(i))
		}
	}
	for key, numbers := range wanted {
		err := a.withObjects(ctx, func(files []results.Source) error {
			found, err := results.PreviewPart(ctx, files[0], numbers)
			rows.put(found)
			return err
		}, key)
		if err != nil {
			return nil, err
		}
	}
	return rows.all, nil
}

// firstOfShard is the first row of the shard of a part that was committed
// before all others of it: then all its rows are accepted.
func (a *Archive) firstOfShard(ctx context.Context, part store.Part) (row int64, err error) {
	accepted, err := acceptedRows(part)
	if err != nil {
		return 0, err
	}
	err = a.withObjects(ctx, func(files []results.Source) error {
		row, err = results.FirstRow(files[0])
		return err
	}, part.Key)
	return row - int64(accepted.Minimum()), err
}

// acceptedRows are the rows that a part is accepted for, within its shard.
func acceptedRows(part store.Part) (*roaring.Bitmap, error) {
	rows := roaring.New()
	if part.Complete || len(part.Accepted) == 0 {
		rows.AddRange(0, uint64(max(1, part.Rows)))
		return rows, nil
	}
	err := rows.UnmarshalBinary(part.Accepted)
	if err == nil && rows.IsEmpty() {
		err = errors.New("there are none")
	}
	if err != nil {
		return nil, fmt.Errorf("read the rows of part %s: %w", part.Key, err)
	}
	return rows, nil
}

// noteHolder enters a part where it holds a row. at is the place of its shard's
// first row among the holders, which may lie before them.
func noteHolder(holders []string, part store.Part, at int64) error {
	accepted, err := acceptedRows(part)
	if err != nil {
		return err
	}
	for i := range holders {
		if within := int64(i) - at; within >= 0 && accepted.Contains(uint32(within)) {
			holders[i] = part.Key
		}
	}
	return nil
}

// withinParts is how many rows can be shown from maxPreviewParts parts.
func withinParts(holders []string) int {
	seen := map[string]bool{"": true}
	for i, key := range holders {
		if seen[key] = true; len(seen) > maxPreviewParts+1 {
			return i
		}
	}
	return len(holders)
}

package archive

import (
	"cmp"
	"context"
	"math"
	"slices"

	"github.com/rowmill/rowmill/blob/layout"
	"github.com/rowmill/rowmill/results"
	"github.com/rowmill/rowmill/store"
)

// maxPreviewParts is the largest number of parts that a preview reads. The rows of a
// page can be in many parts. A page that would need more parts gets fewer rows.
const maxPreviewParts = 64

// Preview is a page of a job's rows.
type Preview struct {
	Record store.Record          // the record of the job at the time of the read
	Rows   []*results.PreviewRow // rows of the page in order; nil for a row that is not committed
	End    int64                 // index of the last row of the page, plus one
}

// ReadPreview reads at most limit rows of a job, from the row with index offset on.
func (a *Archive) ReadPreview(ctx context.Context, record store.Record, offset, limit int64) (Preview, error) {
	return retryIfMoved(ctx, a, record, func(record store.Record) (Preview, error) {
		rows, err := a.readPreviewRows(ctx, record, offset, limit)
		return Preview{Record: record, Rows: rows, End: offset + int64(len(rows))}, err
	})
}

// ReadDone reads at most limit committed rows of a job, from the row with index offset on. Rows
// that are not committed are left out. End is the number of rows of the job after the last
// committed row.
func (a *Archive) ReadDone(ctx context.Context, record store.Record, offset, limit int64) (Preview, error) {
	if _, finished := record.Artifacts[layout.Full]; finished {
		return a.ReadPreview(ctx, record, offset, limit)
	}
	return retryIfMoved(ctx, a, record, func(record store.Record) (Preview, error) {
		p := Preview{Record: record, End: offset}
		if total := record.Job.NumRows; total == nil || *total <= offset {
			return p, nil
		}
		p.End = *record.Job.NumRows
		places, err := a.listDone(ctx, record.Job.ID, offset, limit+1)
		if err != nil {
			return p, err
		}
		if int64(len(places)) > limit {
			p.End, places = places[limit].row, places[:limit]
		}
		keys := make([]string, len(places))
		for i, place := range places {
			keys[i] = place.key
		}
		if n := countRowsWithinLimit(keys); n < len(places) {
			p.End, places = places[n].row, places[:n]
		}
		wanted, positions := map[string][]int64{}, map[int64]int{}
		for i, place := range places {
			wanted[place.key] = append(wanted[place.key], place.row)
			positions[place.row] = i
		}
		p.Rows = make([]*results.PreviewRow, len(places))
		err = a.readFromParts(ctx, wanted, func(found []results.PreviewRow) {
			for i := range found {
				p.Rows[positions[found[i].Row]] = &found[i]
			}
		})
		return p, err
	})
}

// A rowPlace says which part has a row.
type rowPlace struct {
	row int64
	key string // object key of the part
}

// listDone lists the places of at most limit committed rows, from the row with index offset on.
func (a *Archive) listDone(ctx context.Context, jobID string, offset, limit int64) (places []rowPlace, err error) {
	parts, err := a.newPartIndex(ctx, jobID)
	if err != nil || len(parts.shards) == 0 {
		return nil, err
	}
	begin, err := parts.findShard(ctx, offset)
	if err != nil {
		return nil, err
	}
	for i := begin; i < len(parts.shards) && int64(len(places)) < limit; i++ {
		first, err := parts.firstRowOfShard(ctx, i)
		if err != nil {
			return nil, err
		}
		before := len(places)
		for _, part := range parts.shards[i] {
			accepted, err := AcceptedRows(part)
			if err != nil {
				return nil, err
			}
			within := accepted.Iterator()
			within.AdvanceIfNeeded(uint32(min(max(0, offset-first), math.MaxUint32)))
			for within.HasNext() {
				places = append(places, rowPlace{first + int64(within.Next()), part.Key})
			}
		}
		slices.SortFunc(places[before:], func(a, b rowPlace) int { return cmp.Compare(a.row, b.row) })
	}
	return places[:min(int64(len(places)), limit)], nil
}

func (a *Archive) readPreviewRows(ctx context.Context, record store.Record, offset, limit int64) ([]*results.PreviewRow, error) {
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
		rows.placeRows(found)
		return err
	}, full.Key, record.Artifacts[layout.Rows].Key)
	return rows.all, err
}

// previewRows holds the rows of a page. first is the index of the first row.
type previewRows struct {
	first int64
	all   []*results.PreviewRow
}

// end returns the index of the page's last row, plus one.
func (r previewRows) end() int64 { return r.first + int64(len(r.all)) }

// placeRows stores rows at their position in the page.
func (r previewRows) placeRows(found []results.PreviewRow) {
	for i := range found {
		r.all[found[i].Row-r.first] = &found[i]
	}
}

// previewParts reads rows from a job's parts. It finds the part of each row in the
// parts' records. It reads the first part of a shard to find the index of the shard's
// first row.
func (a *Archive) previewParts(ctx context.Context, jobID string, rows previewRows) ([]*results.PreviewRow, error) {
	parts, err := a.newPartIndex(ctx, jobID)
	if err != nil || len(parts.shards) == 0 {
		return rows.all, err
	}
	keys := make([]string, len(rows.all)) // object key of the part that has each row
	begin, err := parts.findShard(ctx, rows.first)
	if err != nil {
		return nil, err
	}
	for i := begin; i < len(parts.shards); i++ {
		first, err := parts.firstRowOfShard(ctx, i)
		if err != nil {
			return nil, err
		}
		if first >= rows.end() {
			break
		}
		for _, part := range parts.shards[i] {
			if err := assignPartKey(keys, part, first-rows.first); err != nil {
				return nil, err
			}
		}
	}
	rows.all = rows.all[:countRowsWithinLimit(keys)]
	wanted := map[string][]int64{}
	for i, key := range keys[:len(rows.all)] {
		if key != "" {
			wanted[key] = append(wanted[key], rows.first+int64(i))
		}
	}
	return rows.all, a.readFromParts(ctx, wanted, rows.placeRows)
}

// readFromParts reads rows from parts and passes the rows of each part to place. wanted has the
// numbers of the rows by the key of their part.
func (a *Archive) readFromParts(ctx context.Context, wanted map[string][]int64, place func([]results.PreviewRow)) error {
	for key, numbers := range wanted {
		err := a.withObjects(ctx, func(files []results.Source) error {
			found, err := results.PreviewPart(ctx, files[0], numbers)
			place(found)
			return err
		}, key)
		if err != nil {
			return err
		}
	}
	return nil
}

// assignPartKey stores a part's key for each accepted row of the part. shardOffset is the
// position of the shard's first row in keys; it may be negative.
func assignPartKey(keys []string, part store.Part, shardOffset int64) error {
	accepted, err := AcceptedRows(part)
	if err != nil {
		return err
	}
	within := accepted.Iterator()
	within.AdvanceIfNeeded(uint32(max(0, -shardOffset)))
	for within.HasNext() {
		i := shardOffset + int64(within.Next())
		if i >= int64(len(keys)) {
			break
		}
		keys[i] = part.Key
	}
	return nil
}

// countRowsWithinLimit returns the largest number of rows, from the first row on, that are in at
// most maxPreviewParts parts. keys has the part's key for each row.
func countRowsWithinLimit(keys []string) int {
	seen := map[string]bool{"": true}
	for i, key := range keys {
		if seen[key] = true; len(seen) > maxPreviewParts+1 {
			return i
		}
	}
	return len(keys)
}

package archive

import (
	"context"

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
	parts, err := a.holdings(ctx, jobID)
	if err != nil || len(parts.shards) == 0 {
		return rows.all, err
	}
	holders := make([]string, len(rows.all)) // keys of parts
	begin, err := parts.from(ctx, rows.first)
	if err != nil {
		return nil, err
	}
	for i := begin; i < len(parts.shards); i++ {
		first, err := parts.first(ctx, i)
		if err != nil {
			return nil, err
		}
		if first >= rows.end() {
			break
		}
		for _, part := range parts.shards[i] {
			if err := noteHolder(holders, part, first-rows.first); err != nil {
				return nil, err
			}
		}
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

// noteHolder enters a part where it holds a row. at is the place of its shard's
// first row among the holders, which may lie before them.
func noteHolder(holders []string, part store.Part, at int64) error {
	accepted, err := acceptedRows(part)
	if err != nil {
		return err
	}
	within := accepted.Iterator()
	within.AdvanceIfNeeded(uint32(max(0, -at)))
	for within.HasNext() {
		i := at + int64(within.Next())
		if i >= int64(len(holders)) {
			break
		}
		holders[i] = part.Key
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

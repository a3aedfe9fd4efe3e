package archive

import (
	"context"

	"github.com/rowmill/rowmill/blob/layout"
	"github.com/rowmill/rowmill/results"
	"github.com/rowmill/rowmill/store"
)

// maxPreviewParts is how many parts a preview reads at most. A page of rows can be
// spread over many parts. A page that would need more parts gets fewer rows.
const maxPreviewParts = 64

// Preview holds a page of a job's rows.
type Preview struct {
	Record store.Record          // the record at the time of the read
	Rows   []*results.PreviewRow // nil for a row that is not committed
	End    int64                 // one past the last row of the page
}

// Preview reads at most limit rows of a job, from offset on.
func (a *Archive) Preview(ctx context.Context, record store.Record, offset, limit int64) (p Preview, err error) {
	err = a.retryMoved(ctx, record, func(record store.Record) (err error) {
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

// previewRows are the rows of a page, from row first on.
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

// previewParts reads rows from a job's parts. The parts' records say which part
// holds a row, and a shard's first part says where the shard begins.
func (a *Archive) previewParts(ctx context.Context, jobID string, rows previewRows) ([]*results.PreviewRow, error) {
	parts, err := a.partIndex(ctx, jobID)
	if err != nil || len(parts.shards) == 0 {
		return rows.all, err
	}
	keys := make([]string, len(rows.all)) // key of the part of each row
	begin, err := parts.shardAt(ctx, rows.first)
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
			if err := markPart(keys, part, first-rows.first); err != nil {
				return nil, err
			}
		}
	}
	rows.all = rows.all[:countRows(keys)]
	wanted := map[string][]int64{}
	for i, key := range keys[:len(rows.all)] {
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

// markPart stores a part's key for each row that it holds. at is the position
// of the shard's first row in keys; it may be negative.
func markPart(keys []string, part store.Part, at int64) error {
	accepted, err := AcceptedRows(part)
	if err != nil {
		return err
	}
	within := accepted.Iterator()
	within.AdvanceIfNeeded(uint32(max(0, -at)))
	for within.HasNext() {
		i := at + int64(within.Next())
		if i >= int64(len(keys)) {
			break
		}
		keys[i] = part.Key
	}
	return nil
}

// countRows returns how many rows, from the first on, are in at most maxPreviewParts
// parts. keys has the key of the part of each row.
func countRows(keys []string) int {
	seen := map[string]bool{"": true}
	for i, key := range keys {
		if seen[key] = true; len(seen) > maxPreviewParts+1 {
			return i
		}
	}
	return len(keys)
}

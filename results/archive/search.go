package archive

import (
	"context"
	"errors"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/results"
	"github.com/rowmill/rowmill/store"
)

// FindRows returns at most limit committed rows that filter selects, from the row with index
// offset on. The page may be shorter, even empty, because one search reads a limited number of
// rows: the caller continues at End.
func (a *Archive) FindRows(ctx context.Context, record store.Record, filter results.RowFilter, offset, limit int64) (Preview, error) {
	return retryIfMoved(ctx, a, record, func(record store.Record) (p Preview, err error) {
		p.Record = record
		search := results.RowSearch{Filter: filter, From: offset}
		p.End, err = a.search(ctx, record, &search, func(schema results.Schema) results.RowVisitor {
			return func(row *rowmill.Row, out *rowmill.RowOutput) error {
				view := schema.PreviewRow(row, out)
				if p.Rows = append(p.Rows, &view); int64(len(p.Rows)) == limit {
					return results.ErrEnough
				}
				return nil
			}
		})
		return p, err
	})
}

// CountProperties counts the values of the answers in the committed rows that filter selects. It
// reads the rows of one search from the first row on, and counts at most limit rows. counted is
// the number of counted rows, and end the index of the row after the last row that it read.
func (a *Archive) CountProperties(ctx context.Context, record store.Record, filter results.RowFilter, limit int64) (counter *results.PropertyCounter, counted, end int64, err error) {
	end, err = retryIfMoved(ctx, a, record, func(record store.Record) (int64, error) {
		counter, counted = &results.PropertyCounter{}, 0
		search := results.RowSearch{Filter: filter}
		return a.search(ctx, record, &search, func(results.Schema) results.RowVisitor {
			return func(_ *rowmill.Row, out *rowmill.RowOutput) error {
				counter.Add(out)
				if counted++; counted == limit {
					return results.ErrEnough
				}
				return nil
			}
		})
	})
	return counter, counted, end, err
}

// search runs a search in the committed rows of a job. end is the index of the row where the
// next search must continue: the number of rows if there is nothing left.
func (a *Archive) search(ctx context.Context, record store.Record, s *results.RowSearch, visitor func(results.Schema) results.RowVisitor) (end int64, err error) {
	total := record.Job.NumRows
	if total == nil || s.From >= *total {
		return s.From, nil
	}
	committed, err := a.OpenCommitted(ctx, record)
	if err != nil {
		return 0, missingAsMoved(err)
	}
	defer committed.Close()
	s.Visit = visitor(committed.Schema)
	if committed.result != nil {
		err = s.SearchResults(ctx, committed.full, committed.rows)
	} else if err = a.skipShards(ctx, record.Job.ID, committed, s.From); err == nil {
		err = committed.Each(ctx, s.AddRow)
	}
	switch {
	case errors.Is(err, results.ErrEnough):
		return s.Next, nil
	case err != nil:
		return 0, missingAsMoved(err)
	}
	return *total, nil
}

// skipShards removes the shards before the shard with a row from committed rows.
func (a *Archive) skipShards(ctx context.Context, jobID string, committed *CommittedRows, row int64) error {
	if row == 0 {
		return nil
	}
	parts, err := a.newPartIndex(ctx, jobID)
	if err != nil || len(parts.shards) == 0 {
		return err
	}
	begin, err := parts.findShard(ctx, row)
	if err != nil {
		return err
	}
	for len(committed.shards) > 0 && committed.shards[0][0].Shard < parts.shards[begin][0].Shard {
		committed.shards = committed.shards[1:]
	}
	return nil
}

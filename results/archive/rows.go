package archive

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/blob/layout"
	"github.com/rowmill/rowmill/results"
	"github.com/rowmill/rowmill/store"
)

// ReadRow reads row n of a job. The error is ErrNoRow if the job has no row n, and
// ErrNotDone if the row has no outcome yet.
func (a *Archive) ReadRow(ctx context.Context, record store.Record, n int64) (results.RowView, error) {
	return retryIfMoved(ctx, a, record, func(record store.Record) (results.RowView, error) { return a.readRow(ctx, record, n) })
}

func (a *Archive) readRow(ctx context.Context, record store.Record, n int64) (view results.RowView, err error) {
	if total := record.Job.NumRows; total != nil && n >= *total {
		return view, ErrNoRow
	}
	if record.Job.Status == rowmill.StatusSucceeded {
		err = a.withObjects(ctx, func(files []results.Source) error {
			view, err = results.ReadRow(files[0], files[1], n)
			return err
		}, record.Artifacts[layout.Full].Key, record.Artifacts[layout.Rows].Key)
		if errors.Is(err, rowmill.ErrNotFound) {
			err = ErrNoRow
		}
		return view, err
	}
	parts, err := a.newPartIndex(ctx, record.Job.ID)
	if err != nil {
		return view, err
	}
	part, err := parts.findPart(ctx, n)
	if err == nil && part == nil {
		err = ErrNotDone
	}
	if err != nil {
		return view, err
	}
	err = a.withObjects(ctx, func(files []results.Source) error {
		view, err = results.FindRow(files[0], n)
		return err
	}, part.Key)
	return view, err
}

// FailurePosition is a position in the list of a job's failed rows.
type FailurePosition struct {
	Shard int   // number of the shard to read next; earlier shards have no more failures
	After int64 // index of the last row that was read, or -1
}

// FirstFailurePosition returns the position before the first row.
func FirstFailurePosition() FailurePosition { return FailurePosition{After: -1} }

// ListFailedAndMissing is like ListFailures, but for a job that ended without success. It
// also lists the rows that did not run. The record must have the number of rows.
func (a *Archive) ListFailedAndMissing(ctx context.Context, record store.Record, from FailurePosition, limit int) (found []results.FailedRow, nextPosition *FailurePosition, err error) {
	partial, err := a.OpenPartial(ctx, record)
	if err != nil {
		return nil, nil, err
	}
	defer partial.Close()
	found, next, err := results.ListFailures(ctx, partial, from.After, limit)
	if err != nil || next < 0 {
		return found, nil, MissingAsRemoved(err)
	}
	return found, &FailurePosition{After: next}, nil
}

// ListFailures lists at most limit failed rows after the place from, in order. To continue
// the list, pass nextPosition as from. nextPosition is nil if there are no more failures.
func (a *Archive) ListFailures(ctx context.Context, record store.Record, from FailurePosition, limit int) (found []results.FailedRow, nextPosition *FailurePosition, err error) {
	p, err := retryIfMoved(ctx, a, record, func(record store.Record) (*failurePage, error) {
		p := &failurePage{Archive: a, FailurePosition: from, limit: limit}
		if record.Job.Status == rowmill.StatusSucceeded {
			return p, p.addFromResults(ctx, record)
		}
		return p, p.addFromParts(ctx, record.Job.ID)
	})
	if err != nil {
		return nil, nil, err
	}
	if !p.isFull() {
		return p.found, nil, nil
	}
	return p.found[:limit], &FailurePosition{p.Shard, p.found[limit-1].Row}, nil
}

// failurePage collects limit failures, and one more failure to find out whether the list
// continues.
type failurePage struct {
	*Archive
	FailurePosition
	limit int
	found []results.FailedRow
}

// isFull reports whether the page has limit failures and one more.
func (p *failurePage) isFull() bool { return len(p.found) > p.limit }

// addFailures adds failures to the page, sorts them by row and removes duplicates. It keeps at
// most limit failures and one more.
func (p *failurePage) addFailures(failures ...results.FailedRow) {
	p.found = append(p.found, failures...)
	slices.SortFunc(p.found, func(a, b results.FailedRow) int { return cmp.Compare(a.Row, b.Row) })
	p.found = slices.CompactFunc(p.found, func(a, b results.FailedRow) bool { return a.Row == b.Row })
	p.found = p.found[:min(len(p.found), p.limit+1)]
}

// addFromResults adds failures from the "rows" file of a job that succeeded.
func (p *failurePage) addFromResults(ctx context.Context, record store.Record) error {
	return p.withObjects(ctx, func(files []results.Source) error {
		failures, _, err := results.ListFailures(ctx, files[0], p.After, p.limit+1)
		p.addFailures(failures...)
		return err
	}, record.Artifacts[layout.Rows].Key)
}

// addFromParts adds failures from a job's parts, shard by shard, in the order of the
// rows.
func (p *failurePage) addFromParts(ctx context.Context, jobID string) error {
	parts, err := p.newPartIndex(ctx, jobID)
	if err != nil {
		return err
	}
	for i, shard := range parts.shards {
		if p.isFull() {
			break
		}
		if shard[0].Shard < p.Shard {
			continue
		}
		p.Shard = shard[0].Shard
		for _, part := range shard {
			if part.Totals.Failed == 0 {
				continue
			}
			first, err := parts.firstRowOfShard(ctx, i)
			if err != nil {
				return err
			}
			if err := p.addFromPart(ctx, part, first); err != nil {
				return err
			}
		}
	}
	return nil
}

// addFromPart adds failures from one part. It skips a failure if an earlier part has
// the accepted result of the row. first is the index of the first row of the shard.
func (p *failurePage) addFromPart(ctx context.Context, part store.Part, first int64) error {
	accepted, err := AcceptedRows(part)
	if err != nil {
		return err
	}
	for after := p.After; ; {
		var failures []results.FailedRow
		next := int64(-1)
		err := p.withObjects(ctx, func(files []results.Source) (err error) {
			failures, next, err = results.ListFailures(ctx, files[0], after, p.limit+1)
			return err
		}, part.Key)
		if err != nil {
			return err
		}
		for _, failure := range failures {
			if accepted.Contains(uint32(failure.Row - first)) {
				p.addFailures(failure)
			}
		}
		if after = next; after < 0 || p.isFull() && p.found[p.limit].Row <= after {
			return nil
		}
	}
}

package actors_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/actors/assign"
	"github.com/rowmill/rowmill/engine"
	"github.com/rowmill/rowmill/internal/wait"
	"github.com/rowmill/rowmill/store"
)

// "Where is row 17?" has one answer, from the owner of its job.
func TestWhereARowIs(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T) {
		hold := make(chan struct{})
		e := &scripted{answer: func(ctx context.Context, row string, try int) (engine.Reply, error) {
			if row == "row 17" {
				select {
				case <-hold:
				case <-ctx.Done():
				}
			}
			return echo(ctx, row, try)
		}}
		b := setup(t, e)
		id := b.submit(rowmill.Spec{Inline: numbered(20)})
		b.await(id, func(r store.Record) bool { return r.Job.RowsDone == 19 })
		wait.Until(t, func() error { // the owner learns of a commit after the store
			if p, err := b.system.LocateRow(t.Context(), id, 3); err != nil || p.State != assign.Committed {
				return fmt.Errorf("row 3 is %+v, %w", p, err)
			}
			return nil
		})
		for row, want := range map[int64]assign.RowState{3: assign.Committed, 17: assign.Assigned, 20: assign.Elsewhere} {
			wait.Until(t, func() error { // the record is visible before the owner learns of the commit
				p, err := b.system.LocateRow(t.Context(), id, row)
				if err == nil && (p.State != want || (p.Worker != "") != (want == assign.Assigned)) {
					err = fmt.Errorf("row %d is %+v, want it %s", row, p, want)
				}
				return err
			})
		}
		if _, err := b.system.LocateRow(t.Context(), "job-unknown", 1); !errors.Is(err, rowmill.ErrNotFound) {
			t.Errorf("a row of a job that is not owned here: %v", err)
		}
		close(hold)
		b.checkEcho(b.end(id), numbered(20))
	})
}

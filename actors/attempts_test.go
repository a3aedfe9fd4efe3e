package actors_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/actors"
	"github.com/rowmill/rowmill/engine"
	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/results"
	"github.com/rowmill/rowmill/results/archive"
	"github.com/rowmill/rowmill/store"
)

// log returns the attempts at a row, from the results of its job.
func (b *rig) log(rec store.Record, n int64) []results.AttemptView {
	b.t.Helper()
	row := must.Get(archive.New(b.store, b.cfg.Blob, slog.New(slog.DiscardHandler)).ReadRow(b.t.Context(), rec, n))(b.t)
	return row.AttemptLog
}

func tenth(row string) bool { return strings.HasSuffix(row, "0") }

// busyAtFirst fails every tenth row at its first attempt.
func busyAtFirst(then func(context.Context, string, int) (engine.Reply, error)) func(context.Context, string, int) (engine.Reply, error) {
	return func(ctx context.Context, row string, try int) (engine.Reply, error) {
		if tenth(row) && try == 1 {
			return engine.Reply{}, &engine.Error{Class: engine.Transient, Status: 503, Code: "busy", Message: "too much to do"}
		}
		return then(ctx, row, try)
	}
}

func attempt(node, engine string, status int, code, message string) results.AttemptView {
	a := results.AttemptView{Node: node, Engine: engine}
	if status != 0 {
		a.Status = &status
	}
	if code != "" {
		a.Code, a.Message = &code, &message
	}
	return a
}

// The outcome of each attempt at a row is visible while the job runs, in its
// result, and in the result of a job that takes the row over.
func TestAttemptsAreKeptWithTheirRows(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T) {
		hold := make(chan struct{})
		e := &scripted{answer: busyAtFirst(func(ctx context.Context, row string, try int) (engine.Reply, error) {
			switch row {
			case "row 7":
				return engine.Reply{}, &engine.Error{Class: engine.RowFault, Status: 400, Code: "no_sevens", Message: "seven"}
			case "row 249":
				select {
				case <-hold:
				case <-ctx.Done():
					return engine.Reply{}, ctx.Err()
				}
			}
			return echo(ctx, row, try)
		})}
		b := setup(t, e, func(c *actors.Config) { c.Node, c.Inputs.Retention = "here", week })
		id := b.submit(rowmill.Spec{Inline: numbered(250)})
		began := time.Now()
		busy := []results.AttemptView{attempt("here", "scripted", 503, "busy", "too much to do"), attempt("here", "scripted", 0, "", "")}
		check := func(rec store.Record) {
			t.Helper()
			for n, want := range map[int64][]results.AttemptView{
				0: busy, 1: {}, 7: {attempt("here", "scripted", 400, "no_sevens", "seven")}, 10: busy, 110: busy, 240: busy, 248: {},
			} {
				got := b.log(rec, n)
				if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(results.AttemptView{}, "At", "Seconds")); diff != "" {
					t.Errorf("row %d (-want +got):\n%s", n, diff)
				}
				for _, a := range got {
					if a.At.Before(began.Add(-time.Second)) || a.At.After(time.Now()) || a.Seconds < 0 {
						t.Errorf("row %d was sent at %v for %v s", n, a.At, a.Seconds)
					}
				}
			}
		}
		check(b.await(id, func(r store.Record) bool { return r.Job.RowsDone == 249 }))
		close(hold)
		old := b.await(id, func(r store.Record) bool { return r.InputUntil != nil })
		check(old)
		made := b.end(b.resume(old, true)) // row 7 runs again, and fails as before
		check(made)
		if made.Job.RowsTakenOver != 249 {
			t.Errorf("%d rows were taken over", made.Job.RowsTakenOver)
		}
	})
}

// The attempts of a lost node are lost with it: the row has the attempts of the
// node that finished it.
func TestAttemptsOfALostNodeAreNotKnown(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T) {
		b, net := setup(t, nil), newNetwork()
		hang := func(ctx context.Context, _ string, _ int) (engine.Reply, error) {
			<-ctx.Done()
			return engine.Reply{}, ctx.Err()
		}
		owner := b.join(net, "owner", &scripted{answer: busyAtFirst(slowly(2 * time.Millisecond))})
		lost := b.join(net, "lost", &scripted{answer: busyAtFirst(hang)}, func(c *actors.Config) { c.Ownership.OwnsNone = true })
		texts := numbered(2000)
		id := b.submitTo(owner, rowmill.Spec{Spooled: b.spool(texts)})
		begun := func() (rows []string) {
			lost.engine.mu.Lock()
			defer lost.engine.mu.Unlock()
			for row := range lost.engine.tries {
				if tenth(row) {
					rows = append(rows, row)
				}
			}
			return rows
		}
		b.await(id, func(store.Record) bool { return len(begun()) > 0 })
		lost.cut.Store(true)
		lost.gone.Store(true)
		net.tell()
		rec := b.end(id)
		b.checkEcho(rec, texts)
		want := []results.AttemptView{attempt("owner", "gpu", 503, "busy", "too much to do"), attempt("owner", "gpu", 0, "", "")}
		for _, row := range begun() {
			var n int64
			must.Get(fmt.Sscanf(row, "row %d", &n))(t)
			if diff := cmp.Diff(want, b.log(rec, n), cmpopts.IgnoreFields(results.AttemptView{}, "At", "Seconds")); diff != "" {
				t.Errorf("%s (-want +got):\n%s", row, diff)
			}
		}
	})
}

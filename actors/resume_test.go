package actors_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/actors"
	"github.com/rowmill/rowmill/engine"
	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/store"
)

const week = 7 * 24 * time.Hour

// resume creates a job that continues another.
func (b *rig) resume(rec store.Record, failed bool) string {
	spec := rec.Spec
	spec.URL, spec.Inline, spec.Spooled, spec.Source = "", nil, "", ""
	spec.Continue = &rowmill.Continuation{Job: rec.Job.ID, Failed: failed, AllowDuplicate: true}
	return b.submit(spec)
}

// spent returns the totals of all jobs in the ledger.
func (b *rig) spent() store.RowTotals {
	b.t.Helper()
	used, err := b.store.Usage(b.t.Context(), "default", time.Now(), time.Now())
	if err != nil || len(used) != 1 {
		b.t.Fatalf("usage %+v, %v", used, err)
	}
	return used[0].Totals
}

// Rows that a cancelled job has committed are neither run nor paid for again.
func TestResume_OfACancelledJobRunsTheRest(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T) {
		var pace atomic.Int64
		pace.Store(int64(2 * time.Millisecond))
		e := &scripted{answer: func(ctx context.Context, row string, try int) (engine.Reply, error) {
			reply, err := slowly(time.Duration(pace.Load()))(ctx, row, try)
			reply.InputTokens, reply.OutputTokens = 3, 2
			return reply, err
		}}
		b := setup(t, e, func(c *actors.Config) { c.Inputs.Retention = week })
		texts := numbered(1500)
		id := b.submit(rowmill.Spec{Spooled: b.spool(texts)})
		b.await(id, func(r store.Record) bool { return r.Job.RowsDone > 150 })
		must.Get(b.store.Cancel(t.Context(), id, time.Now(), nil))(t)
		b.system.NotifyCancelled(id)
		old := b.await(id, func(r store.Record) bool { return r.InputUntil != nil })
		pace.Store(0)
		made := b.end(b.resume(old, false))
		b.checkEcho(made, texts)
		done := old.Job.RowsDone
		if made.Job.RowsTakenOver != done || made.Job.RowsDone != 1500 || *made.Job.InputTokens != 3*(1500-done) {
			t.Errorf("of %d committed rows %d were taken over; %d are done, with %d input tokens", done, made.Job.RowsTakenOver, made.Job.RowsDone, *made.Job.InputTokens)
		}
		if spent := b.spent(); spent.Rows != 1500 || spent.InputTokens != 4500 || spent.OutputTokens != 3000 {
			t.Errorf("the ledger has %+v of 1500 rows", spent)
		}
		if old, _ = b.store.Get(t.Context(), id); old.Job.ContinuedBy == nil || *old.Job.ContinuedBy != made.Job.ID || old.Job.Status != rowmill.StatusCancelled {
			t.Errorf("the old job is %s, continued by %v", old.Job.Status, old.Job.ContinuedBy)
		}
		b.cleaned(made.Job.ID, "input/", "parts/")
		// The new job is complete without the data of the old one.
		must.Succeed(t, b.cfg.Blob.DeletePrefix(t.Context(), "jobs/"+id+"/"))
		b.checkEcho(made, texts)
	})
}

// The failed rows of a succeeded job run again; the other rows stay. The rows were
// inline, and the record has them no longer.
func TestResume_OfASuccessRunsTheFailedRows(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T) {
		var fixed atomic.Bool
		e := &scripted{answer: func(ctx context.Context, row string, try int) (engine.Reply, error) {
			if strings.HasSuffix(row, "7") && len(row) == 5 && !fixed.Load() {
				return engine.Reply{}, &engine.Error{Class: engine.RowFault, Status: 400, Message: "no"}
			}
			return echo(ctx, row, try)
		}}
		b := setup(t, e, func(c *actors.Config) { c.Inputs.Retention = week })
		texts := numbered(250)
		id := b.submit(rowmill.Spec{Inline: texts})
		old := b.await(id, func(r store.Record) bool { return r.InputUntil != nil })
		if old.Job.Status != rowmill.StatusSucceeded || old.Job.FailedRows != 1 || old.Spec.Inline != nil {
			t.Fatalf("the job is %s, %d rows failed, %d are in its record", old.Job.Status, old.Job.FailedRows, len(old.Spec.Inline))
		}
		if want := "Job succeeded; 1 of 250 rows failed"; !strings.HasPrefix(old.Job.Message, want) {
			t.Errorf("message %q, want %q", old.Job.Message, want)
		}
		fixed.Store(true)
		before := e.calls.Load()
		made := b.end(b.resume(old, true))
		b.checkEcho(made, texts)
		if ran := e.calls.Load() - before; ran != 1 || made.Job.FailedRows != 0 || made.Job.RowsTakenOver != 249 {
			t.Errorf("%d rows ran, %d failed, %d were taken over", ran, made.Job.FailedRows, made.Job.RowsTakenOver)
		}
	})
}

// The limit for failed rows counts the whole job: failed rows that were taken over
// count too.
func TestResume_FailedRowsThatWereTakenOverCount(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T) {
		var before, fixed atomic.Bool // before: the first job runs; fixed: the first two rows succeed
		before.Store(true)
		e := &scripted{answer: func(ctx context.Context, row string, try int) (engine.Reply, error) {
			last := strings.HasSuffix(row, " 298") || strings.HasSuffix(row, " 299")
			if last && before.Load() {
				<-ctx.Done()
				return engine.Reply{}, ctx.Err()
			}
			if first := strings.HasSuffix(row, " 0") || strings.HasSuffix(row, " 1"); last || first && !fixed.Load() {
				return engine.Reply{}, &engine.Error{Class: engine.RowFault, Status: 400, Message: "no"}
			}
			return echo(ctx, row, try)
		}}
		b := setup(t, e, func(c *actors.Config) { c.Inputs.Retention, c.Rows.MaxFailed = week, 3 })
		id := b.submit(rowmill.Spec{Inline: numbered(300)})
		b.await(id, func(r store.Record) bool { return r.Job.FailedRows == 2 && r.Job.RowsDone > 100 })
		must.Get(b.store.Cancel(t.Context(), id, time.Now(), nil))(t)
		b.system.NotifyCancelled(id)
		old := b.await(id, func(r store.Record) bool { return r.InputUntil != nil })
		before.Store(false)
		made := b.end(b.resume(old, false))
		failure(t, made, rowmill.CodeTooManyFailedRows)
		if made.Job.FailedRows != 4 {
			t.Errorf("%d rows failed, two of them in the first job", made.Job.FailedRows)
		}
		// A third job may take over the committed rows of the failed job.
		fixed.Store(true)
		made = b.end(b.resume(b.await(made.Job.ID, func(r store.Record) bool { return r.InputUntil != nil }), true))
		if made.Job.Status != rowmill.StatusSucceeded || made.Job.FailedRows != 2 || made.Job.RowsDone != 300 {
			t.Errorf("the job is %s with %d failed rows (%+v)", made.Job.Status, made.Job.FailedRows, made.Job.FailureReason)
		}
	})
}

// A quota bounds the rows that run, and only these rows.
func TestResume_QuotasAreOfTheRowsThatRun(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T) {
		b := setup(t, &scripted{answer: slowly(2 * time.Millisecond)}, func(c *actors.Config) { c.Inputs.Retention = week })
		texts := numbered(600)
		id := b.submit(rowmill.Spec{Inline: texts})
		b.await(id, func(r store.Record) bool { return r.Job.RowsDone >= 100 })
		must.Get(b.store.Cancel(t.Context(), id, time.Now(), nil))(t)
		old := must.Get(b.store.Get(t.Context(), id))(t)
		left := 600 - old.Job.RowsDone
		old.Spec.RowQuota = left - 1
		failure(t, b.end(b.resume(old, false)), rowmill.CodeRowQuota)
		old.Spec.RowQuota = left
		b.checkEcho(b.end(b.resume(old, false)), texts)
	})
}

// A job that failed before its rows were cut into shards can be resumed from its
// input. If the input is gone, the new job fails with that reason.
func TestResume_OfAJobThatWasNeverCut(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T) {
		b := setup(t, &scripted{answer: echo}, func(c *actors.Config) { c.Inputs.Retention = week })
		texts := numbered(300)
		id := b.submit(rowmill.Spec{Spooled: b.spool(texts), JobQuotas: rowmill.JobQuotas{RowQuota: 10}})
		failure(t, b.end(id), rowmill.CodeRowQuota)
		old := b.await(id, func(r store.Record) bool { return r.InputUntil != nil })
		again := old
		again.Spec.RowQuota = 0
		b.checkEcho(b.end(b.resume(again, false)), texts)
		must.Succeed(t, b.store.MarkInputRemoved(t.Context(), id, time.Now()))
		failure(t, b.end(b.resume(again, false)), rowmill.CodeDownloadFailed)
	})
}

// A node with a wrong clock keeps an input as long as other nodes do.
func TestInputsAreKeptByTheClockOfTheStore(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T) {
		b := setup(t, &scripted{answer: echo}, func(c *actors.Config) {
			c.Inputs.Retention = week
			c.Clock = func() time.Time { return time.Now().Add(2 * week) }
		})
		id := b.submit(rowmill.Spec{Inline: numbered(300), JobQuotas: rowmill.JobQuotas{RowQuota: 10}})
		failure(t, b.end(id), rowmill.CodeRowQuota)
		rec := b.await(id, func(r store.Record) bool { return r.InputUntil != nil || r.InputRemoved != nil })
		if rec.InputRemoved != nil || rec.InputUntil.Before(time.Now().Add(week-time.Minute)) {
			t.Errorf("the input is kept until %v, removed at %v", rec.InputUntil, rec.InputRemoved)
		}
	})
}

// Inline rows leave the record at the job's end.
func TestInlineRowsLeaveTheRecord(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T) {
		b := setup(t, &scripted{answer: echo}, func(c *actors.Config) { c.Inputs.Retention = week })
		texts := numbered(300)
		id := b.submit(rowmill.Spec{Inline: texts})
		rec := b.await(id, func(r store.Record) bool { return r.InputRemoved != nil })
		if rec.Spec.Inline != nil {
			t.Errorf("%d rows are still in the record of a success", len(rec.Spec.Inline))
		}
		b.checkEcho(rec, texts)
		b.cleaned(id, "input/", "parts/")
		// A job that is cancelled before its input was read settles too.
		pending := rowmill.Job{ID: rowmill.NewJobID(), Status: rowmill.StatusPending, RunType: rowmill.RunFull, JobTimes: rowmill.JobTimes{Created: time.Now().UTC()}}
		if _, _, err := b.store.Create(t.Context(), store.Record{Job: pending, Spec: rowmill.Spec{Account: "default", Model: writer, Inline: texts}}, nil); err != nil {
			t.Fatal(err)
		}
		must.Get(b.store.Cancel(t.Context(), pending.ID, time.Now(), nil))(t)
		b.system.NotifyCancelled(pending.ID)
		rec = b.await(pending.ID, func(r store.Record) bool { return r.InputUntil != nil })
		if rec.Spec.Inline != nil {
			t.Errorf("%d rows are still in the record of a cancelled job", len(rec.Spec.Inline))
		}
		b.checkEcho(b.end(b.resume(rec, false)), texts)
	})
}

package ingest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/actors/storage"
	"github.com/rowmill/rowmill/blob/layout"
	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/results"
	"github.com/rowmill/rowmill/results/archive"
	"github.com/rowmill/rowmill/store"
)

// hookedParts calls around with each commit of parts.
type hookedParts struct {
	store.Parts
	around func(commit func() error) error
}

func (h hookedParts) CommitParts(ctx context.Context, f store.Fence, parts []store.Part) error {
	return h.around(func() error { return h.Parts.CommitParts(ctx, f, parts) })
}

type dyingJobs struct {
	store.Jobs
	die func() error
}

func (d dyingJobs) Update(ctx context.Context, f store.Fence, change func(*store.Record) error) (store.Record, error) {
	if err := d.die(); err != nil {
		return store.Record{}, err
	}
	return d.Jobs.Update(ctx, f, change)
}

func (d dyingJobs) MarkContinued(ctx context.Context, id, by string) error {
	if err := d.die(); err != nil {
		return err
	}
	return d.Jobs.MarkContinued(ctx, id, by)
}

// dyingRig returns a rig that ends its owner after a number of writes to store and bucket.
func (r *rig) dyingRig(writes int) *rig {
	die, d := dies(writes), *r
	d.Jobs, d.Bucket = dyingJobs{r.store, die}, &hooked{Bucket: r.Bucket, create: func(string) error { return die() }}
	d.Parts = hookedParts{r.store, func(commit func() error) error {
		if err := die(); err != nil {
			return err
		}
		return commit()
	}}
	return &d
}

// runDying is run by an owner that dies after this many writes to store and bucket.
func (r *rig) runDying(t *testing.T, writes int, rec *store.Record, fence store.Fence) (over bool) {
	t.Helper()
	_, err := r.dyingRig(writes).run(t, rec, fence)
	if err != nil && !errors.Is(err, errDied) {
		t.Fatalf("write %d: %v", writes, err)
	}
	return err == nil
}

// continues creates a job that continues another.
func (r *rig) continues(t *testing.T, id string, failed bool) (*store.Record, store.Fence) {
	t.Helper()
	return r.job(t, rowmill.Spec{Continue: &rowmill.Continuation{Job: id, Failed: failed}})
}

// isContinuedBy verifies that a job names the job that continues it.
func (r *rig) isContinuedBy(t *testing.T, id, by string) {
	t.Helper()
	if next := r.get(t, id).Job.ContinuedBy; next == nil || *next != by {
		t.Fatalf("%s is continued by %v, want %s", id, next, by)
	}
}

// parts returns the parts of a job.
func (r *rig) parts(t *testing.T, id string) []store.Part {
	t.Helper()
	return must.Get(r.store.ListParts(t.Context(), id))(t)
}

// spooled returns a job with 40 rows that is not cut yet.
func (r *rig) spooled(t *testing.T) (*store.Record, store.Fence) {
	t.Helper()
	lines := ""
	for i := range 40 {
		lines += fmt.Sprintf("%q\n", fmt.Sprintf("row %d", i))
	}
	r.put(t, "spooled", lines)
	r.ShardRows, r.Parts = 10, r.store
	return r.job(t, rowmill.Spec{Spooled: "spooled"})
}

// halfDone returns a cancelled job with 40 rows in shards of ten: all rows of shard 0
// are committed, and of shard 1 rows 12 to 14; row 13 failed.
func (r *rig) halfDone(t *testing.T) store.Record {
	t.Helper()
	rec, fence := r.spooled(t)
	r.runs(t, rec, fence)
	id := rec.Job.ID
	part := func(n int, first, rows int64, failed int64) store.Part {
		key := layout.NewPartKey(id, n, 1)
		size := must.Get(archive.WritePart(t.Context(), r.Bucket, key, results.Schema{JobID: id, Model: "m"}, func(file *results.PartWriter) (err error) {
			for i := first; i < first+rows && err == nil; i++ {
				out := rowmill.RowOutput{Text: fmt.Sprint("answer ", i), InputTokens: 5, OutputTokens: 7, Attempts: 1}
				if i == failed {
					out = rowmill.RowOutput{Err: &rowmill.RowError{Code: rowmill.RowRejected}}
				}
				err = file.Add(&rowmill.Row{Index: i, Text: fmt.Sprint("row ", i)}, &out)
			}
			return err
		}))(t)
		p := store.Part{Key: key, Size: size, Shard: n, Rows: rows, Complete: rows == 10, Totals: store.RowTotals{Rows: rows, InputTokens: 5 * rows, OutputTokens: 7 * rows}}
		if failed >= 0 {
			p.Totals.Failed = 1
		}
		if !p.Complete {
			within := roaring.New()
			within.AddRange(uint64(first-int64(n)*10), uint64(first-int64(n)*10+rows))
			p.Accepted, _ = within.ToBytes()
		}
		return p
	}
	parts := []store.Part{part(0, 0, 10, -1), part(1, 12, 3, 13)}
	must.Succeed(t, r.store.CommitParts(t.Context(), fence, parts))
	return r.cancel(t, id)
}

// eachDeath calls test for each number of writes before the owner of a takeover dies, and
// for a takeover with and without the failed rows. taken is the number of rows to take
// over.
func eachDeath(t *testing.T, test func(t *testing.T, failed bool, taken int64, writes int) (over bool)) {
	t.Parallel()
	for failed, taken := range map[bool]int64{false: 13, true: 12} {
		t.Run(fmt.Sprint("failed=", failed), func(t *testing.T) {
			t.Parallel()
			for writes, over := 0, false; !over; writes++ {
				t.Run(fmt.Sprint("writes=", writes), func(t *testing.T) { over = test(t, failed, taken, writes) })
			}
		})
	}
}

// If an owner dies at any point of a takeover, the next owner takes over everything, and
// nothing twice.
func TestTakeOver_DeathAnywhereIsHarmless(t *testing.T) {
	eachDeath(t, func(t *testing.T, failed bool, taken int64, writes int) (over bool) {
		r := setup(t)
		old := r.halfDone(t)
		rec, fence := r.continues(t, old.Job.ID, failed)
		again := *rec
		over = r.runDying(t, writes, &again, fence)
		now := r.get(t, rec.Job.ID)
		if m := r.runs(t, &now, fence); m.Rows != 40 || len(m.Shards) != 4 || m.Taken != taken {
			t.Fatalf("%+v", m)
		}
		if parts := r.parts(t, rec.Job.ID); len(parts) != 2 || !parts[0].Complete || parts[0].Rows != 10 || parts[1].Rows != taken-10 {
			t.Fatalf("parts %+v", parts)
		}
		if now := r.get(t, rec.Job.ID); now.Job.RowsTakenOver != taken || now.Job.RowsDone != taken || *now.Job.InputTokens != 0 {
			t.Fatalf("%+v", now.Job.RowCounts)
		}
		used := must.Get(r.store.Usage(t.Context(), "default", time.Now(), time.Now()))(t)
		if len(used) != 1 || used[0].Totals.Rows != 13 || used[0].Totals.InputTokens != 65 {
			t.Fatalf("the ledger has %+v", used)
		}
		r.isContinuedBy(t, old.Job.ID, rec.Job.ID)
		return over
	})
}

// A job that ended during its own takeover is continued like the job before it.
func TestTakeOver_OfAnIncompleteTakeover(t *testing.T) {
	eachDeath(t, func(t *testing.T, failed bool, taken int64, writes int) (over bool) {
		r := setup(t)
		old := r.halfDone(t)
		between, fence := r.continues(t, old.Job.ID, failed)
		over = r.runDying(t, writes, between, fence)
		r.cancel(t, between.Job.ID)
		rec, fence := r.continues(t, between.Job.ID, false)
		if m := r.runs(t, rec, fence); m.Rows != 40 || len(m.Shards) != 4 || m.Taken != taken {
			t.Fatalf("%+v", m)
		}
		r.isContinuedBy(t, between.Job.ID, rec.Job.ID)
		return over
	})
}

// A job that ended before it was cut names the job that continues it, even if the owner
// dies before it notes this.
func TestTakeOver_OfAJobWithoutShards(t *testing.T) {
	eachDeath(t, func(t *testing.T, failed bool, _ int64, writes int) (over bool) {
		r := setup(t)
		old, _ := r.spooled(t)
		r.cancel(t, old.Job.ID)
		rec, fence := r.continues(t, old.Job.ID, failed)
		if over = r.runDying(t, writes, rec, fence); !over {
			r.runs(t, rec, fence)
		}
		r.isContinuedBy(t, old.Job.ID, rec.Job.ID)
		return over
	})
}

// forgettingJobs acknowledges updates and does not keep them.
type forgettingJobs struct{ store.Jobs }

func (f forgettingJobs) Update(ctx context.Context, fence store.Fence, change func(*store.Record) error) (store.Record, error) {
	rec, err := f.Jobs.Get(ctx, fence.JobID)
	return rec, errors.Join(err, change(&rec))
}

// Rows that were taken over and lost by the store do not run again, although the
// manifest exists.
func TestTakeOver_LostByTheStore(t *testing.T) {
	t.Parallel()
	r := setup(t)
	old := r.halfDone(t)
	rec, fence := r.continues(t, old.Job.ID, false)
	first, fresh := *r, *rec
	first.Jobs, first.Parts = forgettingJobs{r.store}, hookedParts{r.store, func(func() error) error { return nil }}
	if m := first.runs(t, &fresh, fence); m.Taken != 13 {
		t.Fatalf("%+v", m)
	}
	now := r.get(t, rec.Job.ID)
	if now.Job.RowsTakenOver != 0 {
		t.Fatalf("%d rows taken over are not forgotten", now.Job.RowsTakenOver)
	}
	if m := r.runs(t, &now, fence); m.Taken != 13 || len(m.Shards) != 4 {
		t.Errorf("%+v", m)
	}
	if parts := r.parts(t, rec.Job.ID); len(parts) != 2 || now.Job.RowsTakenOver != 13 {
		t.Errorf("parts %+v, %d rows taken over", parts, now.Job.RowsTakenOver)
	}
}

// If the store has lost the carried rows, and the job's own rows are recorded again, all
// other rows are taken over again, whether the shard is merged or not.
func TestTakeOver_LostByTheStoreBesideOwnRows(t *testing.T) {
	t.Parallel()
	within := roaring.BitmapOf(0, 2, 3) // in shard 1; row 12 was also taken over
	accepted, _ := within.ToBytes()
	own := store.Part{Key: "own", Shard: 1, Rows: 3, Accepted: accepted, Totals: store.RowTotals{Rows: 3, InputTokens: 15, OutputTokens: 21}}
	merged := store.Part{Key: "merged", Shard: 1, Rows: 10, Complete: true, Totals: store.RowTotals{Rows: 10, InputTokens: 35, OutputTokens: 49}}
	for name, test := range map[string]struct {
		own   store.Part
		taken int64
		parts int
	}{
		"some of a shard": {own, 11, 3},
		"a whole shard":   {merged, 13, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := setup(t)
			old := r.halfDone(t)
			rec, fence := r.continues(t, old.Job.ID, false)
			must.Succeed(t, r.store.CommitParts(t.Context(), fence, []store.Part{test.own}))
			if m := r.runs(t, rec, fence); m.Taken != test.taken || rec.Job.RowsTakenOver != test.taken {
				t.Errorf("%d rows are taken over, want %d: %+v", rec.Job.RowsTakenOver, test.taken, m)
			}
			parts := r.parts(t, rec.Job.ID)
			if len(parts) != test.parts {
				t.Errorf("parts %+v", parts)
			}
			all := store.RowTotals{}
			for _, p := range parts {
				all = all.Plus(p.Totals)
			}
			if all.Rows != rec.Job.RowsDone || all.InputTokens != *rec.Job.InputTokens {
				t.Errorf("the parts have %+v, the record %+v and %d tokens in", all, rec.Job.RowCounts, *rec.Job.InputTokens)
			}
		})
	}
}

// A job whose record is lost may come back, so the job that continues it does not fail
// for good.
func TestTakeOver_OfALostJob(t *testing.T) {
	t.Parallel()
	r := setup(t)
	rec, fence := r.continues(t, rowmill.NewJobID(), false)
	r.Parts = r.store
	_, err := r.run(t, rec, fence)
	if err == nil || storage.IsPermanent(err) {
		t.Errorf("got %v", err)
	}
}

// A late commit takes over no row twice.
func TestTakeOver_CommittedLate(t *testing.T) {
	t.Parallel()
	for name, first := range map[string]bool{"after what was tried again": false, "before it": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := setup(t)
			old := r.halfDone(t)
			rec, fence := r.continues(t, old.Job.ID, false)
			var late func() error // the first commit, which comes late
			r.Parts = hookedParts{r.store, func(commit func() error) error {
				if late == nil {
					late = commit
					return store.ErrOutcomeUnknown
				}
				return commit()
			}}
			run := func() error {
				now := r.get(t, rec.Job.ID)
				_, err := r.run(t, &now, fence)
				return err
			}
			if err := run(); !errors.Is(err, store.ErrOutcomeUnknown) {
				t.Fatal(err)
			}
			steps := []func() error{run, late}
			if first {
				steps = []func() error{late, run}
			}
			for _, step := range steps {
				must.Succeed(t, step())
			}
			if now := r.get(t, rec.Job.ID); now.Job.RowsDone != 13 || now.Job.RowsTakenOver != 13 {
				t.Errorf("%+v", now.Job.RowCounts)
			}
			if parts := r.parts(t, rec.Job.ID); len(parts) != 2 {
				t.Errorf("parts %+v", parts)
			}
		})
	}
}

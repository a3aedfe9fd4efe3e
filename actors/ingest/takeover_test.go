package ingest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/actors/storage"
	"github.com/rowmill/rowmill/blob"
	"github.com/rowmill/rowmill/blob/layout"
	"github.com/rowmill/rowmill/results"
	"github.com/rowmill/rowmill/store"
)

// errDied is the error of an owner that dies.
var errDied = errors.New("died")

// A fuse counts writes to store and bucket. The owner dies before one of them.
type fuse struct{ left int }

func (f *fuse) burn() error {
	if f.left--; f.left < 0 {
		return errDied
	}
	return nil
}

type dyingBucket struct {
	blob.Bucket
	*fuse
}

func (d dyingBucket) Create(ctx context.Context, key, kind string) (blob.Writer, error) {
	if err := d.burn(); err != nil {
		return nil, err
	}
	return d.Bucket.Create(ctx, key, kind)
}

type dyingParts struct {
	store.Parts
	*fuse
}

func (d dyingParts) CommitParts(ctx context.Context, f store.Fence, parts []store.Part, t store.Totals) error {
	if err := d.burn(); err != nil {
		return err
	}
	return d.Parts.CommitParts(ctx, f, parts, t)
}

type dyingJobs struct {
	store.Jobs
	*fuse
}

func (d dyingJobs) Update(ctx context.Context, f store.Fence, change func(*store.Record) error) (store.Record, error) {
	if err := d.burn(); err != nil {
		return store.Record{}, err
	}
	return d.Jobs.Update(ctx, f, change)
}

func (d dyingJobs) Continued(ctx context.Context, id, by string) error {
	if err := d.burn(); err != nil {
		return err
	}
	return d.Jobs.Continued(ctx, id, by)
}

// dying returns the Config of an owner that dies after this many writes.
func (r *rig) dying(effects int) Config {
	d, c := &fuse{left: effects}, r.Config
	c.Jobs, c.Parts, c.Bucket = dyingJobs{r.store, d}, dyingParts{r.store, d}, dyingBucket{r.Bucket, d}
	return c
}

// spooled returns a job with 40 rows that is not cut yet.
func (r *rig) spooled(t *testing.T) (*store.Record, store.Fence) {
	t.Helper()
	lines := ""
	for i := range 40 {
		lines += fmt.Sprintf("%q\n", fmt.Sprintf("row %d", i))
	}
	w, err := r.Bucket.Create(t.Context(), "spooled", "")
	if err == nil {
		_, err = io.WriteString(w, lines)
	}
	if err == nil {
		_, err = w.Commit()
	}
	if err != nil {
		t.Fatal(err)
	}
	r.ShardRows, r.Parts = 10, r.store
	return r.job(t, rowmill.Spec{Spooled: "spooled"})
}

// halfDone returns a cancelled job with 40 rows in shards of ten: all rows of shard 0
// are committed, and of shard 1 rows 12 to 14; row 13 failed.
func (r *rig) halfDone(t *testing.T) store.Record {
	t.Helper()
	rec, fence := r.spooled(t)
	if _, err := r.run(t, rec, fence); err != nil {
		t.Fatal(err)
	}
	id := rec.Job.ID
	part := func(n int, first, rows int64, failed int64) store.Part {
		key := layout.Part(id, n, 1)
		w, err := r.Bucket.Create(t.Context(), key, layout.Parquet)
		if err != nil {
			t.Fatal(err)
		}
		file, err := results.NewPartWriter(w, results.Schema{JobID: id, Model: "m"})
		for i := first; i < first+rows && err == nil; i++ {
			out := rowmill.Output{Text: fmt.Sprint("answer ", i), InputTokens: 5, OutputTokens: 7, Attempts: 1}
			if i == failed {
				out = rowmill.Output{Err: &rowmill.RowError{Code: rowmill.RowRejected}}
			}
			err = file.Add(&rowmill.Row{Index: i, Text: fmt.Sprint("row ", i)}, &out)
		}
		if err := errors.Join(err, file.Close()); err != nil {
			t.Fatal(err)
		}
		object, err := w.Commit()
		if err != nil {
			t.Fatal(err)
		}
		p := store.Part{Key: key, Size: object.Size, Shard: n, Rows: rows, Complete: rows == 10, Totals: store.Totals{Rows: rows, InputTokens: 5 * rows, OutputTokens: 7 * rows}}
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
	if err := r.store.CommitParts(t.Context(), fence, parts, store.Totals{Rows: 13, Failed: 1, InputTokens: 65, OutputTokens: 91}); err != nil {
		t.Fatal(err)
	}
	old, err := r.store.Cancel(t.Context(), id, time.Now(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return old
}

// If an owner dies at any point of a takeover, the next owner takes over everything, and
// nothing twice.
func TestTakeOver_DeathAnywhereIsHarmless(t *testing.T) {
	t.Parallel()
	for _, failed := range []bool{false, true} {
		want := int64(13) // rows taken over
		if failed {
			want = 12
		}
		for effects, over := 0, false; !over; effects++ {
			r := setup(t)
			old := r.halfDone(t)
			rec, fence := r.job(t, rowmill.Spec{Continue: &rowmill.Continuation{Job: old.Job.ID, Failed: failed}})
			again := *rec
			_, err := Run(t.Context(), r.dying(effects), &again, fence, tokenCounter(t, &rec.Spec, words{}))
			if over = err == nil; err != nil && !errors.Is(err, errDied) {
				t.Fatalf("effect %d: %v", effects, err)
			}
			now, err := r.store.Get(t.Context(), rec.Job.ID)
			if err != nil {
				t.Fatal(err)
			}
			m, err := Run(t.Context(), r.Config, &now, fence, tokenCounter(t, &rec.Spec, words{}))
			if err != nil || m.Rows != 40 || len(m.Shards) != 4 || m.Taken != want {
				t.Fatalf("death before effect %d: %+v, %v", effects, m, err)
			}
			parts, err := r.store.ListParts(t.Context(), rec.Job.ID)
			if err != nil || len(parts) != 2 || !parts[0].Complete || parts[0].Rows != 10 || parts[1].Rows != want-10 {
				t.Fatalf("death before effect %d: parts %+v, %v", effects, parts, err)
			}
			now, err = r.store.Get(t.Context(), rec.Job.ID)
			if err != nil || now.Job.RowsTakenOver != want || now.Job.RowsDone != want || *now.Job.InputTokens != 0 {
				t.Fatalf("death before effect %d: %+v, %v", effects, now.Job.RowCounts, err)
			}
			used, err := r.store.Usage(t.Context(), "default", time.Now(), time.Now())
			if err != nil || len(used) != 1 || used[0].Totals.Rows != 13 || used[0].Totals.InputTokens != 65 {
				t.Fatalf("death before effect %d: the ledger has %+v, %v", effects, used, err)
			}
			old, err = r.store.Get(t.Context(), old.Job.ID)
			if err != nil || old.Job.ContinuedBy == nil || *old.Job.ContinuedBy != rec.Job.ID {
				t.Fatalf("death before effect %d: the old job is continued by %v, %v", effects, old.Job.ContinuedBy, err)
			}
		}
	}
}

// A job that ended during its own takeover is continued like the job before it.
func TestTakeOver_OfAnIncompleteTakeover(t *testing.T) {
	t.Parallel()
	for _, failed := range []bool{false, true} {
		want := int64(13) // rows taken over
		if failed {
			want = 12
		}
		for effects, over := 0, false; !over; effects++ {
			r := setup(t)
			old := r.halfDone(t)
			between, fence := r.job(t, rowmill.Spec{Continue: &rowmill.Continuation{Job: old.Job.ID, Failed: failed}})
			_, err := Run(t.Context(), r.dying(effects), between, fence, tokenCounter(t, &between.Spec, words{}))
			over = err == nil
			if _, err := r.store.Cancel(t.Context(), between.Job.ID, time.Now(), nil); err != nil {
				t.Fatal(err)
			}
			rec, fence := r.job(t, rowmill.Spec{Continue: &rowmill.Continuation{Job: between.Job.ID}})
			m, err := Run(t.Context(), r.Config, rec, fence, tokenCounter(t, &rec.Spec, words{}))
			if err != nil || m.Rows != 40 || len(m.Shards) != 4 || m.Taken != want {
				t.Fatalf("end before effect %d: %+v, %v", effects, m, err)
			}
			now, err := r.store.Get(t.Context(), between.Job.ID)
			if err != nil || now.Job.ContinuedBy == nil || *now.Job.ContinuedBy != rec.Job.ID {
				t.Fatalf("end before effect %d: continued by %v, %v", effects, now.Job.ContinuedBy, err)
			}
		}
	}
}

// A job that ended before it was cut names the job that continues it, even if the owner
// dies before it notes this.
func TestTakeOver_OfAJobWithoutShards(t *testing.T) {
	t.Parallel()
	for effects, over := 0, false; !over; effects++ {
		r := setup(t)
		old, _ := r.spooled(t)
		if _, err := r.store.Cancel(t.Context(), old.Job.ID, time.Now(), nil); err != nil {
			t.Fatal(err)
		}
		rec, fence := r.job(t, rowmill.Spec{Continue: &rowmill.Continuation{Job: old.Job.ID}})
		_, err := Run(t.Context(), r.dying(effects), rec, fence, tokenCounter(t, &rec.Spec, words{}))
		if over = err == nil; !over {
			if _, err := r.run(t, rec, fence); err != nil {
				t.Fatalf("after a death before effect %d: %v", effects, err)
			}
		}
		now, err := r.store.Get(t.Context(), old.Job.ID)
		if err != nil || now.Job.ContinuedBy == nil || *now.Job.ContinuedBy != rec.Job.ID {
			t.Fatalf("death before effect %d: continued by %v, %v", effects, now.Job.ContinuedBy, err)
		}
	}
}

// forgettingParts acknowledges parts and does not keep them.
type forgettingParts struct{ store.Parts }

func (forgettingParts) CommitParts(context.Context, store.Fence, []store.Part, store.Totals) error {
	return nil
}

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
	rec, fence := r.job(t, rowmill.Spec{Continue: &rowmill.Continuation{Job: old.Job.ID}})
	first, fresh := r.Config, *rec
	first.Jobs, first.Parts = forgettingJobs{r.store}, forgettingParts{r.store}
	if m, err := Run(t.Context(), first, &fresh, fence, tokenCounter(t, &rec.Spec, words{})); err != nil || m.Taken != 13 {
		t.Fatalf("%+v, %v", m, err)
	}
	now, err := r.store.Get(t.Context(), rec.Job.ID)
	if err != nil || now.Job.RowsTakenOver != 0 {
		t.Fatalf("%d rows taken over are not forgotten, %v", now.Job.RowsTakenOver, err)
	}
	m, err := Run(t.Context(), r.Config, &now, fence, tokenCounter(t, &rec.Spec, words{}))
	if err != nil || m.Taken != 13 || len(m.Shards) != 4 {
		t.Errorf("%+v, %v", m, err)
	}
	parts, err := r.store.ListParts(t.Context(), rec.Job.ID)
	if err != nil || len(parts) != 2 || now.Job.RowsTakenOver != 13 {
		t.Errorf("parts %+v, %d rows taken over, %v", parts, now.Job.RowsTakenOver, err)
	}
}

// If the store has lost the carried rows, and the job's own rows are recorded again, all
// other rows are taken over again, whether the shard is merged or not.
func TestTakeOver_LostByTheStoreBesideOwnRows(t *testing.T) {
	t.Parallel()
	within := roaring.BitmapOf(0, 2, 3) // in shard 1; row 12 was also taken over
	accepted, _ := within.ToBytes()
	own := store.Part{Key: "own", Shard: 1, Rows: 3, Accepted: accepted, Totals: store.Totals{Rows: 3, InputTokens: 15, OutputTokens: 21}}
	merged := store.Part{Key: "merged", Shard: 1, Rows: 10, Complete: true, Totals: store.Totals{Rows: 10, InputTokens: 35, OutputTokens: 49}}
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
			rec, fence := r.job(t, rowmill.Spec{Continue: &rowmill.Continuation{Job: old.Job.ID}})
			if err := r.store.CommitParts(t.Context(), fence, []store.Part{test.own}, test.own.Totals); err != nil {
				t.Fatal(err)
			}
			m, err := Run(t.Context(), r.Config, rec, fence, tokenCounter(t, &rec.Spec, words{}))
			if err != nil || m.Taken != test.taken || rec.Job.RowsTakenOver != test.taken {
				t.Errorf("%d rows are taken over, want %d: %+v, %v", rec.Job.RowsTakenOver, test.taken, m, err)
			}
			parts, err := r.store.ListParts(t.Context(), rec.Job.ID)
			if err != nil || len(parts) != test.parts {
				t.Errorf("parts %+v, %v", parts, err)
			}
			all := store.Totals{}
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
	rec, fence := r.job(t, rowmill.Spec{Continue: &rowmill.Continuation{Job: rowmill.NewJobID()}})
	r.Parts = r.store
	_, err := Run(t.Context(), r.Config, rec, fence, tokenCounter(t, &rec.Spec, words{}))
	if err == nil || storage.Lasting(err) {
		t.Errorf("got %v", err)
	}
}

// A lateParts delays the first commit and hides its result.
type lateParts struct {
	store.Parts
	late func() error
}

func (l *lateParts) CommitParts(ctx context.Context, f store.Fence, parts []store.Part, t store.Totals) error {
	if l.late == nil {
		l.late = func() error { return l.Parts.CommitParts(ctx, f, parts, t) }
		return store.ErrOutcomeUnknown
	}
	return l.Parts.CommitParts(ctx, f, parts, t)
}

// A late commit takes over no row twice.
func TestTakeOver_CommittedLate(t *testing.T) {
	t.Parallel()
	for name, first := range map[string]bool{"after what was tried again": false, "before it": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := setup(t)
			old := r.halfDone(t)
			rec, fence := r.job(t, rowmill.Spec{Continue: &rowmill.Continuation{Job: old.Job.ID}})
			late := &lateParts{Parts: r.store}
			r.Parts = late
			run := func() error {
				now, err := r.store.Get(t.Context(), rec.Job.ID)
				if err == nil {
					_, err = Run(t.Context(), r.Config, &now, fence, tokenCounter(t, &rec.Spec, words{}))
				}
				return err
			}
			if err := run(); !errors.Is(err, store.ErrOutcomeUnknown) {
				t.Fatal(err)
			}
			steps := []func() error{run, late.late}
			if first {
				steps = []func() error{late.late, run}
			}
			for _, step := range steps {
				if err := step(); err != nil {
					t.Fatal(err)
				}
			}
			now, err := r.store.Get(t.Context(), rec.Job.ID)
			if err != nil || now.Job.RowsDone != 13 || now.Job.RowsTakenOver != 13 {
				t.Errorf("%+v, %v", now.Job.RowCounts, err)
			}
			if parts, err := r.store.ListParts(t.Context(), rec.Job.ID); err != nil || len(parts) != 2 {
				t.Errorf("parts %+v, %v", parts, err)
			}
		})
	}
}

package retention_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/blob/layout"
	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/store"
)

// cancelled creates a job and cancels it at once.
func (r *rig) cancelled() string { return r.cancelledAt(time.Now()) }

func (r *rig) cancelledAt(now time.Time) string {
	r.Helper()
	job := rowmill.Job{ID: rowmill.NewJobID(), Status: rowmill.StatusPending, RunType: rowmill.RunFull, JobTimes: rowmill.JobTimes{Created: now.UTC()}}
	if _, _, err := r.store.Create(r.Context(), store.Record{Job: job, Spec: rowmill.Spec{Account: "default", Inline: []string{"a"}}}, nil); err != nil {
		r.Fatal(err)
	}
	must.Get(r.store.Cancel(r.Context(), job.ID, now, nil))(r.T)
	return job.ID
}

// If an owner dies before it cleans up, the janitor does so after TidyAfter. Jobs with
// failing cleanup delay no other job.
func TestTidy_AfterOwnersThatDied(t *testing.T) {
	t.Parallel()
	r := setup(t)
	first, second, third, fourth := r.cancelled(), r.cancelled(), r.cancelled(), r.cancelled()
	if _, err := r.Round(t.Context()); err != nil || len(r.tidied) > 0 {
		t.Fatalf("%v were tidied before their owners had the time, %v", r.tidied, err)
	}
	r.stuck = map[string]bool{first: true, second: true}
	r.days = 1
	for round := range 3 {
		if more, _ := r.Round(t.Context()); more != (round < 2) {
			t.Errorf("round %d of two jobs each says that more waits: %v", round, more)
		}
	}
	if !slices.Contains(r.tidied, third) || !slices.Contains(r.tidied, fourth) {
		t.Errorf("only %v were tidied behind two that cannot be", r.tidied)
	}
	r.stuck = nil
	r.ran += time.Minute
	r.rounds(3)
	if len(r.tidied) != 4 {
		t.Errorf("%v were tidied, want all four", r.tidied)
	}
}

// Failing cleanups delay no removal of expired data, neither of their own jobs nor of other
// jobs.
func TestTidy_FailuresDelayNoRemoval(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.keep("default")
	r.stuck = map[string]bool{}
	var ids []string
	for range 5 {
		ids = append(ids, r.done("default"))
		r.stuck[ids[len(ids)-1]] = true
	}
	ids = append(ids, r.done("default"))
	for r.ran < 24*time.Hour-10*time.Minute {
		r.rounds(5)
		r.ran += 10 * time.Minute
	}
	if !r.kept(ids...) {
		t.Fatal("data is removed too early")
	}
	r.ran = 24*time.Hour + time.Minute
	r.rounds(5)
	r.gone(ids...)
}

// After all nodes died and came back, the janitor soon cleans up, however long the
// service had run before.
func TestTidy_SoonAfterAllNodesDied(t *testing.T) {
	t.Parallel()
	r := setup(t)
	for range 30 {
		r.ran += time.Minute - time.Second
		must.Get(r.Round(t.Context()))(t)
	}
	r.cancelledAt(r.now())
	r.restart(r.Bucket)
	r.ran += 10*time.Minute + 10*time.Second // the owner would have cleaned up in this time
	r.jump = 10 * time.Minute                // for most of this time no process ran
	for range 3 {
		must.Get(r.Round(t.Context()))(t)
		r.ran += 10 * time.Second
	}
	if len(r.tidied) != 1 {
		t.Errorf("20 s after the start %d jobs are tidied, want 1", len(r.tidied))
	}
}

// If the cleanup of a job fails, the sweep removes none of its objects: the input may be needed to continue
// the job, and the parts to make a lost result again.
func TestTidy_SweepWaitsForTheCleanup(t *testing.T) {
	t.Parallel()
	r := setup(t)
	cancelled, succeeded := r.cancelled(), r.left("default")
	r.putKey(layout.ShardKey(cancelled, 0))
	r.stuck = map[string]bool{cancelled: true, succeeded: true}
	for r.days = 1; r.days < 4; r.days++ {
		r.rounds(5)
	}
	if parts := must.Get(r.store.ListParts(t.Context(), succeeded))(t); len(parts) != 1 || len(r.objects(succeeded)) != 3 || len(r.objects(cancelled)) != 1 {
		t.Errorf("parts %v, objects %v and %v; want all of them", parts, r.objects(succeeded), r.objects(cancelled))
	}
}

// A kept input stays until its time ends, in spite of the sweep.
func TestTidy_AKeptInputStaysUntilItsTime(t *testing.T) {
	t.Parallel()
	r := setup(t)
	id := r.cancelled()
	r.putKey(layout.ShardKey(id, 0))
	must.Succeed(t, r.store.KeepInput(t.Context(), id, time.Now().AddDate(0, 0, 7)))
	for r.days = 1; r.days < 6; r.days++ {
		r.clean()
	}
	if _, err := r.Bucket.Stat(t.Context(), layout.ShardKey(id, 0)); err != nil || len(r.tidied) > 0 {
		t.Errorf("after five days: %v, %v", err, r.tidied)
	}
	for r.days = 6; r.days < 12; r.days++ {
		r.clean()
	}
	if !slices.Equal(r.tidied, []string{id}) {
		t.Errorf("after eleven days %v were tidied", r.tidied)
	}
}

// If a node stops after it has recorded a removal, or removed the objects only in a copy
// of the records that was lost, the janitor finishes the removal, also for an account that
// keeps its data for ever.
func TestTidy_FinishesARemoval(t *testing.T) {
	t.Parallel()
	r := setup(t)
	id, other := r.left("a"), r.done("a")
	must.Get(r.store.RemoveData(t.Context(), id, r.now()))(t)
	must.Get(r.Round(t.Context()))(t)
	if len(r.objects(id)) == 0 {
		t.Fatal("the janitor was faster than the node that removes the data may be")
	}
	r.ran += 11 * time.Minute
	r.clean()
	r.gone(id)
	if rec := r.get(id); !rec.DataGone {
		t.Errorf("the record does not say that the data is gone: %+v", rec)
	}
	if parts, err := r.store.ListParts(t.Context(), id); err != nil || len(parts) > 0 || !r.kept(other) {
		t.Errorf("part records %v, %v; the other job is kept: %v", parts, err, r.kept(other))
	}
}

// If the end of a job cannot be announced, its data stays.
func TestRound_AnnouncesTheEndBeforeRemoval(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.keep("a")
	id := r.done("a")
	r.days, r.announceErr = 2, errors.New("the nodes do not answer")
	r.rounds(3)
	if !r.kept(id) || !slices.Contains(r.announced, id) {
		t.Errorf("kept: %v, announced %v", r.kept(id), r.announced)
	}
	r.announceErr = nil
	r.days++
	r.clean()
	r.gone(id)
}

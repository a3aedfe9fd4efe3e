package replay_test

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/store"
	"github.com/rowmill/rowmill/store/replay"
	"github.com/rowmill/rowmill/store/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestLostWrites loses each kind of write and checks whether a check alone repairs it.
func TestLostWrites(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]func(n *node, v *vault){
		"the end": func(n *node, v *vault) {
			f := n.begin()
			n.commit(f, "p", 6, 6)
			n.merge(f, "m")
			v.keep()
			n.finish(f)
			v.forget()
			n.is(rowmill.StatusRunning)
			n.check()
			n.wantSuccess()
			if n.get().Artifacts["full"].Key != "full-key" {
				n.t.Error("its artifacts differ")
			}
		},
		"the end with the claim, and the writes between cannot be repeated at once": func(n *node, v *vault) {
			n.create()
			v.keep()
			f := n.claim()
			n.run(f)
			n.commit(f, "p", 6, 6)
			n.merge(f, "m")
			n.finish(f)
			v.forget()
			v.refuseChanges = true
			if err := n.CheckLostWrites(n.t.Context()); !errors.Is(err, rowmill.ErrUnavailable) {
				n.t.Errorf("a check of a full store: %v", err)
			}
			v.refuseChanges = false
			n.check()
			n.wantSuccess()
		},
		"the id of the job that continues it": func(n *node, v *vault) {
			n.create()
			n.cancel()
			v.keep()
			n.must(n.MarkContinued(n.t.Context(), "job-1", "job-2"))
			v.forget()
			n.check()
			n.continued("job-2")
		},
		"an end and the id of the next job, each by its own node": func(n *node, v *vault) {
			n.create()
			v.keep()
			n.cancel()
			other := v.node()
			n.must(other.MarkContinued(n.t.Context(), "job-1", "job-2"))
			v.forget()
			if err := other.CheckLostWrites(n.t.Context()); !errors.Is(err, rowmill.ErrUnavailable) {
				n.t.Errorf("the check before the end is repaired: %v", err)
			}
			n.check()
			n.is(rowmill.StatusCancelled)
			other.check()
			n.continued("job-2")
		},
		"the id of the next job, and an artifact that another node records again": func(n *node, v *vault) {
			n.create()
			n.cancel()
			v.keep()
			n.must(n.MarkContinued(n.t.Context(), "job-1", "job-2"))
			other := v.node()
			_, err := other.AddArtifact(n.t.Context(), "job-1", "columns", store.Artifact{Key: "c", Size: 1})
			n.must(err)
			v.forget()
			other.check()
			n.check()
			n.continued("job-2")
			if n.get().Artifacts["columns"].Key != "c" {
				n.t.Error("the artifact is not recorded")
			}
		},
		"an artifact, and other nodes have written since": func(n *node, v *vault) {
			n.create()
			n.cancel()
			v.keep()
			_, err := n.AddArtifact(n.t.Context(), "job-1", "columns", store.Artifact{Key: "c", Size: 1})
			n.must(err)
			v.forget()
			n.must(v.node().MarkContinued(n.t.Context(), "job-1", "job-2"))
			n.check()
			if n.get().Artifacts["columns"].Key != "c" {
				n.t.Error("the artifact is not recorded")
			}
		},
		"parts, found by the next commit": func(n *node, v *vault) {
			f := n.begin()
			n.commit(f, "1", 1, 1)
			v.keep()
			n.commit(f, "2", 2, 3)
			n.commit(f, "3", 1, 4)
			v.forget()
			n.commit(f, "4", 2, 6)
			n.wantParts(6, "1", "2", "3", "4")
		},
		"parts, found by a check": func(n *node, v *vault) {
			f := n.begin()
			v.keep()
			n.commit(f, "1", 1, 1)
			n.commit(f, "2", 2, 3)
			v.forget()
			n.check()
			n.wantParts(3, "1", "2")
		},
		"writes that cannot be repeated at once, and the owner has written since": func(n *node, v *vault) {
			n.create()
			f := n.claim()
			v.keep()
			n.run(f)
			n.commit(f, "1", 2, 2)
			v.forget()
			v.refuseChanges = true
			if err := n.CheckLostWrites(n.t.Context()); !errors.Is(err, rowmill.ErrUnavailable) {
				n.t.Errorf("a check of a full store: %v", err)
			}
			v.refuseChanges = false
			n.commit(f, "2", 4, 6)
			n.is(rowmill.StatusRunning)
			n.wantParts(6, "1", "2")
			n.finish(f)
		},
		"a write again just after it was repeated": func(n *node, v *vault) {
			n.create()
			f := n.claim()
			v.keep()
			n.run(f)
			n.commit(f, "1", 2, 2)
			v.forget()
			v.forgetAgain = true
			err := n.CommitParts(n.t.Context(), f, []store.Part{{Key: "2", Rows: 4, Totals: of(4)}})
			if !errors.Is(err, rowmill.ErrUnavailable) || errors.Is(err, rowmill.ErrLeaseLost) {
				n.t.Errorf("a write where the store loses writes again: %v, want ErrUnavailable", err)
			}
			n.commit(f, "2", 4, 6)
			n.wantParts(6, "1", "2")
			n.is(rowmill.StatusRunning)
		},
		"a merge": func(n *node, v *vault) {
			f := n.begin()
			n.commit(f, "1", 3, 3)
			n.commit(f, "2", 3, 6)
			v.keep()
			n.merge(f, "m")
			v.forget()
			n.check()
			n.wantParts(6, "m")
		},
		"parts and their merge, found by the end": func(n *node, v *vault) {
			f := n.begin()
			v.keep()
			n.commit(f, "1", 3, 3)
			n.commit(f, "2", 3, 6)
			n.merge(f, "m")
			v.forget()
			n.finish(f)
			n.wantParts(6, "m")
			n.is(rowmill.StatusSucceeded)
		},
		"the number of rows and the status": func(n *node, v *vault) {
			n.create()
			f := n.claim()
			v.keep()
			n.run(f)
			v.forget()
			n.check()
			if rec := n.get(); rec.Job.NumRows == nil || *rec.Job.NumRows != 6 || rec.Shards != 1 || rec.Job.Message != "Processing rows." {
				n.t.Errorf("the record is %+v", rec.Job)
			}
			n.is(rowmill.StatusRunning)
		},
		"a reservation, and other jobs have reached the limit since": func(n *node, v *vault) {
			n.create()
			f := n.claim()
			v.keep()
			limit := 5.0
			_, err := n.Reserve(n.t.Context(), f, 4, &limit)
			n.must(err)
			v.forget()
			_, _, err = v.Create(n.t.Context(), storetest.NewRecord("job-2", "a", "row"), nil)
			n.must(err)
			rec, err := v.Claim(n.t.Context(), "job-2", n.session, store.Claim{})
			n.must(err)
			_, err = v.Reserve(n.t.Context(), store.Fence{JobID: "job-2", Session: n.session, Epoch: rec.Epoch}, 4, &limit)
			n.must(err)
			n.check()
			if got := n.get().Reserved; got != rowmill.MoneyFromUSD(4) {
				n.t.Errorf("%v are set aside", got)
			}
		},
		"a submission with its idempotency key": func(n *node, v *vault) {
			v.keep()
			n.create()
			v.forget()
			n.check()
			n.is(rowmill.StatusPending)
			if rec, err := v.Lookup(n.t.Context(), "a", *idem); err != nil || rec.Job.ID != "job-1" {
				n.t.Errorf("the key leads to %q, %v", rec.Job.ID, err)
			}
		},
		"a submission that only its owner knows": func(n *node, v *vault) {
			other := v.node()
			v.keep()
			other.create()
			f := n.claim()
			n.run(f)
			n.commit(f, "1", 2, 2)
			v.forget()
			n.check()
			again := n.claim()
			if again.Epoch <= f.Epoch {
				n.t.Errorf("epoch %d after %d", again.Epoch, f.Epoch)
			}
			n.wantParts(2, "1")
			n.is(rowmill.StatusRunning)
			other.check()
			n.wantParts(2, "1")
		},
		"a claim": func(n *node, v *vault) {
			n.create()
			v.keep()
			f := n.claim()
			n.run(f)
			n.commit(f, "1", 2, 2)
			v.forget()
			err := n.CommitParts(n.t.Context(), f, []store.Part{{Key: "2", Rows: 1, Totals: of(1)}})
			if !errors.Is(err, rowmill.ErrLeaseLost) {
				n.t.Errorf("a write under a lost claim: %v, want ErrLeaseLost", err)
			}
			n.check() // the owner has not claimed it again yet
			again := n.claim()
			if again.Epoch <= f.Epoch {
				n.t.Errorf("epoch %d after %d", again.Epoch, f.Epoch)
			}
			n.wantParts(2, "1")
			n.commit(again, "2", 1, 3)
			n.wantParts(3, "1", "2")
		},
		"a short job except its submission": func(n *node, v *vault) {
			n.create()
			v.keep()
			f := n.claim()
			n.run(f)
			n.commit(f, "1", 6, 6)
			n.merge(f, "m")
			n.finish(f)
			v.forget()
			n.is(rowmill.StatusPending)
			n.check()
			n.wantSuccess()
		},
		"a whole short job": func(n *node, v *vault) {
			v.keep()
			f := n.begin()
			n.commit(f, "1", 6, 6)
			n.merge(f, "m")
			n.finish(f)
			v.forget()
			n.check()
			n.wantSuccess()
		},
		"the id of the next job, and KeepInput comes before a check": func(n *node, v *vault) {
			n.create()
			n.cancel()
			v.keep()
			n.must(n.MarkContinued(n.t.Context(), "job-1", "job-2"))
			v.forget()
			n.must(n.KeepInput(n.t.Context(), "job-1", time.Now().Add(time.Hour)))
			n.check()
			n.continued("job-2")
		},
		"parts that are listed before a check": func(n *node, v *vault) {
			f := n.begin()
			v.keep()
			n.commit(f, "1", 1, 1)
			n.commit(f, "2", 2, 3)
			v.forget()
			if parts, err := n.ListParts(n.t.Context(), "job-1"); err != nil || len(parts) != 2 {
				n.t.Errorf("parts %v, %v", parts, err)
			}
			n.wantParts(3, "1", "2")
		},
		"the end of a job whose claim was not acknowledged": func(n *node, v *vault) {
			n.create()
			v.loseClaimAnswers = true
			if _, err := n.Claim(n.t.Context(), "job-1", n.session, store.Claim{}); !errors.Is(err, store.ErrOutcomeUnknown) {
				n.t.Fatal(err)
			}
			rec, err := n.Get(n.t.Context(), "job-1")
			n.must(err)
			f := store.Fence{JobID: "job-1", Session: rec.Session, Epoch: rec.Epoch}
			n.run(f)
			v.keep()
			n.commit(f, "1", 6, 6)
			n.merge(f, "m")
			n.finish(f)
			v.forget()
			n.is(rowmill.StatusRunning)
			n.check()
			n.wantSuccess()
		},
		"a cancel by another node than the owner": func(n *node, v *vault) {
			f := n.begin()
			v.keep()
			n.commit(f, "1", 1, 1)
			other := v.node()
			other.cancel()
			v.forget()
			n.check()
			other.check()
			n.is(rowmill.StatusCancelled)
			n.wantParts(1, "1")
		},
		"a cancel by a node that has stopped": func(n *node, v *vault) {
			f := n.begin()
			v.keep()
			n.commit(f, "1", 1, 1)
			other := v.node()
			other.cancel()
			v.forget()
			n.check()
			n.must(other.Close())
			n.is(rowmill.StatusCancelled)
			n.wantParts(1, "1")
		},
		"a cancel that only the former owner can repeat": func(n *node, v *vault) {
			f := n.begin()
			v.keep()
			_, err := v.Cancel(n.t.Context(), "job-1", time.Now(), nil)
			n.must(err)
			n.check()
			n.must(n.MarkContinued(n.t.Context(), "job-1", "job-2"))
			v.forget()
			for range 3 {
				if err := n.CheckLostWrites(n.t.Context()); !errors.Is(err, rowmill.ErrUnavailable) {
					n.t.Errorf("a check while the end is missing: %v", err)
				}
				if got := n.get().Session; got != f.Session {
					n.t.Errorf("session %q owns the job", got)
				}
			}
			_ = n.CheckLostWrites(n.t.Context())
			again := v.node()
			if f := again.claim(); f.Session != again.session {
				n.t.Errorf("session %q owns the job", f.Session)
			}
			again.cancel()
			n.check()
			n.continued("job-2")
		},
		"a cancel, and the owner has written since": func(n *node, v *vault) {
			f := n.begin()
			other := v.node()
			v.keep()
			other.cancel()
			v.forget()
			for i, key := range []string{"1", "2", "3"} {
				n.commit(f, key, 1, int64(i)+1)
			}
			other.check()
			n.is(rowmill.StatusCancelled)
		},
		"an artifact": func(n *node, v *vault) {
			f := n.begin()
			n.commit(f, "p", 6, 6)
			n.finish(f)
			v.keep()
			_, err := n.AddArtifact(n.t.Context(), "job-1", "columns", store.Artifact{Key: "c", Size: 1})
			n.must(err)
			v.forget()
			n.check()
			if n.get().Artifacts["columns"].Key != "c" {
				n.t.Error("the artifact is not recorded")
			}
		},
		"a removal of data": func(n *node, v *vault) {
			n.create()
			n.cancel()
			v.keep()
			_, err := n.RemoveData(n.t.Context(), "job-1", time.Now())
			n.must(err)
			v.forget()
			n.check()
			if n.get().DataRemoved == nil {
				n.t.Error("the data counts as there")
			}
		},
		"the removal of the parts": func(n *node, v *vault) {
			f := n.begin()
			n.commit(f, "1", 6, 6)
			n.finish(f)
			v.keep()
			n.must(n.DropParts(n.t.Context(), "job-1"))
			v.forget()
			n.wantParts(6, "1")
			n.check()
			n.wantParts(6)
		},
		"a release": func(n *node, v *vault) {
			n.create()
			f := n.claim()
			v.keep()
			n.must(n.Release(n.t.Context(), f))
			v.forget()
			n.check()
			if got := n.get().Session; got != "" {
				n.t.Errorf("session %s still owns the job", got)
			}
		},
		"twice in a row": func(n *node, v *vault) {
			f := n.begin()
			v.keep()
			n.commit(f, "1", 1, 1)
			v.forget()
			n.commit(f, "2", 1, 2)
			v.forget()
			n.commit(f, "3", 4, 6)
			v.forget()
			n.merge(f, "m")
			v.forget()
			n.finish(f)
			v.forget()
			n.check()
			n.wantSuccess()
		},
		"a write, and the store is unreachable for longer than For": func(n *node, v *vault) {
			f := n.begin()
			n.check()
			v.keep()
			n.commit(f, "1", 1, 1)
			v.unreachable = true
			for range 3 {
				if err := n.CheckLostWrites(n.t.Context()); err == nil {
					n.t.Error("a check of an unreachable store succeeded")
				}
			}
			v.forget()
			v.unreachable = false
			n.check()
			n.wantParts(1, "1")
		},
		"nothing": func(n *node, v *vault) {
			f := n.begin()
			n.commit(f, "1", 1, 1)
			before := n.get().Version
			n.check()
			n.check()
			if got := n.get().Version; got != before {
				n.t.Errorf("version %d after a check, was %d", got, before)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := newVault(t)
			test(v.node(), v)
		})
	}
}

// After the store has failed, a missing job may be one that another node writes again.
func TestMissingAfterAFailure(t *testing.T) {
	t.Parallel()
	var failed atomic.Pointer[time.Time]
	failed.Store(&time.Time{})
	n := newVault(t).nodeWith(replay.Config{FailedAt: func() time.Time { return *failed.Load() }})
	wants := func(what string, want error) {
		t.Helper()
		if _, err := n.Get(t.Context(), "job-none"); !errors.Is(err, want) {
			t.Errorf("%s: get %v, want %v", what, err, want)
		}
		if _, err := n.Head(t.Context(), "job-none"); !errors.Is(err, want) {
			t.Errorf("%s: head %v, want %v", what, err, want)
		}
	}
	wants("before a failure", rowmill.ErrNotFound)
	now := time.Now()
	failed.Store(&now)
	wants("after a failure", rowmill.ErrUnavailable)
	long := now.Add(-4 * time.Hour)
	failed.Store(&long)
	wants("long after it", rowmill.ErrNotFound)
}

package replay_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/store"
	"github.com/rowmill/rowmill/store/replay"
	"github.com/rowmill/rowmill/store/storetest"
)

// Writes that cannot be repeated yet are kept longer than other writes.
func TestUnrepeatableWritesKeptLonger(t *testing.T) {
	t.Parallel()
	v := newVault(t)
	owner, other := v.node(), v.nodeWith(replay.Config{KeepFor: time.Nanosecond, Patience: time.Hour})
	owner.create()
	v.keep()
	owner.cancel()
	other.must(other.MarkContinued(t.Context(), "job-1", "job-2"))
	v.forget()
	for range 3 {
		if err := other.CheckLostWrites(t.Context()); !errors.Is(err, rowmill.ErrUnavailable) {
			t.Errorf("the check before the end is repaired: %v", err)
		}
	}
	owner.check()
	other.check()
	other.continued("job-2")
	impatient := v.nodeWith(replay.Config{KeepFor: time.Nanosecond, Patience: time.Nanosecond})
	v.keep()
	impatient.must(impatient.MarkContinued(t.Context(), "job-1", "job-3"))
	impatient.check()
	v.forget()
	impatient.check()
	other.continued("job-2")
}

// Lost writes that a check finds but cannot repeat are not dropped.
func TestLostWritesKeptAfterFailedCheck(t *testing.T) {
	t.Parallel()
	v := newVault(t)
	n := v.nodeWith(replay.Config{KeepFor: time.Nanosecond, Patience: time.Hour})
	v.keep()
	n.create()
	v.forget()
	v.afterMarks = func() { v.unreachable = true }
	if err := n.CheckLostWrites(t.Context()); !errors.Is(err, rowmill.ErrUnavailable) {
		t.Errorf("a check that ends before it has repaired anything: %v", err)
	}
	v.unreachable = false
	n.check()
	n.is(rowmill.StatusPending)
}

// A node that removed a job's data also writes the end of the job again. The node that wrote
// the end is gone, and without the data all rows would run again.
func TestRemovalRestoresTheEnd(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		end        func(*node, store.Fence)
		status     rowmill.Status
		ownerEnded bool // the session of the owner has ended
	}{
		"finish":                       {(*node).finish, rowmill.StatusSucceeded, false},
		"finish, and the session ends": {(*node).finish, rowmill.StatusSucceeded, true},
		"cancel":                       {func(n *node, _ store.Fence) { n.cancel() }, rowmill.StatusCancelled, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := newVault(t)
			lost, other := v.node(), v.nodeWith(replay.Config{KeepFor: time.Nanosecond, Patience: time.Hour})
			f := lost.begin()
			lost.commit(f, "a", 6, 6)
			lost.merge(f, "m")
			v.keep()
			c.end(lost, f)
			removed, err := other.RemoveData(t.Context(), "job-1", time.Now())
			other.must(err)
			other.must(other.DropParts(t.Context(), "job-1"))
			v.forget()
			if c.ownerEnded {
				other.must(other.CloseSession(t.Context(), lost.session))
			}
			if err := other.CheckLostWrites(t.Context()); !errors.Is(err, rowmill.ErrUnavailable) {
				t.Errorf("the check that repairs the end: %v", err)
			}
			other.check()
			other.is(c.status)
			rec := other.get()
			if rec.DataRemoved == nil {
				t.Error("its record does not say that its data is removed")
			}
			if rec.Job.RowCounts != removed.Job.RowCounts || !rec.Job.Completed.Equal(*removed.Job.Completed) {
				t.Errorf("the job ended with %+v at %v, want %+v at %v", rec.Job.RowCounts, rec.Job.Completed, removed.Job.RowCounts, removed.Job.Completed)
			}
		})
	}
}

// A caller who learned of a removal by another node can rely on the removal.
func TestRemovalByAnotherNodeLost(t *testing.T) {
	t.Parallel()
	v := newVault(t)
	lost, other := v.node(), v.node()
	other.create()
	other.cancel()
	v.keep()
	for _, n := range []*node{lost, other} {
		_, err := n.RemoveData(t.Context(), "job-1", time.Now())
		n.must(err)
	}
	v.forget()
	other.check()
	if other.get().DataRemoved == nil {
		t.Error("its record does not say that its data is removed")
	}
}

// A job whose end was lost together with its node runs again, even on a node that keeps
// a write for after the end.
func TestWaitingWriteDoesNotStopOthers(t *testing.T) {
	t.Parallel()
	v := newVault(t)
	lost, other := v.node(), v.node()
	other.create()
	lost.run(lost.claim())
	v.keep()
	lost.cancel()
	other.must(other.MarkContinued(t.Context(), "job-1", "job-2"))
	v.forget()
	other.must(v.CloseSession(t.Context(), lost.session))
	f := other.claim()
	for range 5 {
		if err := other.CheckLostWrites(t.Context()); !errors.Is(err, rowmill.ErrUnavailable) {
			t.Errorf("a check before the end: %v", err)
		}
	}
	other.commit(f, "1", 6, 6)
	if parts, err := other.ListParts(t.Context(), "job-1"); err != nil || len(parts) != 1 {
		t.Errorf("the parts are %v: %v", parts, err)
	}
	other.merge(f, "m")
	other.finish(f)
	other.check()
	other.wantSuccess()
	other.continued("job-2")
}

// When another node has claimed a job whose claim was lost, the new owner continues
// undisturbed.
func TestNewOwnerContinues(t *testing.T) {
	t.Parallel()
	v := newVault(t)
	a, b := v.node(), v.node()
	a.create()
	v.keep()
	old := a.claim()
	a.run(old)
	a.commit(old, "1", 1, 1)
	v.forget()
	f := b.claim()
	if f.Epoch <= old.Epoch {
		t.Errorf("epoch %d after the lost epoch %d: two owners could have the same", f.Epoch, old.Epoch)
	}
	b.run(f)
	b.commit(f, "2", 2, 2)
	a.check()
	err := a.CommitParts(t.Context(), old, []store.Part{{Key: "3", Rows: 1, Totals: of(1)}})
	if !errors.Is(err, rowmill.ErrLeaseLost) {
		t.Errorf("a write of the owner whose claim was lost: %v, want ErrLeaseLost", err)
	}
	b.wantParts(2, "2")
	b.commit(f, "4", 4, 6)
	b.finish(f)
	a.check()
	b.check()
	b.wantParts(6, "2", "4")
	b.is(rowmill.StatusSucceeded)
}

// A repeated write is kept as long as a new one, because it can be lost too.
func TestRepeatedWriteLostAgain(t *testing.T) {
	t.Parallel()
	v := newVault(t)
	n := v.nodeWith(replay.Config{KeepFor: time.Nanosecond, Patience: time.Hour})
	f := n.begin()
	v.keep()
	n.commit(f, "1", 1, 1)
	for range 3 {
		v.forget()
		n.check()
		n.wantParts(1, "1")
	}
}

// The store loses a write that is no longer kept, and later ones: these are not repeated on top
// of the gap. The job runs again, also if its owner still runs or the claim was not lost.
func TestLostWriteThatIsNoLongerKept(t *testing.T) {
	t.Parallel()
	for _, claimed := range []bool{false, true} {
		for _, ends := range []bool{false, true} {
			v := newVault(t)
			n := v.nodeWith(replay.Config{KeepFor: time.Nanosecond, Patience: time.Hour})
			n.create()
			var f store.Fence
			if claimed {
				f = n.claim()
			}
			v.keep()
			if !claimed {
				f = n.claim()
			}
			n.run(f)
			n.check() // drops the write that started the job
			n.commit(f, "old", 6, 6)
			if ends {
				n.merge(f, "older")
				n.finish(f)
			}
			v.forget()
			n.check()
			if status := n.get().Job.Status; status.IsTerminal() || status == rowmill.StatusRunning {
				t.Errorf("the job is %s", status)
			}
			if err := n.CommitParts(t.Context(), f, []store.Part{{Key: "late"}}); !errors.Is(err, rowmill.ErrLeaseLost) {
				t.Errorf("a write of the owner: %v, want ErrLeaseLost", err)
			}
			f = n.claim()
			n.wantParts(0)
			n.run(f)
			n.commit(f, "new", 6, 6)
			n.merge(f, "m")
			n.finish(f)
			n.check()
			n.wantSuccess()
		}
	}
}

// A job that is stored again as claimed lacks the parts of another owner; only that
// owner can repeat them.
func TestStoredAgainAsClaimed(t *testing.T) {
	t.Parallel()
	v := newVault(t)
	lost, n := v.node(), v.node()
	v.keep()
	rec := storetest.NewRecord("job-1", "a")
	rec.Spec.Continue = &rowmill.Continuation{Job: "job-0"}
	_, _, err := lost.Create(t.Context(), rec, nil)
	lost.must(err)
	f := lost.claim()
	lost.run(f)
	lost.commit(f, "carried", 4, 4)
	_, err = lost.Update(t.Context(), f, func(r *store.Record) error {
		r.Job.RowsTakenOver, r.Cut = 4, "cut"
		return nil
	})
	lost.must(err)
	lost.must(v.CloseSession(t.Context(), lost.session))
	n.run(n.claim())
	v.forget()
	n.check()
	if got := n.get(); got.Job.RowCounts != (rowmill.RowCounts{}) || got.Cut != "" {
		t.Errorf("without its parts the job has %+v, cut %q", got.Job.RowCounts, got.Cut)
	}
}

// A job that was stored again as claimed, and is lost once more, is stored again.
func TestStoredAgainAsClaimedTwice(t *testing.T) {
	t.Parallel()
	v := newVault(t)
	submitter, owner := v.node(), v.nodeWith(replay.Config{KeepFor: time.Nanosecond, Patience: time.Nanosecond})
	v.keep()
	submitter.create()
	f := owner.claim()
	owner.run(f)
	owner.check()
	owner.check() // drops the writes so far
	owner.commit(f, "a", 3, 3)
	for range 2 {
		v.forget()
		owner.check()
		owner.is(rowmill.StatusPending)
	}
}

// Writes that are acknowledged during a check do not count as lost.
func TestWriteDuringCheck(t *testing.T) {
	t.Parallel()
	for name, ask := range map[string]func(n *node){
		"a check": (*node).check,
		"a list of the parts": func(n *node) {
			_, err := n.ListParts(n.t.Context(), "job-1")
			n.must(err)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v, said := newVault(t), new(logText)
			n := v.nodeWith(replay.Config{Log: slog.New(slog.NewTextHandler(said, nil))})
			f := n.begin()
			v.afterMarks = func() {
				v.afterMarks = func() { n.commit(f, "2", 1, 2) } // when there are two reads
				n.commit(f, "1", 1, 1)
			}
			ask(n)
			v.afterMarks = nil
			if text := said.String(); text != "" {
				t.Errorf("nothing was lost, but the log says: %s", text)
			}
		})
	}
}

// A repeated claim without an answer loses nothing.
func TestRepeatedClaim(t *testing.T) {
	t.Parallel()
	v := newVault(t)
	n := v.node()
	f := n.begin()
	made := 0
	_, err := n.Update(t.Context(), f, func(*store.Record) error { made++; return nil })
	n.must(err)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := n.Claim(gone, "job-1", n.session, store.Claim{}); !errors.Is(err, context.Canceled) {
		t.Errorf("a claim that its caller gave up: %v", err)
	}
	_, err = n.Get(t.Context(), "job-1")
	n.must(err)
	n.check()
	if made != 1 {
		t.Errorf("a write that was not lost was made %d times", made)
	}
}

// An end with an unknown outcome counts when a record shows it.
func TestLostEndThatWasSeen(t *testing.T) {
	t.Parallel()
	cancel := func(n *node) error {
		_, err := n.Cancel(n.t.Context(), "job-1", time.Now(), nil)
		return err
	}
	for name, see := range map[string]func(n *node){
		"read":                   func(n *node) { _, err := n.Get(n.t.Context(), "job-1"); n.must(err) },
		"checked":                (*node).check,
		"cancelled again":        func(n *node) { _ = cancel(n) }, // it has ended
		"asked for at another's": nil,
	} {
		t.Run("a cancel, "+name, func(t *testing.T) {
			t.Parallel()
			v := newVault(t)
			n := v.node()
			n.begin()
			v.keep()
			v.loseAnswers = true
			if err := cancel(n); !errors.Is(err, store.ErrOutcomeUnknown) {
				t.Errorf("a cancel without an answer: %v", err)
			}
			v.loseAnswers = false
			if see != nil {
				see(n)
			} else if n = v.node(); !errors.Is(cancel(n), rowmill.ErrTerminal) {
				t.Error("it was not cancelled")
			}
			v.forget()
			n.is(rowmill.StatusRunning)
			n.check()
			n.is(rowmill.StatusCancelled)
		})
	}
	t.Run("a success", func(t *testing.T) {
		t.Parallel()
		v := newVault(t)
		n := v.node()
		f := n.begin()
		n.commit(f, "p", 6, 6)
		n.merge(f, "m")
		v.keep()
		v.loseAnswers = true
		_, err := n.Finish(t.Context(), f, func(r *store.Record) error { return r.Job.Become(rowmill.StatusSucceeded, time.Now()) })
		if !errors.Is(err, store.ErrOutcomeUnknown) {
			t.Errorf("an end without an answer: %v", err)
		}
		v.loseAnswers = false
		_, err = n.Get(t.Context(), "job-1")
		n.must(err)
		v.forget()
		n.check()
		n.wantSuccess()
	})
}

// A node that was paused until its session expired repeats its cancel of a job that it
// had owned, whoever claims the job.
func TestLostCancelOfPausedOwner(t *testing.T) {
	t.Parallel()
	v := newVault(t)
	n := v.nodeWith(replay.Config{KeepFor: time.Nanosecond, Patience: time.Hour})
	v.keep()
	n.begin()
	n.cancel()
	n.must(v.CloseSession(t.Context(), n.session))
	v.forget()
	n.check()
	n.check()
	n.is(rowmill.StatusCancelled)
}

// A claim reveals that one write was lost: the claim is one write more, but the count
// of writes did not grow.
func TestClaimAfterOneLostWrite(t *testing.T) {
	t.Parallel()
	v := newVault(t)
	n := v.node()
	n.create()
	v.keep()
	n.cancel()
	v.forget()
	n.is(rowmill.StatusPending)
	if _, err := n.Claim(t.Context(), "job-1", n.session, store.Claim{}); err != nil && !errors.Is(err, rowmill.ErrTerminal) {
		t.Fatal(err)
	}
	n.is(rowmill.StatusCancelled)
}

// An owner whose writes were lost does not repeat them after another owner: the rows of the
// lost parts have run again there.
func TestClaimAfterAnotherOwner(t *testing.T) {
	t.Parallel()
	for _, earlier := range []bool{false, true} { // the other claims the job before or after the owner's lost claim
		for _, ends := range []bool{false, true} {
			v := newVault(t)
			n, other := v.node(), v.node()
			n.create()
			f := n.claim()
			n.run(f)
			if earlier {
				n.must(n.Release(t.Context(), f))
			}
			v.keep()
			var o store.Fence
			if earlier {
				o = other.claim()
				taken := v.engine.Snapshot()
				v.forget()
				f, v.kept = n.claim(), taken
			}
			n.commit(f, "mine", 3, 3)
			if ends {
				n.commit(f, "rest", 3, 3)
				n.finish(f)
			}
			v.forget()
			if !earlier {
				session := n.session
				n.must(v.CloseSession(t.Context(), session))
				n.session = v.node().session
				o = other.claim()
			}
			other.commit(o, "other", 3, 3)
			other.must(other.Release(t.Context(), o))
			if ends {
				_ = n.CheckLostWrites(t.Context()) // it may find that its session has ended
			}
			n.claim()
			n.check()
			n.wantParts(3, "other")
		}
	}
}

// An owner whose claim was lost does not repeat its writes after later writes of the owner
// before it.
func TestClaimAfterTheOwnerBefore(t *testing.T) {
	t.Parallel()
	v := newVault(t)
	n, first := v.node(), v.node()
	o := first.begin()
	v.keep()
	first.must(v.Release(t.Context(), o))
	n.commit(n.claim(), "mine", 3, 3)
	v.forget()
	first.commit(o, "first", 3, 3)
	first.must(first.Release(t.Context(), o))
	n.claim()
	n.check()
	n.wantParts(3, "first")
}

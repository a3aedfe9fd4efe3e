package recall_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/store"
	"github.com/rowmill/rowmill/store/recall"
	"github.com/rowmill/rowmill/store/storetest"
)

// What is to be written again, and cannot be yet, is remembered for longer than
// what is there.
func TestForgottenForLong(t *testing.T) {
	t.Parallel()
	v := newVault(t)
	owner, other := v.node(), v.nodeThat(recall.Config{For: time.Nanosecond, Patience: time.Hour})
	owner.create()
	v.keep()
	owner.cancel()
	other.must(other.Continued(t.Context(), "job-1", "job-2"))
	v.forget()
	for range 3 {
		if err := other.Look(t.Context()); !errors.Is(err, rowmill.ErrUnavailable) {
			t.Errorf("the look before the end is mended: %v", err)
		}
	}
	owner.look()
	other.look()
	other.continued("job-2")
	impatient := v.nodeThat(recall.Config{For: time.Nanosecond, Patience: time.Nanosecond})
	v.keep()
	impatient.must(impatient.Continued(t.Context(), "job-1", "job-3"))
	impatient.look()
	v.forget()
	impatient.look()
	other.continued("job-2")
}

// What is found forgotten by a look that does not come to it is not forgotten here
// too.
func TestForgottenWhereALookEnds(t *testing.T) {
	t.Parallel()
	v := newVault(t)
	n := v.nodeThat(recall.Config{For: time.Nanosecond, Patience: time.Hour})
	v.keep()
	n.create()
	v.forget()
	v.between = func() { v.away = true }
	if err := n.Look(t.Context()); !errors.Is(err, rowmill.ErrUnavailable) {
		t.Errorf("a look that ends before it has mended anything: %v", err)
	}
	v.away = false
	n.look()
	n.is(rowmill.StatusPending)
}

// Data that a client has removed goes once its job is over again, however long that
// takes.
func TestForgottenRemovalWaitsForTheEnd(t *testing.T) {
	t.Parallel()
	v := newVault(t)
	owner, other := v.node(), v.nodeThat(recall.Config{For: time.Nanosecond, Patience: time.Hour})
	owner.create()
	v.keep()
	owner.cancel()
	_, err := other.RemoveData(t.Context(), "job-1", time.Now())
	other.must(err)
	other.must(other.DropParts(t.Context(), "job-1"))
	v.forget()
	for range 3 {
		if err := other.Look(t.Context()); !errors.Is(err, rowmill.ErrUnavailable) {
			t.Errorf("the look before the end is mended: %v", err)
		}
	}
	owner.look()
	other.look()
	if owner.get().DataRemoved == nil {
		t.Error("its record does not say that its data is removed")
	}
}

// Who is told that data was removed minds that, though another had it removed.
func TestForgottenRemovalOfAnother(t *testing.T) {
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
	other.look()
	if other.get().DataRemoved == nil {
		t.Error("its record does not say that its data is removed")
	}
}

// A job whose end is forgotten with the node that ended it goes on, also at a node
// that has something to write once it is over.
func TestWhatWaitsForTheEndHoldsUpNothing(t *testing.T) {
	t.Parallel()
	v := newVault(t)
	lost, other := v.node(), v.node()
	other.create()
	lost.run(lost.claim())
	v.keep()
	lost.cancel()
	other.must(other.Continued(t.Context(), "job-1", "job-2"))
	_, err := other.RemoveData(t.Context(), "job-1", time.Now())
	other.must(err)
	v.forget()
	other.must(v.CloseSession(t.Context(), lost.session))
	f := other.claim()
	for range 5 {
		if err := other.Look(t.Context()); !errors.Is(err, rowmill.ErrUnavailable) {
			t.Errorf("a look before the end: %v", err)
		}
	}
	other.commit(f, "1", 6, 6)
	if parts, err := other.ListParts(t.Context(), "job-1"); err != nil || len(parts) != 1 {
		t.Errorf("its parts are %v: %v", parts, err)
	}
	other.merge(f, "m")
	other.finish(f)
	other.look()
	other.whole()
	other.continued("job-2")
	if other.get().DataRemoved == nil {
		t.Error("its record does not say that its data is removed")
	}
}

// Whoever has claimed a job whose claim was forgotten goes on undisturbed.
func TestAnotherOwnerGoesOn(t *testing.T) {
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
		t.Errorf("epoch %d after %d, which was forgotten: two owners could have the same", f.Epoch, old.Epoch)
	}
	b.run(f)
	b.commit(f, "2", 2, 2)
	a.look()
	err := a.CommitParts(t.Context(), old, []store.Part{{Key: "3", Rows: 1, Totals: of(1)}}, of(2))
	if !errors.Is(err, rowmill.ErrLeaseLost) {
		t.Errorf("a write of the owner that was forgotten: %v, want ErrLeaseLost", err)
	}
	b.has(2, "2")
	b.commit(f, "4", 4, 6)
	b.finish(f)
	a.look()
	b.look()
	b.has(6, "2", "4")
	b.is(rowmill.StatusSucceeded)
}

// What was written again can be forgotten like what was written first, for as long.
func TestWhatWasWrittenAgainIsRemembered(t *testing.T) {
	t.Parallel()
	v := newVault(t)
	n := v.nodeThat(recall.Config{For: time.Nanosecond, Patience: time.Hour})
	f := n.begin()
	v.keep()
	n.commit(f, "1", 1, 1)
	for range 3 {
		v.forget()
		n.look()
		n.has(1, "1")
	}
}

// A job that is stored again as it was claimed has nothing that another owner had
// recorded, whose writes only that one remembers.
func TestStoredAgainAsItWasClaimed(t *testing.T) {
	t.Parallel()
	v := newVault(t)
	lost, n := v.node(), v.node()
	v.keep()
	rec := storetest.Record("job-1", "a")
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
	n.look()
	if got := n.get(); got.Job.RowCounts != (rowmill.RowCounts{}) || got.Cut != "" {
		t.Errorf("without its parts it has %+v, cut %q", got.Job.RowCounts, got.Cut)
	}
}

// What is acknowledged while the store is looked at is not forgotten.
func TestAcknowledgedDuringALook(t *testing.T) {
	t.Parallel()
	for name, ask := range map[string]func(n *node){
		"a look": (*node).look,
		"a question for the parts": func(n *node) {
			_, err := n.ListParts(n.t.Context(), "job-1")
			n.must(err)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v, said := newVault(t), new(complaint)
			n := v.nodeThat(recall.Config{Log: slog.New(slog.NewTextHandler(said, nil))})
			f := n.begin()
			v.between = func() {
				v.between = func() { n.commit(f, "2", 1, 2) } // where it looks twice
				n.commit(f, "1", 1, 1)
			}
			ask(n)
			v.between = nil
			if text := said.String(); text != "" {
				t.Errorf("nothing was forgotten, and it says: %s", text)
			}
		})
	}
}

// Who asks for a job once more that it has, and hears nothing, has lost nothing.
func TestClaimedOnceMore(t *testing.T) {
	t.Parallel()
	v := newVault(t)
	n := v.node()
	f := n.begin()
	made := 0
	_, err := n.Update(t.Context(), f, func(*store.Record) error { made++; return nil })
	n.must(err)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := n.Claim(gone, "job-1", n.session, store.Adopter{}); !errors.Is(err, context.Canceled) {
		t.Errorf("a claim that its caller gave up: %v", err)
	}
	_, err = n.Get(t.Context(), "job-1")
	n.must(err)
	n.look()
	if made != 1 {
		t.Errorf("a write that was not forgotten was made %d times", made)
	}
}

// An end of which nobody was told counts once it is seen.
func TestForgottenEndThatWasFound(t *testing.T) {
	t.Parallel()
	cancel := func(n *node) error {
		_, err := n.Cancel(n.t.Context(), "job-1", time.Now(), nil)
		return err
	}
	for name, see := range map[string]func(n *node){
		"read":                   func(n *node) { _, err := n.Get(n.t.Context(), "job-1"); n.must(err) },
		"looked at":              (*node).look,
		"asked for once more":    func(n *node) { _ = cancel(n) }, // it is over
		"asked for at another's": nil,
	} {
		t.Run("a cancel, "+name, func(t *testing.T) {
			t.Parallel()
			v := newVault(t)
			n := v.node()
			n.begin()
			v.keep()
			v.silent = true
			if err := cancel(n); !errors.Is(err, store.ErrOutcomeUnknown) {
				t.Errorf("a cancel without an answer: %v", err)
			}
			v.silent = false
			if see != nil {
				see(n)
			} else if n = v.node(); !errors.Is(cancel(n), rowmill.ErrTerminal) {
				t.Error("it was not cancelled")
			}
			v.forget()
			n.is(rowmill.StatusRunning)
			n.look()
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
		v.silent = true
		_, err := n.Finish(t.Context(), f, func(r *store.Record) error { return r.Job.Become(rowmill.StatusSucceeded, time.Now()) })
		if !errors.Is(err, store.ErrOutcomeUnknown) {
			t.Errorf("an end without an answer: %v", err)
		}
		v.silent = false
		_, err = n.Get(t.Context(), "job-1")
		n.must(err)
		v.forget()
		n.look()
		n.whole()
	})
}

// A node that stood still until its session was over cancels a job again that it
// had owned, whoever claims it.
func TestForgottenCancelOfAnOwnerThatStoodStill(t *testing.T) {
	t.Parallel()
	v := newVault(t)
	n := v.nodeThat(recall.Config{For: time.Nanosecond, Patience: time.Hour})
	v.keep()
	n.begin()
	n.cancel()
	n.must(v.CloseSession(t.Context(), n.session))
	v.forget()
	n.look()
	n.look()
	n.is(rowmill.StatusCancelled)
}

// A claim shows that one write was forgotten: the record holds as many as there were,
// although the claim is one more.
func TestClaimedAfterOneWriteWasForgotten(t *testing.T) {
	t.Parallel()
	v := newVault(t)
	n := v.node()
	n.create()
	v.keep()
	n.cancel()
	v.forget()
	n.is(rowmill.StatusPending)
	if _, err := n.Claim(t.Context(), "job-1", n.session, store.Adopter{}); err != nil && !errors.Is(err, rowmill.ErrTerminal) {
		t.Fatal(err)
	}
	n.is(rowmill.StatusCancelled)
}

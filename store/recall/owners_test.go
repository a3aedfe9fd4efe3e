package recall_test

import (
	"errors"
	"testing"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/store"
	"github.com/rowmill/rowmill/store/recall"
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

package actors

import (
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/rowmill/rowmill/actors/fair"
	"github.com/rowmill/rowmill/cluster/peer"
)

// refused requires a refusal with this code, or no refusal if the code is empty.
func refused(t *testing.T, what string, r *peer.Refusal, code string) {
	t.Helper()
	got := ""
	if r != nil {
		got = r.Code
	}
	if got != code {
		t.Errorf("%s: refused with %q, want %q", what, got, code)
	}
}

// asks returns the invite of an owner, on this node or another.
func asks(job string, epoch int64, remote bool) *invite {
	m := &invite{Job: job, Epoch: epoch, Account: "account"}
	if !remote {
		m.owner = &actor.PID{}
	}
	return m
}

func TestAWorkerPassesFromOwnerToOwner(t *testing.T) {
	t.Parallel()
	w := newWorkerTable(fair.Config{Places: 1}, "n")
	h, r := w.admit(asks("a", 2, false), false, time.Now())
	refused(t, "the first owner", r, "")
	if h != nil {
		t.Fatal("there was a worker before one was started")
	}
	_, r = w.admit(asks("a", 2, false), false, time.Now())
	refused(t, "while it is started", r, codeBusy)
	mine := &workerHandle{name: w.name(), epoch: 2}
	w.recordStartResult("a", mine)
	_, r = w.admit(asks("a", 1, false), false, time.Now())
	refused(t, "an earlier owner", r, codeStale)
	for _, again := range []int64{2, 3} {
		if h, r = w.admit(asks("a", again, true), true, time.Now()); h != mine || r != nil || h.epoch != again || !h.remote {
			t.Errorf("epoch %d gets %+v, %v", again, h, r)
		}
	}
	if w.find("a", mine.name) != mine || w.find("a", "n-9") != nil || w.find("b", mine.name) != nil {
		t.Error("workers are not known by their names")
	}
}

func TestRefusedInvites(t *testing.T) {
	t.Parallel()
	w := newWorkerTable(fair.Config{Places: 1}, "n")
	_, r := w.admit(asks("a", 1, false), true, time.Now())
	refused(t, "draining", r, codeDraining)
	if !w.isIdle() {
		t.Error("a refused owner leaves a worker behind")
	}
	for _, job := range []string{"a", "b"} { // own jobs do not count
		_, r = w.admit(asks(job, 1, job == "b"), false, time.Now())
		refused(t, job, r, "")
		w.recordStartResult(job, &workerHandle{name: w.name(), epoch: 1, remote: job == "b"})
	}
	_, r = w.admit(asks("c", 1, true), false, time.Now())
	refused(t, "a second job of another node", r, codeFull)
	_, r = w.admit(asks("c", 1, false), false, time.Now())
	refused(t, "a job of this node", r, "")
	w.recordStartResult("c", nil)
	w.markStopping("b")
	_, r = w.admit(asks("b", 1, true), false, time.Now())
	refused(t, "while the last one is stopped", r, codeBusy)
	w.forget("b")
	_, r = w.admit(asks("b", 1, true), false, time.Now())
	refused(t, "once it has stopped", r, "")
}

func TestDismiss(t *testing.T) {
	t.Parallel()
	w := newWorkerTable(fair.Config{Places: 1}, "n")
	_, r := w.dismiss("a", 1)
	refused(t, "an unknown job", r, "")
	if h, r := w.admit(asks("a", 2, false), false, time.Now()); h != nil || r != nil {
		t.Fatal(h, r)
	}
	_, r = w.dismiss("a", 2)
	refused(t, "while it is started", r, codeBusy)
	mine := &workerHandle{name: w.name(), epoch: 2}
	w.recordStartResult("a", mine)
	if h, r := w.dismiss("a", 1); h != nil || r != nil {
		t.Error("an earlier owner stops the worker of a later one", h, r)
	}
	if h, r := w.dismiss("a", 2); h != mine || r != nil {
		t.Error("the owner cannot stop its worker", h, r)
	}
	w.markStopping("a")
	_, r = w.dismiss("a", 2)
	refused(t, "while it is stopped", r, codeBusy)
	if w.isIdle() {
		t.Error("a stopping worker counts as none")
	}
	w.forget("a")
	_, r = w.dismiss("a", 2)
	refused(t, "once it has stopped", r, "")
	if !w.isIdle() {
		t.Error("a stopped worker still counts")
	}
}

// A worker takes a place when its job moves to an owner on another node, and gives
// it back when the job moves back.
func TestAWorkerTakesAPlaceAsItsJobMoves(t *testing.T) {
	t.Parallel()
	w := newWorkerTable(fair.Config{Places: 1}, "n")
	for _, job := range []string{"a", "b"} {
		if _, r := w.admit(asks(job, 1, false), false, time.Now()); r != nil {
			t.Fatal(r)
		}
		w.recordStartResult(job, &workerHandle{name: w.name(), epoch: 1})
	}
	for _, step := range []struct {
		job    string
		remote bool
		held   int
	}{{"a", true, 1}, {"a", true, 1}, {"b", true, 2}, {"a", false, 1}, {"b", false, 0}, {"b", true, 1}} {
		if _, r := w.admit(asks(step.job, 2, step.remote), false, time.Now()); r != nil || w.places.Held() != step.held {
			t.Fatalf("%+v: %d places are held (%v)", step, w.places.Held(), r)
		}
	}
	w.markStopping("b")
	w.forget("b")
	if w.places.Held() != 0 {
		t.Fatal("a stopped worker keeps its place")
	}
}

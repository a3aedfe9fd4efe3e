package actors

import (
	"testing"

	"github.com/rowmill/rowmill/cluster/peer"
)

// refused requires a refusal with that code, or none where it is empty.
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

func TestAWorkerPassesFromOwnerToOwner(t *testing.T) {
	t.Parallel()
	w := newWorkers(1, "n")
	h, r := w.admit("a", 2, false, false)
	refused(t, "the first owner", r, "")
	if h != nil {
		t.Fatal("there was a worker before one was started")
	}
	_, r = w.admit("a", 2, false, false)
	refused(t, "while it is started", r, codeBusy)
	mine := &workerHandle{name: w.name(), epoch: 2}
	w.started("a", mine)
	_, r = w.admit("a", 1, false, false)
	refused(t, "an earlier owner", r, codeStale)
	for _, again := range []int64{2, 3} {
		if h, r = w.admit("a", again, true, true); h != mine || r != nil || h.epoch != again || !h.remote {
			t.Errorf("epoch %d gets %+v, %v", again, h, r)
		}
	}
	if w.of("a", mine.name) != mine || w.of("a", "n-9") != nil || w.of("b", mine.name) != nil {
		t.Error("workers are not known by their names")
	}
}

func TestWhoGetsNoWorker(t *testing.T) {
	t.Parallel()
	w := newWorkers(1, "n")
	_, r := w.admit("a", 1, false, true)
	refused(t, "draining", r, codeDraining)
	if !w.idle() {
		t.Error("a refused owner leaves something behind")
	}
	for _, job := range []string{"a", "b"} { // own jobs do not count
		_, r = w.admit(job, 1, job == "b", false)
		refused(t, job, r, "")
		w.started(job, &workerHandle{name: w.name(), epoch: 1, remote: job == "b"})
	}
	_, r = w.admit("c", 1, true, false)
	refused(t, "a second job of another node", r, codeBusy)
	_, r = w.admit("c", 1, false, false)
	refused(t, "a job of this node", r, "")
	w.started("c", nil)
	w.stop("b")
	_, r = w.admit("b", 1, true, false)
	refused(t, "while the last one is stopped", r, codeBusy)
	w.gone("b")
	_, r = w.admit("b", 1, true, false)
	refused(t, "once it has stopped", r, "")
}

func TestDismiss(t *testing.T) {
	t.Parallel()
	w := newWorkers(1, "n")
	_, r := w.dismiss("a", 1)
	refused(t, "an unknown job", r, "")
	if h, r := w.admit("a", 2, false, false); h != nil || r != nil {
		t.Fatal(h, r)
	}
	_, r = w.dismiss("a", 2)
	refused(t, "while it is started", r, codeBusy)
	mine := &workerHandle{name: w.name(), epoch: 2}
	w.started("a", mine)
	if h, r := w.dismiss("a", 1); h != nil || r != nil {
		t.Error("an earlier owner stops the worker of a later one", h, r)
	}
	if h, r := w.dismiss("a", 2); h != mine || r != nil {
		t.Error("the owner cannot stop its worker", h, r)
	}
	w.stop("a")
	_, r = w.dismiss("a", 2)
	refused(t, "while it is stopped", r, codeBusy)
	if w.idle() {
		t.Error("a worker that is being stopped is none")
	}
	w.gone("a")
	_, r = w.dismiss("a", 2)
	refused(t, "once it has stopped", r, "")
	if !w.idle() {
		t.Error("it has left something behind")
	}
}

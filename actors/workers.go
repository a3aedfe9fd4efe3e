package actors

import (
	"fmt"
	"sync"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/rowmill/rowmill/actors/fair"
	"github.com/rowmill/rowmill/cluster/peer"
)

// A workerHandle is the node's hold on a worker.
type workerHandle struct {
	pid    *actor.PID
	name   string
	epoch  int64 // of its owner
	remote bool  // the owner is on another node
	owner  *link
	runs   *sync.WaitGroup
}

// workers are those of a node, one for each job that it runs rows of, whoever
// owns the job.
//
// Those of other nodes' jobs have places, which are shared between accounts; those
// of own jobs are as many as the node may own.
type workers struct {
	places   *fair.Shares
	placed   map[string]string // whose place a job's worker has
	prefix   string            // of their names, unique for ever
	named    int
	running  map[string]*workerHandle // by job
	starting map[string]bool
	stopping map[string]bool
}

func newWorkers(places fair.Config, prefix string) workers {
	return workers{
		places: fair.NewShares(places), placed: make(map[string]string), prefix: prefix,
		running: make(map[string]*workerHandle), starting: make(map[string]bool), stopping: make(map[string]bool),
	}
}

// name returns a name for a worker that no other has ever had.
func (w *workers) name() string {
	w.named++
	return fmt.Sprintf("%s-%d", w.prefix, w.named)
}

// of returns the worker of a job if it goes by that name.
func (w *workers) of(job, name string) *workerHandle {
	if h := w.running[job]; h != nil && h.name == name {
		return h
	}
	return nil
}

// admit decides about an owner that asks for work: it gets the job's worker,
// which is its own from now on, is told why there is none, or else one is to be
// started, and counts as being started.
func (w *workers) admit(m *invite, draining bool, now time.Time) (*workerHandle, *peer.Refusal) {
	job, remote := m.Job, m.owner == nil
	h := w.running[job]
	switch {
	case h != nil && m.Epoch < h.epoch:
		return nil, refuse(codeStale, "epoch %d is known", h.epoch)
	case h != nil:
		h.epoch, h.remote = m.Epoch, remote
		w.moved(job, m.Account, remote)
		return h, nil
	case draining:
		return nil, refuse(codeDraining, "the node is draining")
	case w.changing(job):
		return nil, refuse(codeBusy, "a worker is being set up or taken down")
	case remote && !w.places.Take(m.Account, m.Priority, now):
		return nil, refuse(codeFull, "the node works for %d jobs of others", w.places.Held())
	}
	if remote {
		w.placed[job] = m.Account
	}
	w.starting[job] = true
	return nil, nil
}

// moved notes that a worker's job is of another node now, or of this one.
func (w *workers) moved(job, account string, remote bool) {
	_, placed := w.placed[job]
	switch {
	case remote && !placed:
		w.places.Hold(account)
		w.placed[job] = account
	case !remote:
		w.leave(job)
	}
}

// leave gives back the place of a job's worker, where it has one.
func (w *workers) leave(job string) {
	if account, placed := w.placed[job]; placed {
		w.places.Leave(account)
		delete(w.placed, job)
	}
}

// started notes how the start of a worker has ended; nil where none came of it.
func (w *workers) started(job string, h *workerHandle) {
	delete(w.starting, job)
	if h == nil {
		w.leave(job)
		return
	}
	w.running[job] = h
}

// dismiss decides about an owner that wants a job's work to end: it returns the
// worker to stop, if there is one.
func (w *workers) dismiss(job string, epoch int64) (*workerHandle, *peer.Refusal) {
	h := w.running[job]
	switch {
	case h != nil && h.epoch <= epoch:
		return h, nil
	case h == nil && w.changing(job):
		return nil, refuse(codeBusy, "a worker is being set up or taken down")
	}
	return nil, nil
}

// stop notes that a job's worker is being stopped.
func (w *workers) stop(job string) {
	delete(w.running, job)
	w.stopping[job] = true
}

// gone forgets a worker that has stopped.
func (w *workers) gone(job string) {
	delete(w.running, job)
	delete(w.stopping, job)
	w.leave(job)
}

func (w *workers) changing(job string) bool { return w.starting[job] || w.stopping[job] }

// idle reports whether there is no worker, not even a part of one.
func (w *workers) idle() bool { return len(w.running)+len(w.starting)+len(w.stopping) == 0 }

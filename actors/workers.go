package actors

import (
	"fmt"
	"sync"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/rowmill/rowmill/actors/fair"
	"github.com/rowmill/rowmill/cluster/peer"
)

// A workerHandle holds what the node knows about a worker that it runs.
type workerHandle struct {
	pid    *actor.PID
	name   string
	epoch  int64 // of its owner
	remote bool  // the owner is on another node
	owner  *link
	runs   *sync.WaitGroup // tasks of the worker
}

// workers holds the workers of a node: one for each job with rows on this node. The job's
// owner is on this node or on another.
//
// A worker for a job of another node takes one of a limited number of places, which
// accounts share. A worker for a job of this node needs no place, because the node
// limits the number of its own jobs.
type workers struct {
	places   *fair.Shares
	placed   map[string]string // by job: the account whose place its worker has
	prefix   string            // of the workers' names; no other process uses this prefix
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

// name returns a name that no other worker ever has.
func (w *workers) name() string {
	w.named++
	return fmt.Sprintf("%s-%d", w.prefix, w.named)
}

// of returns the worker of a job if it has this name.
func (w *workers) of(job, name string) *workerHandle {
	if h := w.running[job]; h != nil && h.name == name {
		return h
	}
	return nil
}

// admit decides whether the node works for an owner that has sent an invite. It
// returns the job's worker, which gets this owner, or a refusal. With neither,
// the caller must start a worker, and the job counts as starting.
func (w *workers) admit(m *invite, draining bool, now time.Time) (*workerHandle, *peer.Refusal) {
	job, remote := m.Job, m.owner == nil
	h := w.running[job]
	switch {
	case h != nil && m.Epoch < h.epoch:
		return nil, refuse(codeStale, "the worker has an owner with epoch %d", h.epoch)
	case h != nil:
		h.epoch, h.remote = m.Epoch, remote
		w.updatePlace(job, m.Account, remote)
		return h, nil
	case draining:
		return nil, refuse(codeDraining, "the node is draining")
	case w.changing(job):
		return nil, refuse(codeBusy, "the job's worker is starting or stopping")
	case remote && !w.places.Take(m.Account, m.Priority, now):
		return nil, refuse(codeFull, "the node has no place for a worker: it runs rows of %d jobs of other nodes", w.places.Held())
	}
	if remote {
		w.placed[job] = m.Account
	}
	w.starting[job] = true
	return nil, nil
}

// updatePlace takes a place for a worker if the job's owner is on another node now, and
// frees the place if the owner is on this node.
func (w *workers) updatePlace(job, account string, remote bool) {
	_, placed := w.placed[job]
	switch {
	case remote && !placed:
		w.places.Hold(account)
		w.placed[job] = account
	case !remote:
		w.freePlace(job)
	}
}

// freePlace gives back the place of a job's worker, if it has one.
func (w *workers) freePlace(job string) {
	if account, placed := w.placed[job]; placed {
		w.places.Leave(account)
		delete(w.placed, job)
	}
}

// started notes the end of a worker's start; h is nil if the start failed.
func (w *workers) started(job string, h *workerHandle) {
	delete(w.starting, job)
	if h == nil {
		w.freePlace(job)
		return
	}
	w.running[job] = h
}

// dismiss handles the request of a job's owner to stop its worker. It returns the worker
// to stop, if there is one, or a refusal.
func (w *workers) dismiss(job string, epoch int64) (*workerHandle, *peer.Refusal) {
	h := w.running[job]
	switch {
	case h != nil && h.epoch <= epoch:
		return h, nil
	case h == nil && w.changing(job):
		return nil, refuse(codeBusy, "the job's worker is starting or stopping")
	}
	return nil, nil
}

// markStopping notes that a job's worker is stopping.
func (w *workers) markStopping(job string) {
	delete(w.running, job)
	w.stopping[job] = true
}

// forget forgets a worker that has stopped.
func (w *workers) forget(job string) {
	delete(w.running, job)
	delete(w.stopping, job)
	w.freePlace(job)
}

func (w *workers) changing(job string) bool { return w.starting[job] || w.stopping[job] }

// idle reports whether no worker is running, starting or stopping.
func (w *workers) idle() bool { return len(w.running)+len(w.starting)+len(w.stopping) == 0 }

package actors

import (
	"fmt"
	"sync"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/rowmill/rowmill/actors/fair"
	"github.com/rowmill/rowmill/cluster/peer"
)

// A workerHandle is the node's entry for a worker on this node.
type workerHandle struct {
	pid    *actor.PID
	name   string
	epoch  int64 // epoch of the worker's owner
	remote bool  // the owner is on another node
	owner  *messageLink
	runs   *sync.WaitGroup // counts the running tasks of the worker
}

// workerTable tracks the workers of a node: one for each job with rows on this node. The
// owner of the job may be on another node.
//
// The number of workers for jobs of other nodes is limited: each takes one place, and
// accounts share the places. A worker for a job of this node needs no place, because
// the number of the node's own jobs is limited already.
type workerTable struct {
	places   *fair.SlotPool
	placed   map[string]string        // by job: the account whose place the job's worker takes
	prefix   string                   // prefix of the workers' names; no other process uses the same prefix
	named    int                      // number of names that were given out
	running  map[string]*workerHandle // by job
	starting map[string]bool          // jobs with a worker that is starting
	stopping map[string]bool          // jobs with a worker that is stopping
}

func newWorkerTable(places fair.Config, prefix string) workerTable {
	return workerTable{
		places: fair.NewSlotPool(places), placed: make(map[string]string), prefix: prefix,
		running: make(map[string]*workerHandle), starting: make(map[string]bool), stopping: make(map[string]bool),
	}
}

// name returns a name for a new worker that no other worker ever has.
func (w *workerTable) name() string {
	w.named++
	return fmt.Sprintf("%s-%d", w.prefix, w.named)
}

// find returns the running worker of a job; nil if there is none or it has another name.
func (w *workerTable) find(job, name string) *workerHandle {
	if h := w.running[job]; h != nil && h.name == name {
		return h
	}
	return nil
}

// admit decides about an invite. If the job has a worker here, it returns this worker,
// which now belongs to the owner that sent the invite. It may return a refusal instead.
// If it returns neither, the caller must start a worker, and the job counts as
// starting.
func (w *workerTable) admit(m *invite, draining bool, now time.Time) (*workerHandle, *peer.Refusal) {
	job, remote := m.Job, m.owner == nil
	h := w.running[job]
	switch {
	case h != nil && m.Epoch < h.epoch:
		return nil, refuse(codeStale, "the worker has an owner with epoch %d", h.epoch)
	case h != nil:
		h.epoch, h.remote = m.Epoch, remote
		w.updateSlot(job, m.Account, remote)
		return h, nil
	case draining:
		return nil, refuse(codeDraining, "the node is draining")
	case w.isChanging(job):
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

// updateSlot takes a place for the job's worker if the owner is on another node now
// (remote), and frees the place if the owner is on this node.
func (w *workerTable) updateSlot(job, account string, remote bool) {
	_, placed := w.placed[job]
	switch {
	case remote && !placed:
		w.places.TakeAnyway(account)
		w.placed[job] = account
	case !remote:
		w.freeSlot(job)
	}
}

// freeSlot frees the place of a job's worker, if the worker has one.
func (w *workerTable) freeSlot(job string) {
	if account, placed := w.placed[job]; placed {
		w.places.Leave(account)
		delete(w.placed, job)
	}
}

// recordStartResult notes that the start of a worker has ended; h is the worker, or nil if the
// start failed.
func (w *workerTable) recordStartResult(job string, h *workerHandle) {
	delete(w.starting, job)
	if h == nil {
		w.freeSlot(job)
		return
	}
	w.running[job] = h
}

// dismiss handles the request of a job's owner to stop the job's worker. It returns the
// worker that the caller must stop, or a refusal, or neither.
func (w *workerTable) dismiss(job string, epoch int64) (*workerHandle, *peer.Refusal) {
	h := w.running[job]
	switch {
	case h != nil && h.epoch <= epoch:
		return h, nil
	case h == nil && w.isChanging(job):
		return nil, refuse(codeBusy, "the job's worker is starting or stopping")
	}
	return nil, nil
}

// markStopping notes that a job's worker is stopping.
func (w *workerTable) markStopping(job string) {
	delete(w.running, job)
	w.stopping[job] = true
}

// forget removes a worker that has stopped, and frees its place.
func (w *workerTable) forget(job string) {
	delete(w.running, job)
	delete(w.stopping, job)
	w.freeSlot(job)
}

func (w *workerTable) isChanging(job string) bool { return w.starting[job] || w.stopping[job] }

// isIdle reports whether no worker is running, starting or stopping.
func (w *workerTable) isIdle() bool { return len(w.running)+len(w.starting)+len(w.stopping) == 0 }

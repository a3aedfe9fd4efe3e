package actors

import (
	"fmt"
	"sync"

	"github.com/asynkron/protoactor-go/actor"

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
type workers struct {
	limit    int    // how many may be for jobs of other nodes
	prefix   string // of their names, unique for ever
	named    int
	running  map[string]*workerHandle // by job
	starting map[string]bool
	stopping map[string]bool
}

func newWorkers(limit int, prefix string) workers {
	return workers{
		limit: limit, prefix: prefix,
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
func (w *workers) admit(job string, epoch int64, remote, draining bool) (*workerHandle, *peer.Refusal) {
	h := w.running[job]
	switch {
	case h != nil && epoch < h.epoch:
		return nil, refuse(codeStale, "epoch %d is known", h.epoch)
	case h != nil:
		h.epoch, h.remote = epoch, remote
		return h, nil
	case draining:
		return nil, refuse(codeDraining, "the node is draining")
	case w.changing(job):
		return nil, refuse(codeBusy, "a worker is being set up or taken down")
	case remote && w.remoteJobs() >= w.limit:
		return nil, refuse(codeBusy, "the node works for %d jobs of others", w.limit)
	}
	w.starting[job] = true
	return nil, nil
}

// remoteJobs is how many jobs of other nodes rows are run of here.
func (w *workers) remoteJobs() (count int) {
	for _, h := range w.running {
		if h.remote {
			count++
		}
	}
	return count
}

// started notes how the start of a worker has ended; nil where none came of it.
func (w *workers) started(job string, h *workerHandle) {
	delete(w.starting, job)
	if h != nil {
		w.running[job] = h
	}
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
}

func (w *workers) changing(job string) bool { return w.starting[job] || w.stopping[job] }

// idle reports whether there is no worker, not even a part of one.
func (w *workers) idle() bool { return len(w.running)+len(w.starting)+len(w.stopping) == 0 }

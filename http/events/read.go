package events

import (
	"context"

	"github.com/rowmill/rowmill"
)

// A reading is one read of a job from the store, shared by all streams.
type reading struct {
	done    chan struct{} // closed when the other fields are set
	job     rowmill.Job
	account string
	err     error
}

// Job returns a job and its account. Between two polls it reads a job from the store once
// for all listeners. It returns rowmill.ErrNotFound if the store has no such job.
func (h *Hub) Job(ctx context.Context, id string) (job rowmill.Job, account string, err error) {
	r, mine := h.share(id)
	if mine {
		// Not the context of this listener: if this listener leaves, the others still get
		// the job.
		go h.read(context.WithoutCancel(ctx), id, r)
	}
	select {
	case <-ctx.Done():
		return rowmill.Job{}, "", ctx.Err()
	case <-r.done:
		return r.job, r.account, r.err
	}
}

// share returns the reading of a job. mine is true if the caller must do the read.
func (h *Hub) share(id string) (r *reading, mine bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if r = h.shared[id]; r != nil {
		return r, false
	}
	r = &reading{done: make(chan struct{})}
	if len(h.shared) < maxShared {
		h.shared[id] = r
	}
	return r, true
}

func (h *Hub) read(ctx context.Context, id string, r *reading) {
	ctx, cancel := context.WithTimeout(ctx, pollTimeout)
	defer cancel()
	record, err := h.cfg.Store.Get(ctx, id)
	r.job, r.account, r.err = record.Job, record.Spec.Account, err
	if err != nil { // so that the next caller reads again
		h.mu.Lock()
		if h.shared[id] == r {
			delete(h.shared, id)
		}
		h.mu.Unlock()
	}
	close(r.done)
}

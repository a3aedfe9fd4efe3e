package events

import (
	"context"

	"github.com/rowmill/rowmill"
)

// A reading is a job that is read for all who are about to tell of it.
type reading struct {
	done    chan struct{} // closed when the rest is there
	job     rowmill.Job
	account string
	err     error
}

// Job returns a job and its account, read from the store once for all listeners
// between two looks. rowmill.ErrNotFound where the store has none.
func (h *Hub) Job(ctx context.Context, id string) (job rowmill.Job, account string, err error) {
	r, mine := h.share(id)
	if mine {
		// Its own context: a listener that leaves does not fail the others.
		go h.read(context.WithoutCancel(ctx), id, r)
	}
	select {
	case <-ctx.Done():
		return rowmill.Job{}, "", ctx.Err()
	case <-r.done:
		return r.job, r.account, r.err
	}
}

// share returns the reading of a job, and whether the caller is to make it.
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
	ctx, cancel := context.WithTimeout(ctx, pollPatience)
	defer cancel()
	record, err := h.cfg.Store.Get(ctx, id)
	r.job, r.account, r.err = record.Job, record.Spec.Account, err
	if err != nil { // the next one may have more luck
		h.mu.Lock()
		if h.shared[id] == r {
			delete(h.shared, id)
		}
		h.mu.Unlock()
	}
	close(r.done)
}

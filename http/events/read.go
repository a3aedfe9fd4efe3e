package events

import (
	"context"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/internal/cache"
)

// A cachedJob is the cached result of reading a job from the store.
type cachedJob struct {
	job     rowmill.Job
	account string
}

// newJobCache returns an empty cache of jobs. The hub uses it until the next poll.
func (h *Hub) newJobCache() *cache.TTL[string, cachedJob] {
	return &cache.TTL[string, cachedJob]{Age: keepFor, Most: maxShared, Now: h.cfg.Now}
}

// ReadJob returns a job and its account. Between two polls it reads each job from the store at
// most once, for all listeners. It returns rowmill.ErrNotFound if the store has no such
// job.
func (h *Hub) ReadJob(ctx context.Context, id string) (job rowmill.Job, account string, err error) {
	h.mu.Lock()
	readings := h.readings
	h.mu.Unlock()
	r, err := readings.Get(ctx, id, func(ctx context.Context) (cachedJob, error) {
		ctx, cancel := context.WithTimeout(ctx, pollTimeout)
		defer cancel()
		record, err := h.cfg.Store.Get(ctx, id)
		return cachedJob{record.Job, record.Spec.Account}, err
	})
	return r.job, r.account, err
}

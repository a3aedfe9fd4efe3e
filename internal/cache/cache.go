// Package cache caches answers for a short time. TTL shares one answer among all
// callers that ask for the same key, so that many callers cost one computation. LRU
// is a cache of the most recently used values. The package knows nothing about the
// values.
package cache

import (
	"context"
	"errors"
	"sync"
	"time"
)

// errPanicked is the error for callers that waited for another caller's computation, if
// this computation panicked.
var errPanicked = errors.New("another request for the same answer panicked")

// A TTL is a cache that shares one answer among all callers with the same key. No
// answer is older than Age, counted from the start of its computation: a caller that
// asks Age after a change gets an answer with the change.
type TTL[K comparable, V any] struct {
	Age  time.Duration
	Most int              // largest number of cached answers; for further keys each caller computes
	Now  func() time.Time // default time.Now

	mu      sync.Mutex
	answers map[K]*cachedResult[V]
	swept   time.Time // when old answers were last removed
}

type cachedResult[V any] struct {
	begun time.Time
	done  chan struct{} // closed when value and err are set
	value V
	err   error
}

// Get returns the answer of a computation that started within the last Age, even if it
// is still running; otherwise it calls compute. The context of compute is not cancelled
// when a caller leaves, because other callers wait for the same answer. Waiting callers
// also get an error of compute, but errors are not cached. Values are shared: do not
// modify them.
func (m *TTL[K, V]) Get(ctx context.Context, key K, compute func(context.Context) (V, error)) (V, error) {
	a, starter := m.getOrStart(key)
	if starter {
		m.fill(context.WithoutCancel(ctx), key, a, compute)
		return a.value, a.err
	}
	select {
	case <-a.done:
		return a.value, a.err
	case <-ctx.Done():
		var none V
		return none, ctx.Err()
	}
}

// getOrStart returns the answer for a key. started is true if the caller must compute the
// answer with fill.
func (m *TTL[K, V]) getOrStart(key K) (a *cachedResult[V], started bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.now()
	if a = m.answers[key]; a != nil && m.isFresh(a, now) {
		return a, false
	}
	m.sweep(now)
	a = &cachedResult[V]{begun: now, done: make(chan struct{})}
	if m.answers == nil {
		m.answers = make(map[K]*cachedResult[V])
	}
	if len(m.answers) < m.Most || m.answers[key] != nil {
		m.answers[key] = a
	}
	return a, true
}

func (m *TTL[K, V]) isFresh(a *cachedResult[V], now time.Time) bool {
	age := now.Sub(a.begun)
	return 0 <= age && age < m.Age
}

// sweep removes old answers, at most once per Age unless the cache is full.
func (m *TTL[K, V]) sweep(now time.Time) {
	if age := now.Sub(m.swept); 0 <= age && age < m.Age && len(m.answers) < m.Most {
		return
	}
	m.swept = now
	for key, a := range m.answers {
		if !m.isFresh(a, now) {
			delete(m.answers, key)
		}
	}
}

// fill computes an answer and wakes the callers that wait for it.
func (m *TTL[K, V]) fill(ctx context.Context, key K, a *cachedResult[V], compute func(context.Context) (V, error)) {
	a.err = errPanicked
	defer func() {
		if a.err != nil {
			m.mu.Lock()
			if m.answers[key] == a {
				delete(m.answers, key)
			}
			m.mu.Unlock()
		}
		close(a.done)
	}()
	a.value, a.err = compute(ctx)
}

func (m *TTL[K, V]) now() time.Time {
	if m.Now == nil {
		return time.Now()
	}
	return m.Now()
}

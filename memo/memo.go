// Package memo owns answers that are shared by all who ask the same within a short
// time, so that many cost no more than one, and values that were asked for last. It knows
// nothing of what is asked.
package memo

import (
	"context"
	"errors"
	"sync"
	"time"
)

// errPanicked is what those get who waited for an answer whose making panicked.
var errPanicked = errors.New("another request that asked the same has panicked")

// A Memo shares answers by what was asked. No answer is older than Age, counted from
// when it was asked for: whoever learns of a change and asks Age later has it in the
// answer.
type Memo[K comparable, V any] struct {
	Age  time.Duration
	Most int              // answers kept at once, beyond which each asks for itself
	Now  func() time.Time // default time.Now

	mu    sync.Mutex
	kept  map[K]*answer[V]
	swept time.Time // when old answers were last forgotten
}

type answer[V any] struct {
	begun time.Time
	done  chan struct{} // closed when the rest is there
	value V
	err   error
}

// Get returns what ask returned for somebody else no longer than Age ago, or is about
// to, and otherwise calls it. Its context has no end of its own: whoever leaves does
// not fail the others. Errors are told to those who wait, and not kept. Values are
// shared: do not modify them.
func (m *Memo[K, V]) Get(ctx context.Context, key K, ask func(context.Context) (V, error)) (V, error) {
	a, mine := m.join(key)
	if mine {
		m.fill(context.WithoutCancel(ctx), key, a, ask)
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

// join returns the answer for a key, and whether the caller is to make it.
func (m *Memo[K, V]) join(key K) (a *answer[V], mine bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.now()
	if a = m.kept[key]; a != nil && m.fresh(a, now) {
		return a, false
	}
	m.sweep(now)
	a = &answer[V]{begun: now, done: make(chan struct{})}
	if m.kept == nil {
		m.kept = make(map[K]*answer[V])
	}
	if len(m.kept) < m.Most || m.kept[key] != nil {
		m.kept[key] = a
	}
	return a, true
}

func (m *Memo[K, V]) fresh(a *answer[V], now time.Time) bool {
	age := now.Sub(a.begun)
	return 0 <= age && age < m.Age
}

// sweep forgets what is too old, at most once in Age.
func (m *Memo[K, V]) sweep(now time.Time) {
	if age := now.Sub(m.swept); 0 <= age && age < m.Age && len(m.kept) < m.Most {
		return
	}
	m.swept = now
	for key, a := range m.kept {
		if !m.fresh(a, now) {
			delete(m.kept, key)
		}
	}
}

// fill makes an answer.
func (m *Memo[K, V]) fill(ctx context.Context, key K, a *answer[V], ask func(context.Context) (V, error)) {
	a.err = errPanicked
	defer func() {
		if a.err != nil {
			m.mu.Lock()
			if m.kept[key] == a {
				delete(m.kept, key)
			}
			m.mu.Unlock()
		}
		close(a.done)
	}()
	a.value, a.err = ask(ctx)
}

func (m *Memo[K, V]) now() time.Time {
	if m.Now == nil {
		return time.Now()
	}
	return m.Now()
}

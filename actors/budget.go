package actors

import "sync"

// A budget bounds the bytes of rows in memory on a node, all jobs together.
// Who wants to load rows asks first; who finishes rows takes without asking,
// since an answer that has arrived cannot be refused, and thereby delays the
// next load. It is safe for concurrent use.
type budget struct {
	limit int64

	mu      sync.Mutex
	used    int64
	waiting []waiter
}

type waiter struct {
	urgent bool
	wake   func()
}

// acquire takes n bytes if there is room and nobody waits before the caller;
// otherwise it keeps wake, which is called once when asking again makes sense.
// Urgent callers go first and have a quarter of the budget to themselves.
func (b *budget) acquire(n int64, urgent bool, wake func()) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	limit := b.limit
	if urgent {
		limit += b.limit / 4
	}
	if b.used+n <= limit || b.used == 0 {
		b.used += n
		return true
	}
	b.waiting = append(b.waiting, waiter{urgent, wake})
	return false
}

// take takes n bytes in any case; a negative n gives bytes back.
func (b *budget) take(n int64) {
	b.mu.Lock()
	b.used += n
	var woken []waiter
	if n < 0 && b.used < b.limit {
		woken, b.waiting = b.waiting, nil
	}
	b.mu.Unlock()
	for _, urgent := range []bool{true, false} {
		for _, w := range woken {
			if w.urgent == urgent {
				w.wake()
			}
		}
	}
}

// inUse returns the bytes taken.
func (b *budget) inUse() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used
}

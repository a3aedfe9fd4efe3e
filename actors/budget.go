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
	waiting []room
}

// room is for what a caller asks before it takes.
type room struct {
	share  float64 // of the budget that this purpose may fill
	urgent bool    // goes first, and has a quarter of the budget to itself
	wake   func()  // called once when asking again makes sense
}

// The shares of the two purposes: rows that wait must leave room for the
// answers of those that run, or nothing would ever be finished.
const (
	loadShare = 0.5
	runShare  = 1.0
)

// acquire takes up to n units of size bytes each and returns how many it got.
// When it got none it keeps r.wake.
func (b *budget) acquire(n int, size int64, r room) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	limit := float64(b.limit) * r.share
	if r.urgent {
		limit += float64(b.limit) / 4
	}
	if fit := (int64(limit) - b.used) / max(size, 1); fit < int64(n) {
		n = int(max(fit, 0))
	}
	if n == 0 {
		b.waiting = append(b.waiting, r)
	}
	b.used += int64(n) * size
	return n
}

// take takes n bytes in any case; a negative n gives bytes back.
func (b *budget) take(n int64) {
	b.mu.Lock()
	b.used += n
	var woken []room
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

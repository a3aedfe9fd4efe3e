package work

import (
	"sync"

	"github.com/rowmill/rowmill/actors/dispatch"
)

// A Budget bounds the bytes of rows in memory on a node, all jobs together. It
// is safe for concurrent use.
type Budget struct {
	limit int64

	mu      sync.Mutex
	used    int64
	waiting []*Memory
}

// NewBudget returns a budget of so many bytes.
func NewBudget(limit int64) *Budget { return &Budget{limit: limit} }

// InUse returns the bytes taken.
func (b *Budget) InUse() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used
}

// A Memory is what one worker takes from the budget. Who wants to load or send
// rows asks first; who finishes rows takes without asking, since an answer that
// has arrived cannot be refused, and thereby delays the next load.
type Memory struct {
	Budget *Budget
	Urgent bool   // its wishes go first, and it has a quarter of the budget more
	Wake   func() // asking again makes sense; must not block

	held int64
	asks bool // Wake is called when there is room; guarded by the budget's lock
}

// The shares of the budget that the two purposes may fill: rows that wait must
// leave room for the answers of those that run, or nothing would ever be
// finished.
const (
	loadShare = 0.5
	sendShare = 1.0
)

// acquire takes up to n units of size bytes each and returns how many it got.
// When it got none, Wake is called once there is room.
func (m *Memory) acquire(n int, size int64, share float64) int {
	b := m.Budget
	b.mu.Lock()
	defer b.mu.Unlock()
	limit := float64(b.limit) * share
	if m.Urgent {
		limit += float64(b.limit) / 4
	}
	if fit := (int64(limit) - b.used) / max(size, 1); fit < int64(n) {
		n = int(max(fit, 0))
	}
	if n == 0 && !m.asks {
		m.asks = true
		b.waiting = append(b.waiting, m)
	}
	b.used += int64(n) * size
	m.held += int64(n) * size
	return n
}

// take takes n bytes in any case; a negative n gives bytes back.
func (m *Memory) take(n int64) {
	b := m.Budget
	b.mu.Lock()
	b.used += n
	m.held += n
	var woken []*Memory
	if n < 0 && b.used < b.limit {
		woken, b.waiting = b.waiting, nil
		for _, w := range woken {
			w.asks = false
		}
	}
	b.mu.Unlock()
	for _, urgent := range []bool{true, false} {
		for _, w := range woken {
			if w.Urgent == urgent {
				w.Wake()
			}
		}
	}
}

// scarce reports whether more than a share of the budget is in use.
func (m *Memory) scarce(share float64) bool {
	return float64(m.Budget.InUse()) >= share*float64(m.Budget.limit)
}

// Free gives the memory of tasks back that are over.
func (m *Memory) Free(tasks []*dispatch.Task) {
	var bytes int64
	for _, t := range tasks {
		bytes += t.Free()
	}
	m.take(-bytes)
}

// Close gives back all that is held.
func (m *Memory) Close() { m.take(-m.held) }

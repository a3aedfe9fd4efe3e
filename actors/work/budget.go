package work

import (
	"cmp"
	"slices"
	"sync"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/actors/dispatch"
	"github.com/rowmill/rowmill/actors/fair"
)

// A Budget bounds the bytes of rows in memory on a node, all jobs together, and
// shares them between accounts: what is free goes to whoever asks, unless an
// account waits that would then have less by its weight. Since rows may be on
// their way for minutes, each account has besides its part of a quarter more, in
// any case. It is safe for concurrent use.
type Budget struct {
	limit   int64
	weights fair.Weights

	mu       sync.Mutex
	used     int64
	accounts map[string]*holding
	weight   int // of all accounts
	waiting  []*Memory
}

// A holding is what an account has of a budget.
type holding struct {
	account  string
	weight   int
	memories int
	bytes    int64
	waits    [2]int // memories that wait, by purpose
}

// NewBudget returns a budget of so many bytes for accounts of these weights.
func NewBudget(limit int64, weights fair.Weights) *Budget {
	return &Budget{limit: limit, weights: weights, accounts: make(map[string]*holding)}
}

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
	budget   *Budget
	priority rowmill.Priority // urgent memory goes first, and has a quarter of the budget more
	wake     func()           // asking again makes sense; must not block

	// All below is guarded by the budget's lock.
	account *holding
	held    int64
	waits   purpose
	asks    bool // wake is called when there is room
}

// NewMemory returns memory for a worker of a job. wake is called, and must not block, when asking again makes sense
// after it was refused: whoever is woken then calls Again.
func (b *Budget) NewMemory(account string, priority rowmill.Priority, wake func()) *Memory {
	b.mu.Lock()
	defer b.mu.Unlock()
	h := b.accounts[account]
	if h == nil {
		h = &holding{account: account, weight: b.weights.Of(account)}
		b.accounts[account] = h
		b.weight += h.weight
	}
	h.memories++
	return &Memory{budget: b, priority: priority, wake: wake, account: h, waits: nothing}
}

// A purpose is what memory is asked for. Rows that wait must leave room for the
// answers of those that run, or nothing would ever be finished.
type purpose int

const (
	nothing purpose = iota - 1
	toLoad
	toSend
)

func (p purpose) share() float64 { return [...]float64{toLoad: 0.5, toSend: 1}[p] }

// acquire takes up to n units of size bytes each and returns how many it got.
// When it got none, it waits until Again.
func (m *Memory) acquire(n int, size int64, p purpose) int {
	b := m.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	got := m.own(p) - m.account.bytes
	if !b.behind(m.account, p) {
		got = max(got, b.room(m, p)-b.used)
	}
	n = int(min(int64(n), max(got, 0)/max(size, 1)))
	if n == 0 && m.waits < p {
		m.wait(p)
	}
	b.take(m, int64(n)*size)
	return n
}

// own is what the account has in any case: its part of a quarter of the budget,
// by its weight among the accounts that have work on this node.
func (m *Memory) own(p purpose) int64 {
	return int64(p.share() * float64(m.budget.limit) / 4 * float64(m.account.weight) / float64(m.budget.weight))
}

// room is how much may be in use for a memory to get more.
func (b *Budget) room(m *Memory, p purpose) int64 {
	room := p.share() * float64(b.limit)
	if m.priority.Urgent() {
		room += float64(b.limit) / 4
	}
	return int64(room)
}

// behind reports whether an account waits for the same, or for what is needed
// first, that has less than this one.
func (b *Budget) behind(own *holding, p purpose) bool {
	for _, other := range b.accounts {
		waits := other.waits[toSend]
		if p == toLoad {
			waits += other.waits[toLoad]
		}
		if other != own && waits > 0 && other.bytes*int64(own.weight) < own.bytes*int64(other.weight) {
			return true
		}
	}
	return false
}

func (m *Memory) wait(p purpose) {
	if m.waits != nothing {
		m.account.waits[m.waits]--
	}
	if m.waits = p; p == nothing {
		return
	}
	m.account.waits[p]++
	if !m.asks {
		m.asks = true
		m.budget.waiting = append(m.budget.waiting, m)
	}
}

// Waits reports whether it was refused and has not asked again.
func (m *Memory) Waits() bool {
	m.budget.mu.Lock()
	defer m.budget.mu.Unlock()
	return m.waits != nothing
}

// Again has whoever was woken ask again. Until it has, others leave it what has
// become free.
func (m *Memory) Again(ask func()) {
	b := m.budget
	b.mu.Lock()
	before := m.waits
	m.waits = nothing // what is refused now is noted anew
	b.mu.Unlock()
	ask()
	b.mu.Lock()
	var woken []*Memory
	if before != nothing {
		m.account.waits[before]--
		if m.waits == nothing { // others may have what is left
			woken = b.wakes(m.account)
		}
	}
	b.mu.Unlock()
	wake(woken)
}

// take takes n bytes in any case; a negative n gives bytes back.
func (m *Memory) take(n int64) {
	b := m.budget
	b.mu.Lock()
	b.take(m, n)
	var woken []*Memory
	if n < 0 {
		woken = b.wakes(m.account)
	}
	b.mu.Unlock()
	wake(woken)
}

func (b *Budget) take(m *Memory, n int64) {
	b.used += n
	m.held += n
	m.account.bytes += n
}

// wakes returns who should ask again, now that an account has less: the lowest number
// of a priority first, within that the accounts that have least.
func (b *Budget) wakes(freed *holding) (woken []*Memory) {
	b.waiting = slices.DeleteFunc(b.waiting, func(m *Memory) bool {
		if b.used >= b.room(m, m.waits) && (m.account != freed || m.account.bytes >= m.own(toSend)) {
			return false
		}
		m.asks = false
		woken = append(woken, m)
		return true
	})
	slices.SortStableFunc(woken, func(a, b *Memory) int {
		return cmp.Or(
			cmp.Compare(a.priority, b.priority),
			cmp.Compare(a.account.bytes*int64(b.account.weight), b.account.bytes*int64(a.account.weight)),
		)
	})
	return woken
}

func wake(woken []*Memory) {
	for _, m := range woken {
		m.wake()
	}
}

// scarce reports whether more than a share of the budget is in use.
func (m *Memory) scarce(share float64) bool {
	return float64(m.budget.InUse()) >= share*float64(m.budget.limit)
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
func (m *Memory) Close() {
	b := m.budget
	b.mu.Lock()
	b.take(m, -m.held)
	m.wait(nothing)
	b.waiting = slices.DeleteFunc(b.waiting, func(other *Memory) bool { return other == m })
	if m.account.memories--; m.account.memories == 0 {
		delete(b.accounts, m.account.account)
		b.weight -= m.account.weight
	}
	woken := b.wakes(m.account)
	b.mu.Unlock()
	wake(woken)
}

package work

import (
	"cmp"
	"slices"
	"sync"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/actors/dispatch"
	"github.com/rowmill/rowmill/actors/fair"
)

// A MemoryBudget limits the bytes of rows and answers in memory on a node, over all jobs, and
// divides them among accounts. Free bytes go to the first worker that asks, unless an
// account waits that has fewer bytes in proportion to its weight. Rows may be in flight
// for minutes, so a further quarter of the budget is reserved: each account may always
// use its share of this quarter. A MemoryBudget is safe for concurrent use.
type MemoryBudget struct {
	limit   int64
	weights fair.Weights

	mu       sync.Mutex
	used     int64 // bytes in use
	accounts map[string]*accountUsage
	weight   int             // sum of the weights of all accounts
	waiting  []*WorkerMemory // memories whose last request was refused
}

// An accountUsage is the part of a MemoryBudget that one account uses.
type accountUsage struct {
	account  string
	weight   int
	memories int    // number of memories of the account
	bytes    int64  // bytes in use
	waits    [2]int // by purpose: number of memories whose last request was refused
}

// NewMemoryBudget returns a budget of limit bytes for accounts with these weights.
func NewMemoryBudget(limit int64, weights fair.Weights) *MemoryBudget {
	return &MemoryBudget{limit: limit, weights: weights, accounts: make(map[string]*accountUsage)}
}

// InUse returns the bytes in use.
func (b *MemoryBudget) InUse() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used
}

// A WorkerMemory is the part of the MemoryBudget that one worker uses. The worker asks
// before it loads or sends rows. An answer that has arrived cannot be refused, so its bytes
// are taken without asking, which delays the next load.
type WorkerMemory struct {
	budget   *MemoryBudget
	priority rowmill.Priority // urgent work is served first, and may use a further quarter of the budget
	wake     func()           // called when the worker should ask again; must not block

	// MemoryBudget.mu guards the fields below.
	account *accountUsage
	held    int64         // bytes in use by this WorkerMemory
	waits   memoryPurpose // purpose of the last request if it was refused; otherwise nothing
	asks    bool          // the WorkerMemory is in MemoryBudget.waiting
}

// NewWorkerMemory returns the WorkerMemory of a worker of a job. After a refusal, wake is
// called when the worker should ask again. wake must not block; it makes the worker call
// RepeatRequests.
func (b *MemoryBudget) NewWorkerMemory(account string, priority rowmill.Priority, wake func()) *WorkerMemory {
	b.mu.Lock()
	defer b.mu.Unlock()
	h := b.accounts[account]
	if h == nil {
		h = &accountUsage{account: account, weight: b.weights.Of(account)}
		b.accounts[account] = h
		b.weight += h.weight
	}
	h.memories++
	return &WorkerMemory{budget: b, priority: priority, wake: wake, account: h, waits: nothing}
}

// A memoryPurpose is the reason for a request for memory: to load rows, or to send rows.
// Loaded rows must leave room for the answers of running rows, or no row could finish.
type memoryPurpose int

const (
	nothing memoryPurpose = iota - 1
	toLoad
	toSend
)

// share returns the share of the budget that may be in use before requests for a
// purpose are refused.
func (p memoryPurpose) share() float64 { return [...]float64{toLoad: 0.5, toSend: 1}[p] }

// acquire takes up to n units of size bytes, and returns the number of units that it
// took. After 0 units, the WorkerMemory waits until RepeatRequests is called.
func (m *WorkerMemory) acquire(n int, size int64, p memoryPurpose) int {
	b := m.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	got := m.guaranteedBytes(p) - m.account.bytes
	if !b.mustYield(m.account, p) {
		got = max(got, b.usageLimit(m, p)-b.used)
	}
	n = int(min(int64(n), max(got, 0)/max(size, 1)))
	if n == 0 && m.waits < p {
		m.wait(p)
	}
	b.addUsage(m, int64(n)*size)
	return n
}

// guaranteedBytes returns the bytes that the account may always use for a purpose: its share
// of a quarter of the budget, by its weight among the accounts with work on this node.
func (m *WorkerMemory) guaranteedBytes(p memoryPurpose) int64 {
	return int64(p.share() * float64(m.budget.limit) / 4 * float64(m.account.weight) / float64(m.budget.weight))
}

// usageLimit returns how many bytes may be in use over all accounts before requests of m for
// a purpose are refused.
func (b *MemoryBudget) usageLimit(m *WorkerMemory, p memoryPurpose) int64 {
	room := p.share() * float64(b.limit)
	if m.priority.IsUrgent() {
		room += float64(b.limit) / 4
	}
	return int64(room)
}

// mustYield reports whether another account should get free bytes first: it has fewer
// bytes in proportion to its weight and waits to send, or waits to load if p is toLoad.
func (b *MemoryBudget) mustYield(asking *accountUsage, p memoryPurpose) bool {
	for _, other := range b.accounts {
		waits := other.waits[toSend]
		if p == toLoad {
			waits += other.waits[toLoad]
		}
		if other != asking && waits > 0 && other.bytes*int64(asking.weight) < asking.bytes*int64(other.weight) {
			return true
		}
	}
	return false
}

// wait sets the purpose for which the WorkerMemory waits; nothing ends the wait.
func (m *WorkerMemory) wait(p memoryPurpose) {
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

// IsWaiting reports whether the last request was refused, and was not repeated yet.
func (m *WorkerMemory) IsWaiting() bool {
	m.budget.mu.Lock()
	defer m.budget.mu.Unlock()
	return m.waits != nothing
}

// RepeatRequests calls ask, which repeats the refused requests. Until ask returns, the
// WorkerMemory still counts as waiting, so that other accounts do not take the freed bytes
// first.
func (m *WorkerMemory) RepeatRequests(ask func()) {
	b := m.budget
	b.mu.Lock()
	before := m.waits
	m.waits = nothing // a new refusal sets waits again
	b.mu.Unlock()
	ask()
	b.mu.Lock()
	var woken []*WorkerMemory
	if before != nothing {
		m.account.waits[before]--
		if m.waits == nothing { // other memories may get the remaining bytes
			woken = b.removeWakeable(m.account)
		}
	}
	b.mu.Unlock()
	wake(woken)
}

// adjustBytes takes n bytes without asking. A negative n gives bytes back.
func (m *WorkerMemory) adjustBytes(n int64) {
	b := m.budget
	b.mu.Lock()
	b.addUsage(m, n)
	var woken []*WorkerMemory
	if n < 0 {
		woken = b.removeWakeable(m.account)
	}
	b.mu.Unlock()
	wake(woken)
}

// addUsage adds n bytes to the bytes that m uses. The caller must hold the lock.
func (b *MemoryBudget) addUsage(m *WorkerMemory, n int64) {
	b.used += n
	m.held += n
	m.account.bytes += n
}

// removeWakeable removes from waiting the memories that should ask again after the account freed
// has given back bytes, and returns them. They are sorted by priority, the lowest
// number first, and then by the bytes of the account in proportion to its weight, the
// fewest first.
func (b *MemoryBudget) removeWakeable(freed *accountUsage) (woken []*WorkerMemory) {
	b.waiting = slices.DeleteFunc(b.waiting, func(m *WorkerMemory) bool {
		if b.used >= b.usageLimit(m, m.waits) && (m.account != freed || m.account.bytes >= m.guaranteedBytes(toSend)) {
			return false
		}
		m.asks = false
		woken = append(woken, m)
		return true
	})
	slices.SortStableFunc(woken, func(a, b *WorkerMemory) int {
		return cmp.Or(
			cmp.Compare(a.priority, b.priority),
			cmp.Compare(a.account.bytes*int64(b.account.weight), b.account.bytes*int64(a.account.weight)),
		)
	})
	return woken
}

// wake calls the function wake of each WorkerMemory.
func wake(woken []*WorkerMemory) {
	for _, m := range woken {
		m.wake()
	}
}

// isScarce reports whether at least this share of the budget is in use.
func (m *WorkerMemory) isScarce(share float64) bool {
	return float64(m.budget.InUse()) >= share*float64(m.budget.limit)
}

// Free frees finished tasks and gives back their bytes.
func (m *WorkerMemory) Free(tasks []*dispatch.RowTask) {
	var bytes int64
	for _, t := range tasks {
		bytes += t.Free()
	}
	m.adjustBytes(-bytes)
}

// Close gives back all bytes of the WorkerMemory. The WorkerMemory must not be used
// afterwards.
func (m *WorkerMemory) Close() {
	b := m.budget
	b.mu.Lock()
	b.addUsage(m, -m.held)
	m.wait(nothing)
	b.waiting = slices.DeleteFunc(b.waiting, func(other *WorkerMemory) bool { return other == m })
	if m.account.memories--; m.account.memories == 0 {
		delete(b.accounts, m.account.account)
		b.weight -= m.account.weight
	}
	woken := b.removeWakeable(m.account)
	b.mu.Unlock()
	wake(woken)
}

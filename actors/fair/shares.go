package fair

import (
	"slices"
	"time"

	"github.com/rowmill/rowmill"
)

// Config sets how many places there are and how they are divided.
type Config struct {
	Places int // number of ordinary places, for all accounts together
	// Kept is the number of kept places, in addition to Places. They are for accounts
	// that cannot get an ordinary place. Each account has at most one kept place. Half of
	// the kept places are only for urgent jobs.
	Kept    int
	Weights Weights
	// Patience is how long an account counts as waiting after it was refused a place:
	// longer than the time until it asks again.
	Patience time.Duration
}

// Weights has the accounts' shares of a resource, by account, in proportion to each
// other. An account without an entry has weight 1.
type Weights map[string]int

// Of returns the weight of an account, at least 1.
func (w Weights) Of(account string) int { return max(1, w[account]) }

// SlotPool gives out places that accounts use for long and that cannot be taken back. A
// caller gets a place or asks again later. A free place goes to the first account that
// asks, unless a waiting account would then have fewer places in proportion to its
// weight. Accounts may use their places for days, so some places are kept for accounts
// that come later.
//
// Only one goroutine at a time may use a SlotPool.
type SlotPool struct {
	Config
	held    map[string]int       // by account: number of places in use, including kept places
	total   int                  // number of all places in use
	kept    []reservedSlot       // kept places in use, the oldest first
	waiting map[string]time.Time // by account: until when it counts as waiting
}

// A reservedSlot is a kept place in use.
type reservedSlot struct {
	account string
	urgent  bool // the job in the place is urgent
}

// NewSlotPool returns a SlotPool in which all places are free.
func NewSlotPool(c Config) *SlotPool {
	return &SlotPool{Config: c, held: make(map[string]int), waiting: make(map[string]time.Time)}
}

// Held returns the number of places in use.
func (s *SlotPool) Held() int { return s.total }

// Free returns how many more places can be given out, ordinary and kept places
// together.
func (s *SlotPool) Free() int { return max(0, s.Places-s.ordinaryInUse()) + s.Kept - len(s.kept) }

// ordinaryInUse returns the number of ordinary places in use.
func (s *SlotPool) ordinaryInUse() int { return s.total - len(s.kept) }

// Take gives a place to a job of an account and returns true. Otherwise it returns
// false and records that the account waits.
func (s *SlotPool) Take(account string, p rowmill.Priority, now time.Time) bool {
	switch {
	case s.ordinaryInUse() < s.Places && !s.mustYield(account, now):
	case s.mayKeep(account, p.IsUrgent()):
		s.kept = append(s.kept, reservedSlot{account, p.IsUrgent()})
	default:
		s.waiting[account] = now.Add(s.Patience)
		return false
	}
	delete(s.waiting, account)
	s.held[account]++
	s.total++
	return true
}

// mustYield reports whether a waiting account should get the next place before this
// account: if each of the two got one more place, the waiting account would have fewer
// places in proportion to its weight.
func (s *SlotPool) mustYield(account string, now time.Time) bool {
	for other, until := range s.waiting {
		if now.After(until) {
			delete(s.waiting, other)
			continue
		}
		if other != account && (s.held[other]+1)*s.Weights.Of(account) < (s.held[account]+1)*s.Weights.Of(other) {
			return true
		}
	}
	return false
}

// mayKeep reports whether an account may get a kept place for a job: a kept place is
// free, the account has no kept place yet, and the job is urgent or the account has no
// place.
func (s *SlotPool) mayKeep(account string, urgent bool) bool {
	others := 0
	for _, k := range s.kept {
		if k.account == account {
			return false
		}
		if !k.urgent {
			others++
		}
	}
	return len(s.kept) < s.Kept && (urgent || s.held[account] == 0 && others < s.Kept/2)
}

// TakeAnyway counts a place for work that already runs, even if no place is free.
func (s *SlotPool) TakeAnyway(account string) {
	s.held[account]++
	s.total++
}

// Leave frees a place of an account. If the account has a kept place, that place
// becomes free. Otherwise an ordinary place becomes free, and the oldest work in a kept
// place moves to it.
func (s *SlotPool) Leave(account string) {
	s.total--
	if s.held[account]--; s.held[account] == 0 {
		delete(s.held, account)
	}
	if own := slices.IndexFunc(s.kept, func(k reservedSlot) bool { return k.account == account }); own >= 0 {
		s.kept = slices.Delete(s.kept, own, own+1)
	} else if len(s.kept) > 0 {
		s.kept = slices.Delete(s.kept, 0, 1)
	}
}

// Waits returns, for each waiting account, the number of places that the account has
// now. A place is for one worker.
func (s *SlotPool) Waits() map[string]int {
	waits := make(map[string]int, len(s.waiting))
	for account := range s.waiting {
		waits[account] = s.held[account]
	}
	return waits
}

// CountWithoutPlace returns the number of waiting accounts that have no place at all.
func (s *SlotPool) CountWithoutPlace() (accounts int) {
	for account := range s.waiting {
		if s.held[account] == 0 {
			accounts++
		}
	}
	return accounts
}

// ForgetWaiting removes all accounts from the waiting list. An account that still waits soon
// asks again.
func (s *SlotPool) ForgetWaiting() { clear(s.waiting) }

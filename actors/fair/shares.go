package fair

import (
	"slices"
	"time"

	"github.com/rowmill/rowmill"
)

// Config sets how places are shared.
type Config struct {
	Places int // for all accounts
	// Kept is the number of kept places, in addition to Places. They are for accounts
	// that cannot get an ordinary place. Each account has at most one kept place. Half of
	// the kept places are only for urgent jobs.
	Kept    int
	Weights Weights
	// Patience is how long an account counts as waiting after it was refused a place:
	// longer than the time until it asks again.
	Patience time.Duration
}

// Weights sets the accounts' shares of a resource, in proportion to each other. An
// account without an entry has weight 1.
type Weights map[string]int

// Of returns the weight of an account, at least 1.
func (w Weights) Of(account string) int { return max(1, w[account]) }

// Shares gives out places that accounts hold for long and that cannot be taken back. A
// caller gets a place or asks again later. A free place goes to the first account that
// asks, unless a waiting account would then have fewer places in proportion to its
// weight. Accounts may hold their places for days, so some places are kept for accounts
// that come later.
//
// Only one goroutine at a time may use a Shares.
type Shares struct {
	Config
	held    map[string]int       // by account: number of places, including kept places
	total   int                  // number of all held places
	kept    []keptPlace          // kept places in use, the oldest first
	waiting map[string]time.Time // by account: until when it counts as waiting
}

type keptPlace struct {
	account string
	urgent  bool
}

// NewShares returns a Shares with all places free.
func NewShares(c Config) *Shares {
	return &Shares{Config: c, held: make(map[string]int), waiting: make(map[string]time.Time)}
}

// Held returns the number of places in use.
func (s *Shares) Held() int { return s.total }

// Free returns the largest number of places that can still be given out.
func (s *Shares) Free() int { return max(0, s.Places-s.general()) + s.Kept - len(s.kept) }

// general returns the number of ordinary places in use: all except kept places.
func (s *Shares) general() int { return s.total - len(s.kept) }

// Take gives a place to a job of an account, or notes that the account waits.
func (s *Shares) Take(account string, p rowmill.Priority, now time.Time) bool {
	switch {
	case s.general() < s.Places && !s.behind(account, now):
	case s.mayKeep(account, p.Urgent()):
		s.kept = append(s.kept, keptPlace{account, p.Urgent()})
	default:
		s.waiting[account] = now.Add(s.Patience)
		return false
	}
	delete(s.waiting, account)
	s.held[account]++
	s.total++
	return true
}

// behind reports whether another account waits that would have fewer places than this
// account, in proportion to its weight, if each account got one more place.
func (s *Shares) behind(account string, now time.Time) bool {
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

// mayKeep reports whether an account may have a kept place: it has no kept place yet,
// and its job is urgent or it has no place at all.
func (s *Shares) mayKeep(account string, urgent bool) bool {
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

// Hold takes a place for work that already runs, even if no place is free.
func (s *Shares) Hold(account string) {
	s.held[account]++
	s.total++
}

// Leave frees a place of an account: its kept place, if it has one. If the account leaves
// an ordinary place, the oldest work in a kept place moves to the ordinary place.
func (s *Shares) Leave(account string) {
	s.total--
	if s.held[account]--; s.held[account] == 0 {
		delete(s.held, account)
	}
	if own := slices.IndexFunc(s.kept, func(k keptPlace) bool { return k.account == account }); own >= 0 {
		s.kept = slices.Delete(s.kept, own, own+1)
	} else if len(s.kept) > 0 {
		s.kept = slices.Delete(s.kept, 0, 1)
	}
}

// Waits returns the waiting accounts, and the number of places that each has.
func (s *Shares) Waits() map[string]int {
	waits := make(map[string]int, len(s.waiting))
	for account := range s.waiting {
		waits[account] = s.held[account]
	}
	return waits
}

// Shut returns the number of waiting accounts that have no place.
func (s *Shares) Shut() (accounts int) {
	for account := range s.waiting {
		if s.held[account] == 0 {
			accounts++
		}
	}
	return accounts
}

// Forget removes all accounts from the waiting list: an account that still waits will
// soon ask again.
func (s *Shares) Forget() { clear(s.waiting) }

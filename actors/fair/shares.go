package fair

import (
	"slices"
	"time"

	"github.com/rowmill/rowmill"
)

// Config is how places are shared.
type Config struct {
	Places int // for everybody
	// Kept are further places, for accounts to which nothing else is left: each
	// has one of them at most. Half are for urgent jobs alone.
	Kept    int
	Weights Weights
	// Patience is how long an account counts as waiting that was given no place:
	// longer than it takes to ask again.
	Patience time.Duration
}

// Weights are what accounts are to have of a resource beside each other. One that
// is not named has 1.
type Weights map[string]int

// Of is the weight of an account, at least 1.
func (w Weights) Of(account string) int { return max(1, w[account]) }

// Shares gives out places that are held for long and cannot be taken back. Who
// asks gets one or asks again. A free place goes to anybody, unless an account
// waits that would then have less of them by its weight. Since those that have
// theirs may keep them for days, some are kept for accounts that come later.
//
// It is for one goroutine.
type Shares struct {
	Config
	held    map[string]int       // by account, kept places included
	total   int                  // of them
	kept    []keptPlace          // that are taken, the first first
	waiting map[string]time.Time // until when an account counts as waiting
}

type keptPlace struct {
	account string
	urgent  bool
}

// NewShares returns places that are all free.
func NewShares(c Config) *Shares {
	return &Shares{Config: c, held: make(map[string]int), waiting: make(map[string]time.Time)}
}

// Held is how many places are taken.
func (s *Shares) Held() int { return s.total }

// Free is how many places may be given at most.
func (s *Shares) Free() int { return max(0, s.Places-s.general()) + s.Kept - len(s.kept) }

// general is how many of the places for everybody are taken.
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

// behind reports whether an account waits that has less than this one would have
// with one place more.
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

// mayKeep reports whether an account may have a kept place: one whose work is
// urgent, or that has nothing.
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

// Hold takes a place for work that is there already, also where none is free.
func (s *Shares) Hold(account string) {
	s.held[account]++
	s.total++
}

// Leave gives a place of an account back. What is in a kept place moves into one
// for everybody as soon as there is one.
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

// Waits is how many places each account has that waits for another.
func (s *Shares) Waits() map[string]int {
	waits := make(map[string]int, len(s.waiting))
	for account := range s.waiting {
		waits[account] = s.held[account]
	}
	return waits
}

// Shut reports how many accounts wait that have no place at all.
func (s *Shares) Shut() (accounts int) {
	for account := range s.waiting {
		if s.held[account] == 0 {
			accounts++
		}
	}
	return accounts
}

// Forget takes no account for waiting any more: all that wait are about to ask.
func (s *Shares) Forget() { clear(s.waiting) }

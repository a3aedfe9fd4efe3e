package nodes

import (
	"sync"
	"time"
)

// Silences are the nodes that were asked and do not answer. One that is busy
// answers late, and not everything: that is no news. The zero value is ready, and
// safe for concurrent use.
type Silences struct {
	mu     sync.Mutex
	silent map[string]*silence // by address
}

// A silence is how long a node has answered nothing that it was asked.
type silence struct {
	since, last time.Time
	told        bool
}

// silenceMatters is how long a node answers nothing before that is news: a
// request waits for half as long, and a node sends several a second of each job.
const silenceMatters = 3 * time.Second

// Answered notes that a node has answered.
func (s *Silences) Answered(address string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.silent, address)
}

// Unanswered notes that a node did not, and reports whether that is news: once
// for each silence. gone says that nobody listens there.
func (s *Silences) Unanswered(address string, gone bool, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for other, was := range s.silent {
		if now.Sub(was.last) > time.Minute { // nobody asks it any more
			delete(s.silent, other)
		}
	}
	was := s.silent[address]
	if was == nil {
		was = &silence{since: now}
		if s.silent == nil {
			s.silent = make(map[string]*silence)
		}
		s.silent[address] = was
	}
	was.last = now
	if was.told || !gone && now.Sub(was.since) < silenceMatters {
		return false
	}
	was.told = true
	return true
}

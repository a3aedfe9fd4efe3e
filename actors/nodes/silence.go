package nodes

import (
	"sync"
	"time"
)

// SilenceTracker tracks the nodes that do not answer requests, so that long silences are
// logged. A busy node answers late and leaves some requests unanswered; this alone is
// not reported. The zero value is ready to use. It is safe for concurrent use.
type SilenceTracker struct {
	mu     sync.Mutex
	silent map[string]*silence // by address
}

// A silence is the time for which a node has answered no request.
type silence struct {
	since, last time.Time // times of the first and the last request without an answer
	reported    bool      // RecordUnanswered has returned true for this silence
}

// minReportedSilence is how long a node must be silent before the silence is reported:
// twice the timeout of a request. A node gets several requests per second for each job.
const minReportedSilence = 3 * time.Second

// RecordAnswer records that a node has answered, which ends its silence.
func (s *SilenceTracker) RecordAnswer(address string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.silent, address)
}

// RecordUnanswered records a request to which a node did not answer. It returns true once in
// each silence: the caller then logs the silence. gone means that the node refuses
// connections.
func (s *SilenceTracker) RecordUnanswered(address string, gone bool, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for other, was := range s.silent {
		if now.Sub(was.last) > time.Minute { // this node no longer sends requests to the other node
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
	if was.reported || !gone && now.Sub(was.since) < minReportedSilence {
		return false
	}
	was.reported = true
	return true
}

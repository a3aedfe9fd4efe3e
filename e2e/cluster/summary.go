package cluster

import (
	"fmt"
	"time"
)

// A Summary sums up trials.
type Summary struct {
	trials, failures    int
	strikes             map[string]int // by fault
	jobs, rows          int            // jobs: of the neighbour
	asked, killed, away int            // requests; failures at killed nodes; failures while something was unavailable
	reruns              int
	takeover            time.Duration // longest
}

// Add adds a trial.
func (s *Summary) Add(o Outcome) {
	if s.strikes == nil {
		s.strikes = map[string]int{}
	}
	for _, fault := range o.Faults {
		s.strikes[fault]++
	}
	s.trials++
	s.jobs += o.Beside
	s.rows += o.Rows
	s.asked += o.Asked.Asked
	s.killed += o.Asked.Killed
	s.away += o.Asked.Away
	s.reruns += o.Reruns
	s.takeover = max(s.takeover, o.Takeover)
	if len(o.Wrongs) > 0 {
		s.failures++
	}
}

// String returns the sums as sentences.
func (s *Summary) String() string {
	strikes := 0
	for _, n := range s.strikes {
		strikes += n
	}
	return fmt.Sprintf("%d trials with %d strikes of %d faults: %d rows, %d of them again, and %d small jobs of another account. "+
		"The longest takeover took %.1f s. Of %d requests %d failed at killed nodes, and %d while something they need was away. %d trials failed.",
		s.trials, strikes, len(s.strikes), s.rows, s.reruns, s.jobs, s.takeover.Seconds(), s.asked, s.killed, s.away, s.failures)
}

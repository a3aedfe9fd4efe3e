package batching

import (
	"fmt"
	"time"
)

// Result says what the engines did in a simulation.
type Result struct {
	Makespan time.Duration // time until the last row has finished
	Stats                  // sums over all engines
}

// Simulate runs n engines in virtual time until no rows are left. When an engine
// has fewer than maxInFlight requests, Simulate calls next for its next request. next
// returns nil if it has no request for this engine. The calls of next are in the order of
// virtual time; at the start the engines take turns. The policy under test is the order in
// which next returns rows.
func Simulate(c Config, n int, next func(engine int) *Request, maxInFlight int) (Result, error) {
	if n < 1 || maxInFlight < 1 {
		return Result{}, fmt.Errorf("simulate: %d engines with a window of %d rows: at least 1 of each is needed", n, maxInFlight)
	}
	type station struct {
		engine   *Engine
		now      time.Duration
		inFlight int
		over     bool
	}
	stations := make([]station, n)
	give := func(i int) (more bool, err error) {
		s := &stations[i]
		r := next(i)
		if r == nil {
			return false, nil
		}
		s.inFlight++
		if err := s.engine.Add(s.now, r); err != nil {
			return false, fmt.Errorf("simulate: %w", err)
		}
		return true, nil
	}
	for i := range stations {
		own := c
		own.Seed += int64(i)
		engine, err := New(own)
		if err != nil {
			return Result{}, fmt.Errorf("simulate: %w", err)
		}
		stations[i].engine = engine
	}
	for range maxInFlight {
		for i := range stations {
			if _, err := give(i); err != nil {
				return Result{}, err
			}
		}
	}
	result := Result{}
	for {
		i := -1 // the engine whose step ends first
		for j := range stations {
			if !stations[j].over && (i < 0 || stations[j].now < stations[i].now) {
				i = j
			}
		}
		if i < 0 {
			break
		}
		s := &stations[i]
		for s.inFlight < maxInFlight {
			more, err := give(i)
			if err != nil {
				return Result{}, err
			}
			if !more {
				break
			}
		}
		took, finished := s.engine.Step(s.now)
		s.now += took
		s.inFlight -= len(finished)
		s.over = took == 0
		result.Makespan = max(result.Makespan, s.now)
	}
	for i := range stations {
		result.add(stations[i].engine.Stats())
	}
	return result, nil
}

func (s *Stats) add(o Stats) {
	s.Steps += o.Steps
	s.Finished += o.Finished
	s.Computed += o.Computed
	s.Cached += o.Cached
	s.Generated += o.Generated
	s.Preemptions += o.Preemptions
	s.Busy += o.Busy
}

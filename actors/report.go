package actors

import (
	"time"

	"github.com/rowmill/rowmill/actors/assign"
)

// A report is what a worker tells its owner beside the rows it has, and what it has
// told. It knows no actors.
type report struct {
	waits    lasting
	warnings []string
	refused  map[string]string // by engine: why it cannot run the job
	fault    *assign.Fault     // the first

	heard    time.Time // when the owner last was
	asked    bool      // the owner knows that there is room
	had      int       // rows that were ready then: with half of them it is told again
	hungry   bool      // there is nothing to do
	saidLeft bool      // the owner was told at once that nothing is left
}

func newReport(now time.Time) report { return report{refused: make(map[string]string), heard: now} }

// asks reports whether the owner is to hear at once that the worker wants rows, of
// which so many are ready, or that it has nothing to do.
func (r *report) asks(wants, hungry bool, ready int) (tell bool) {
	tell = wants && (!r.asked || ready < r.had && 2*ready <= r.had) || hungry && !r.hungry
	if tell {
		r.asked, r.had = true, ready
	}
	r.hungry = hungry
	return tell
}

// leaves reports whether the owner is to hear at once of a worker that drains: that it
// gives rows back, or that nothing is left. The owner answers each heartbeat, so that
// more of them would never end.
func (r *report) leaves(back int, left bool) (tell bool) {
	tell = back > 0 || left && !r.saidLeft
	if tell {
		r.saidLeft = left
	}
	return tell
}

// fail takes in a fault, and reports whether it is the first.
func (r *report) fail(f *assign.Fault) (first bool) {
	if first = r.fault == nil; first {
		r.fault = f
	}
	return first
}

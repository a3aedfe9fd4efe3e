package actors

import (
	"time"

	"github.com/rowmill/rowmill/actors/assign"
)

// A report holds the parts of a worker's heartbeat beside its rows, and which of
// them the owner has. It knows no actors.
type report struct {
	waits    lastingReason
	warnings []string
	refused  map[string]string // by engine: why it cannot run the job
	fault    *assign.Fault     // the first one

	heard    time.Time // when the owner last sent a message
	asked    bool      // the owner knows that there is room
	had      int       // rows that were ready at that time; at half as many the worker asks again
	hungry   bool      // the worker has nothing to do
	saidLeft bool      // the owner got a heartbeat at once that nothing is left
}

func newReport(now time.Time) report { return report{refused: make(map[string]string), heard: now} }

// asks reports whether to send a heartbeat at once: the worker wants rows, or has
// nothing to do. ready is how many rows it has ready.
func (r *report) asks(wants, hungry bool, ready int) (tell bool) {
	tell = wants && (!r.asked || ready < r.had && 2*ready <= r.had) || hungry && !r.hungry
	if tell {
		r.asked, r.had = true, ready
	}
	r.hungry = hungry
	return tell
}

// leaves reports whether a draining worker must send a heartbeat at once: when it
// gives rows back, and once when it has nothing left. After that it sends none,
// because the owner answers each heartbeat and the two would never stop.
func (r *report) leaves(back int, left bool) (tell bool) {
	tell = back > 0 || left && !r.saidLeft
	if tell {
		r.saidLeft = left
	}
	return tell
}

// fail notes a fault, and reports whether it is the first.
func (r *report) fail(f *assign.Fault) (first bool) {
	if first = r.fault == nil; first {
		r.fault = f
	}
	return first
}

package actors

import (
	"time"

	"github.com/rowmill/rowmill/actors/assign"
)

// A report holds the parts of a worker's heartbeats that are not rows, and notes which parts
// the owner knows. It knows no actors.
type report struct {
	waits    lastingReason // why other jobs make the worker wait
	warnings []string
	refused  map[string]string // by engine: why it cannot run the job
	fault    *assign.Fault     // the first fault

	heard    time.Time // when the owner last sent a message
	asked    bool      // the owner knows that the worker has room for rows
	had      int       // how many rows were ready then; at half as many the worker asks again
	hungry   bool      // the worker has nothing to do
	saidLeft bool      // a heartbeat was sent at once because nothing was left
}

func newReport(now time.Time) report { return report{refused: make(map[string]string), heard: now} }

// shouldAsk reports whether to send a heartbeat at once: the worker wants rows, or has
// nothing to do. ready is how many rows are ready to be sent.
func (r *report) shouldAsk(wants, hungry bool, ready int) (tell bool) {
	tell = wants && (!r.asked || ready < r.had && 2*ready <= r.had) || hungry && !r.hungry
	if tell {
		r.asked, r.had = true, ready
	}
	r.hungry = hungry
	return tell
}

// shouldTellDrain reports whether a draining worker must send a heartbeat at once: when
// it gives rows back, and once when it has nothing left. After that it sends none at
// once: the owner answers each heartbeat, so the two would never stop.
func (r *report) shouldTellDrain(back int, left bool) (tell bool) {
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

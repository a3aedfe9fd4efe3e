package actors

import (
	"time"

	"github.com/rowmill/rowmill/actors/assign"
)

// A heartbeatState holds the contents of a worker's heartbeats except its rows, and tracks
// which of them the owner knows. It knows no actors.
type heartbeatState struct {
	waits    lastingWaitReason // why the worker waits for other jobs
	warnings []string
	servers  []string          // descriptions of the servers that the worker has used
	refused  map[string]string // by engine name: why the engine cannot run the job
	fault    *assign.Fault     // the worker's first fault; nil if it has none

	heard          time.Time // when the last message of the owner arrived
	asked          bool      // the owner knows that the worker has room for rows
	readyWhenAsked int       // rows that were ready when the worker last asked; it asks again at half as many
	hungry         bool      // the worker has no rows for engines that have room
	saidLeft       bool      // an extra heartbeat has told the owner that nothing is left
}

func newHeartbeatState(now time.Time) heartbeatState {
	return heartbeatState{refused: make(map[string]string), heard: now}
}

// shouldAsk reports whether the worker should send a heartbeat at once, because it
// wants rows or has nothing to do. ready is how many rows are ready to be sent.
func (r *heartbeatState) shouldAsk(wants, hungry bool, ready int) (tell bool) {
	tell = wants && (!r.asked || ready < r.readyWhenAsked && 2*ready <= r.readyWhenAsked) || hungry && !r.hungry
	if tell {
		r.asked, r.readyWhenAsked = true, ready
	}
	r.hungry = hungry
	return tell
}

// shouldTellDrain reports whether a draining worker must send a heartbeat at once: when
// it gives back rows, and once when it has nothing left. More such heartbeats would
// never end, because the owner answers each one and the answer would cause the next.
func (r *heartbeatState) shouldTellDrain(returnedRows int, nothingLeft bool) (tell bool) {
	tell = returnedRows > 0 || nothingLeft && !r.saidLeft
	if tell {
		r.saidLeft = nothingLeft
	}
	return tell
}

// recordFault stores a fault of the worker, if it is the first one, and reports whether it is.
func (r *heartbeatState) recordFault(f *assign.Fault) (first bool) {
	if first = r.fault == nil; first {
		r.fault = f
	}
	return first
}

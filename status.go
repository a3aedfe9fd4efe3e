package rowmill

import (
	"fmt"
	"slices"
)

// Status is the state of a job.
//
//	pending ─► submitted ─► starting ─► running ─► succeeded
//	   │           │            │           │
//	   └───────────┴────────────┴───────────┴────► failed | cancelled
type Status string

// The states, in the order in which a job passes them. StatusPaused and StatusUnknown are no
// states of a job: lists filter and count paused jobs by StatusPaused, and the status endpoint
// returns StatusUnknown for a job that does not exist.
const (
	StatusPending   Status = "pending"   // the record is durable, no work has begun
	StatusSubmitted Status = "submitted" // a node owns the job
	StatusStarting  Status = "starting"  // the owner reads the input, checks quotas or waits for an engine
	StatusRunning   Status = "running"   // the first row was dispatched
	StatusSucceeded Status = "succeeded"
	StatusFailed    Status = "failed"
	StatusCancelled Status = "cancelled"
	StatusPaused    Status = "paused"
	StatusUnknown   Status = "unknown"
)

// transitions lists, for each state, the states that may follow. No other code decides
// this.
var transitions = map[Status][]Status{
	StatusPending:   {StatusSubmitted, StatusFailed, StatusCancelled},
	StatusSubmitted: {StatusStarting, StatusFailed, StatusCancelled},
	StatusStarting:  {StatusRunning, StatusFailed, StatusCancelled},
	StatusRunning:   {StatusSucceeded, StatusFailed, StatusCancelled},
	StatusSucceeded: {},
	StatusFailed:    {},
	StatusCancelled: {},
}

// Statuses lists the states of a job in order.
func Statuses() []Status {
	return []Status{
		StatusPending, StatusSubmitted, StatusStarting, StatusRunning,
		StatusSucceeded, StatusFailed, StatusCancelled,
	}
}

// IsTerminal reports whether s is final.
func (s Status) IsTerminal() bool {
	next, known := transitions[s]
	return known && len(next) == 0
}

// CanBecome reports whether next may directly follow s.
func (s Status) CanBecome(next Status) bool {
	return slices.Contains(transitions[s], next)
}

// TransitionError reports a change of state that is not allowed.
type TransitionError struct{ From, To Status }

// Error returns both states.
func (e *TransitionError) Error() string {
	return fmt.Sprintf("a %s job cannot become %s", e.From, e.To)
}

// Unwrap returns ErrTerminal if From is terminal.
func (e *TransitionError) Unwrap() error {
	if e.From.IsTerminal() {
		return ErrTerminal
	}
	return nil
}

package rowmill

import "fmt"

// Status is the state of a job.
//
//	pending ─► submitted ─► starting ─► running ─► succeeded
//	   │           │            │           │
//	   └───────────┴────────────┴───────────┴────► failed | cancelled
type Status string

// The states, in the order a job goes through them. StatusUnknown is no state
// of a job: it is what the status endpoint says of a job it cannot find.
const (
	StatusPending   Status = "pending"   // the record is durable, nothing has begun
	StatusSubmitted Status = "submitted" // a job actor owns it
	StatusStarting  Status = "starting"  // input is read, quotas checked, waiting for an engine
	StatusRunning   Status = "running"   // the first row was dispatched
	StatusSucceeded Status = "succeeded"
	StatusFailed    Status = "failed"
	StatusCancelled Status = "cancelled"
	StatusUnknown   Status = "unknown"
)

// transitions is the only place that says which state may follow which.
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

// Terminal reports whether s never changes again.
func (s Status) Terminal() bool {
	next, known := transitions[s]
	return known && len(next) == 0
}

// CanBecome reports whether next may directly follow s.
func (s Status) CanBecome(next Status) bool {
	for _, allowed := range transitions[s] {
		if allowed == next {
			return true
		}
	}
	return false
}

// TransitionError says that a job cannot go from one state to another.
type TransitionError struct{ From, To Status }

// Error names both states.
func (e *TransitionError) Error() string {
	return fmt.Sprintf("a %s job cannot become %s", e.From, e.To)
}

// Unwrap makes errors.Is(err, ErrTerminal) true where From is terminal.
func (e *TransitionError) Unwrap() error {
	if e.From.Terminal() {
		return ErrTerminal
	}
	return nil
}

package rowmill

import "time"

// An Attempt is one request to an inference server to run a row, and its outcome.
// Attempts are stored as JSON, so their JSON names never change.
type Attempt struct {
	At      time.Time     `json:"at"`                // when the request was sent
	Took    time.Duration `json:"took"`              // time from the request to its outcome
	Node    string        `json:"node"`              // name of the sending node
	Engine  string        `json:"engine"`            // name of the inference server on that node
	Status  int           `json:"status,omitempty"`  // HTTP status if the server refused the request, else 0
	Code    string        `json:"code,omitempty"`    // error code; empty or RowRepaired if the answer was accepted
	Message string        `json:"message,omitempty"` // short text about the failure, for people
}

// RowAttempts holds the attempts that one node made to run a row. It includes attempts that
// do not count toward jobs.max_attempts, such as a request to a server that went down.
// A row has no RowAttempts if its first answer was accepted.
type RowAttempts struct {
	Attempts []Attempt `json:"attempts"`          // the first 3 and the last 5 attempts, in order
	Omitted  int       `json:"omitted,omitempty"` // number of attempts dropped between the first 3 and the last 5
}

const (
	// Tries keeps the first 3 and the last 5 attempts at a row. The last attempts show
	// why the row failed: 5 is the default of jobs.max_attempts.
	firstTries = 3
	lastTries  = 5

	// attemptBytes is the approximate size of an Attempt without its message. Node,
	// Engine and Code are not counted, because all attempts share these strings.
	attemptBytes = 120
)

// Add appends an attempt. If there are 8 attempts already, it drops the fourth.
func (t *RowAttempts) Add(a Attempt) {
	if len(t.Attempts) < firstTries+lastTries {
		t.Attempts = append(t.Attempts, a)
		return
	}
	t.Omitted++
	copy(t.Attempts[firstTries:], t.Attempts[firstTries+1:])
	t.Attempts[len(t.Attempts)-1] = a
}

// Bytes returns the approximate memory of the attempts.
func (t *RowAttempts) Bytes() int64 {
	if t == nil {
		return 0
	}
	n := int64(0)
	for i := range t.Attempts {
		n += attemptBytes + int64(len(t.Attempts[i].Message))
	}
	return n
}

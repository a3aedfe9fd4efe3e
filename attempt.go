package rowmill

import "time"

// An Attempt is one request to a server for a row, and its outcome. It is stored, so
// its members keep their names.
type Attempt struct {
	At      time.Time     `json:"at"`                // when the request was sent
	Took    time.Duration `json:"took"`              // time from the request to its outcome
	Node    string        `json:"node"`              // name of the sending node
	Engine  string        `json:"engine"`            // name of the server on this node
	Status  int           `json:"status,omitempty"`  // HTTP status of a refusal, else 0
	Code    string        `json:"code,omitempty"`    // machine word for the failure; empty if the answer was accepted
	Message string        `json:"message,omitempty"` // the failure in words, short
}

// Tries holds the attempts that one node made to run a row. It includes attempts that do
// not count toward jobs.max_attempts, such as a request to a server that went down. A row
// has no Tries if the answer to its first request was good.
type Tries struct {
	Attempts []Attempt `json:"attempts"`          // the first and the last attempts, in order
	Omitted  int       `json:"omitted,omitempty"` // number of attempts left out between them
}

const (
	// Tries keeps the first 3 and the last 5 attempts at a row. The last attempts say why
	// the row failed; 5 is the default of jobs.max_attempts.
	firstTries = 3
	lastTries  = 5

	// attemptBytes is the approximate size of an Attempt without its message. The names
	// in it need no memory of their own: all attempts share these strings.
	attemptBytes = 120
)

// Add appends an attempt, and drops one from the middle if there are too many.
func (t *Tries) Add(a Attempt) {
	if len(t.Attempts) < firstTries+lastTries {
		t.Attempts = append(t.Attempts, a)
		return
	}
	t.Omitted++
	copy(t.Attempts[firstTries:], t.Attempts[firstTries+1:])
	t.Attempts[len(t.Attempts)-1] = a
}

// Bytes returns the approximate memory of the attempts.
func (t *Tries) Bytes() int64 {
	if t == nil {
		return 0
	}
	n := int64(0)
	for i := range t.Attempts {
		n += attemptBytes + int64(len(t.Attempts[i].Message))
	}
	return n
}

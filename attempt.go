package rowmill

import "time"

// An Attempt is one time that a row was sent to a server, and how that ended. It is
// stored, so its members keep their names.
type Attempt struct {
	At      time.Time     `json:"at"`                // when it was sent
	Took    time.Duration `json:"took"`              // until its end was known
	Node    string        `json:"node"`              // the name of the node that sent it
	Engine  string        `json:"engine"`            // the name of the server there
	Status  int           `json:"status,omitempty"`  // of HTTP, where that was no answer; else 0
	Code    string        `json:"code,omitempty"`    // why there is no answer, a machine word; empty where it was accepted
	Message string        `json:"message,omitempty"` // the same for a person, short
}

// Tries are the attempts at a row that one node made: those that count and those
// that did not, such as at a server that went away. A row whose first attempt was
// accepted has none.
type Tries struct {
	Attempts []Attempt `json:"attempts"`          // the first and the last ones, in their order
	Omitted  int       `json:"omitted,omitempty"` // of those between
}

const (
	// firstTries and lastTries are how many attempts are kept of a row: how it
	// began, and as many of the last as jobs.max_attempts are by default, since it
	// is they that say why it failed.
	firstTries = 3
	lastTries  = 5

	// attemptBytes is about what an Attempt holds beside its message. Names are
	// shared by all.
	attemptBytes = 120
)

// Add takes in the next attempt.
func (t *Tries) Add(a Attempt) {
	if len(t.Attempts) < firstTries+lastTries {
		t.Attempts = append(t.Attempts, a)
		return
	}
	t.Omitted++
	copy(t.Attempts[firstTries:], t.Attempts[firstTries+1:])
	t.Attempts[len(t.Attempts)-1] = a
}

// Bytes is about what they hold in memory.
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

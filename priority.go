package rowmill

import "fmt"

// Priority says which of two jobs goes first: the one with the lower number. Clients
// send and see the number.
type Priority int

// The priorities.
const (
	Prototyping Priority = 0 // a few rows, and a person waits for them
	Production  Priority = 1 // many rows; they use the capacity that Prototyping does not use
)

// Lowest is the least urgent priority, which has the highest number. There are Lowest+1
// priorities.
const Lowest = Production

// PriorityValues names the priorities for help and error messages.
const PriorityValues = "0 (prototyping: a few rows, soon) or 1 (production: many rows)"

// DefaultQuotas returns how many rows and input tokens a job may have if neither the
// configuration nor the account sets a quota. The interface defines these numbers.
func (p Priority) DefaultQuotas() (rows, tokens int64) {
	if p == Prototyping {
		return 1_000, 1_000_000
	}
	return 1_000_000, 10_000_000
}

// Priorities lists the priorities in order.
func Priorities() (all []Priority) {
	for p := Prototyping; p <= Lowest; p++ {
		all = append(all, p)
	}
	return all
}

// Validate returns an error unless p is one of the priorities. The caller puts the name
// of the field before the text.
func (p Priority) Validate() error {
	if p != p.ClampToKnown() {
		return fmt.Errorf("is %d; it must be %s", int(p), PriorityValues)
	}
	return nil
}

// ClampToKnown returns the known priority that is nearest to p. A newer version of Rowmill
// may have stored a p that this version does not know.
func (p Priority) ClampToKnown() Priority { return min(max(p, Prototyping), Lowest) }

// IsUrgent reports whether a person waits for jobs of priority p. Rows of urgent jobs go
// before all other rows, and may use the capacity that is reserved for urgent rows.
func (p Priority) IsUrgent() bool { return p == Prototyping }

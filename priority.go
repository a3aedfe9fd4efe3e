package rowmill

import "fmt"

// Priority says which of two jobs goes first: the one with the lower number. Clients
// send and see the number.
type Priority int

// The priorities.
const (
	Prototyping Priority = 0 // somebody waits for a few rows
	Production  Priority = 1 // many rows, which take what Prototyping leaves
)

// Lowest is the priority that goes last. There are Lowest+1 priorities.
const Lowest = Production

// PriorityValues names the priorities for help and error messages.
const PriorityValues = "0 (prototyping: a few rows, soon) or 1 (production: many rows)"

// DefaultQuotas returns how many rows and input tokens a job may have where neither the
// configuration nor the account says it. The numbers are those of the interface.
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
	if p != p.Nearest() {
		return fmt.Errorf("is %d; it must be %s", int(p), PriorityValues)
	}
	return nil
}

// Nearest returns the priority that this version knows and that is nearest to p, which a
// newer version may have written.
func (p Priority) Nearest() Priority { return min(max(p, Prototyping), Lowest) }

// Urgent reports whether somebody waits for the job. Its rows go before all others, and
// may use what is reserved for them.
func (p Priority) Urgent() bool { return p == Prototyping }

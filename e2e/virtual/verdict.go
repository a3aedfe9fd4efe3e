package virtual

import (
	"fmt"
	"hash/fnv"
	"io"
	"slices"
	"strings"
	"time"
)

// A Verdict is the outcome of a schedule.
type Verdict struct {
	Wrongs  []string      `json:"wrongs,omitempty"` // broken promises
	Reruns  int           `json:"reruns"`           // repeated answers to a row
	Struck  int           `json:"struck"`           // faults that struck
	Swift   int           `json:"swift,omitempty"`  // urgent jobs with a checked time limit beside another account
	Virtual time.Duration `json:"virtual"`          // duration in the world
	Trace   []string      `json:"trace,omitempty"`
	Print   uint64        `json:"print"`            // hash of the trace: equal if a run repeats exactly
	Parked  int           `json:"parked,omitempty"` // innocent jobs that were parked
	Waited  time.Duration `json:"waited"`           // elapsed time in which the process had no processor

	trace []entry
}

// lines returns the trace as text; without all, only lines that explain the end.
func (v *Verdict) lines(all bool) []string {
	var lines []string
	for _, e := range v.trace {
		if all || !dull(e) {
			lines = append(lines, e.String())
		}
	}
	return lines
}

// dull reports whether a line does not help to explain the end: an effect that only reads,
// without an error.
func dull(e entry) bool {
	if e.outcome != "" {
		return false
	}
	switch e.kind {
	case "store.orphans", "store.renew-session", "store.get", "store.list-parts", "store.get-value", "store.holders", "store.held", "store.due", "store.revisions", "store.time",
		"blob.open", "blob.stat", "blob.list", "blob.folders", "store.ping":
		return true
	}
	return strings.HasPrefix(e.kind, "message.")
}

func (v *Verdict) String() string {
	return fmt.Sprintf("%d faults struck, %d rows again, %v in the world: %s", v.Struck, v.Reruns, v.Virtual.Round(time.Millisecond), strings.Join(v.Wrongs, "; "))
}

// effects returns the whole trace, a line for each effect. Lines with the same time are
// sorted, because synctest does not order goroutines.
func (v *Verdict) effects() []string {
	var lines []string
	begin := 0 // first line with this time
	for i, e := range v.trace {
		if e.at != v.trace[begin].at {
			slices.Sort(lines[begin:])
			begin = i
		}
		how, _, _ := strings.Cut(e.outcome, ";") // an error contains random names
		lines = append(lines, fmt.Sprintln(e.at, e.node, e.kind, plain(e.key), how))
	}
	slices.Sort(lines[begin:])
	return lines
}

// print returns a hash of all effects and their times.
func (v *Verdict) print() uint64 {
	h := fnv.New64a()
	for _, line := range v.effects() {
		_, _ = io.WriteString(h, line) // never fails
	}
	return h.Sum64()
}

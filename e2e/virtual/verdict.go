package virtual

import (
	"fmt"
	"hash/fnv"
	"io"
	"slices"
	"strings"
	"time"
)

// A Verdict is what became of a schedule.
type Verdict struct {
	Wrongs   []string      `json:"wrongs,omitempty"` // promises that were broken; none: all held
	Reruns   int           `json:"reruns"`           // answers that were not the first to their row
	Struck   int           `json:"struck"`           // faults that came
	Swift    int           `json:"swift,omitempty"`  // urgent jobs that were held to their time beside another account
	Virtual  time.Duration `json:"virtual"`          // what it took in the world
	Trace    []string      `json:"trace,omitempty"`
	Print    uint64        `json:"print"`              // of the trace: equal where a run was repeated exactly
	Bereaved int           `json:"bereaved,omitempty"` // jobs that failed as their owners were killed twice

	trace []entry
}

// told is the trace without what only asks.
func (v *Verdict) told(all bool) []string {
	var lines []string
	for _, e := range v.trace {
		if all || !dull(e) {
			lines = append(lines, e.String())
		}
	}
	return lines
}

// dull reports whether a line tells nothing of how it came to an end.
func dull(e entry) bool {
	if e.outcome != "" {
		return false
	}
	switch e.kind {
	case "store.orphans", "store.renew-session", "store.get", "store.list-parts", "store.get-value", "store.holders", "store.held", "store.due", "store.marks", "store.time",
		"blob.open", "blob.stat", "blob.list", "blob.folders", "store.ping":
		return true
	}
	return strings.HasPrefix(e.kind, "message.")
}

func (v *Verdict) String() string {
	return fmt.Sprintf("%d faults struck, %d rows again, %v in the world: %s", v.Struck, v.Reruns, v.Virtual.Round(time.Millisecond), strings.Join(v.Wrongs, "; "))
}

// effects is the whole trace, a line for each effect. Those of one moment are sorted:
// synctest does not order goroutines.
func (v *Verdict) effects() []string {
	var lines []string
	begin := 0 // of the moment
	for i, e := range v.trace {
		if e.at != v.trace[begin].at {
			slices.Sort(lines[begin:])
			begin = i
		}
		how, _, _ := strings.Cut(e.outcome, ";") // an error has names that are random
		lines = append(lines, fmt.Sprintln(e.at, e.node, e.kind, plain(e.key), how))
	}
	slices.Sort(lines[begin:])
	return lines
}

// print is a number that is equal where all effects were, at the same moments.
func (v *Verdict) print() uint64 {
	h := fnv.New64a()
	for _, line := range v.effects() {
		_, _ = io.WriteString(h, line) // never fails
	}
	return h.Sum64()
}

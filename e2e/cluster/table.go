package cluster

import (
	"fmt"
	"strings"
	"time"
)

// A Table sums trials up, one line for each fault in the order in which they
// came first.
type Table struct {
	order []string
	lines map[string]*line
}

type line struct {
	times, failures     int
	rows                int
	reruns, most, bound int           // in all; the most of one trial, and what it was allowed
	takeover            time.Duration // longest
}

// Add notes a trial. One with several faults counts for each of them.
func (t *Table) Add(o Outcome) {
	for _, fault := range o.Faults {
		l := t.lines[fault]
		if l == nil {
			l = &line{}
			if t.lines == nil {
				t.lines = map[string]*line{}
			}
			t.lines[fault] = l
			t.order = append(t.order, fault)
		}
		l.times++
		l.rows += o.Rows
		l.reruns += o.Reruns
		if o.Reruns > l.most || l.times == 1 {
			l.most, l.bound = o.Reruns, o.Bound
		}
		l.takeover = max(l.takeover, o.Takeover)
		if len(o.Wrongs) > 0 {
			l.failures++
		}
	}
}

// Markdown is the table as docs/reliability.md has it.
func (t *Table) Markdown() string {
	var b strings.Builder
	b.WriteString("| fault | times | rows | run again, most (allowed) | run again, in all | takeover, longest | failures |\n|---|---|---|---|---|---|---|\n")
	for _, fault := range t.order {
		l, takeover := t.lines[fault], "–"
		if l.takeover > 0 {
			takeover = fmt.Sprintf("%.1f s", l.takeover.Seconds())
		}
		fmt.Fprintf(&b, "| %s | %d | %d | %d (%d) | %d | %s | %d |\n", fault, l.times, l.rows, l.most, l.bound, l.reruns, takeover, l.failures)
	}
	return b.String()
}

package cluster

import (
	"fmt"
	"strings"
	"time"
)

// A Table sums up trials, with one line for each fault in the order of its first strike.
type Table struct {
	order []string
	lines map[string]*line
	sum   line // of all trials
}

type line struct {
	times, failures     int
	jobs, rows          int           // jobs: with the neighbour's jobs
	asked, killed, away int           // requests; failures at killed nodes; failures while something was unavailable
	reruns, most, bound int           // sum; the largest of a trial, and its bound
	takeover            time.Duration // longest
}

// Add adds a trial. A trial with several faults counts for each fault.
func (t *Table) Add(o Outcome) {
	t.sum.add(o)
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
		l.add(o)
	}
}

func (l *line) add(o Outcome) {
	l.times++
	l.jobs += 1 + o.Beside.jobs
	l.rows += o.Rows
	l.asked += o.Asked.Asked
	l.killed += o.Asked.Killed
	l.away += o.Asked.Away
	l.reruns += o.Reruns
	if o.Reruns > l.most || l.times == 1 {
		l.most, l.bound = o.Reruns, o.Bound
	}
	l.takeover = max(l.takeover, o.Takeover)
	if len(o.Wrongs) > 0 {
		l.failures++
	}
}

// Markdown returns the table, and one sentence about all trials.
func (t *Table) Markdown() string {
	var b strings.Builder
	b.WriteString("| fault | times | jobs | rows | requests | failed at killed nodes | failed for what was away | run again, most (allowed) | run again, in all | takeover, longest | failures |\n" +
		strings.Repeat("|---", 11) + "|\n")
	strikes := 0
	for _, fault := range t.order {
		l, takeover := t.lines[fault], "–"
		strikes += l.times
		if l.takeover > 0 {
			takeover = fmt.Sprintf("%.1f s", l.takeover.Seconds())
		}
		fmt.Fprintf(&b, "| %s | %d | %d | %d | %d | %d | %d | %d (%d) | %d | %s | %d |\n",
			fault, l.times, l.jobs, l.rows, l.asked, l.killed, l.away, l.most, l.bound, l.reruns, takeover, l.failures)
	}
	l := t.sum
	fmt.Fprintf(&b, "\n%d trials with %d strikes of %d faults: %d rows, %d small jobs of another account beside them, %d requests, of which %d failed at nodes that were being killed and %d while a fault had taken what they need. %d trials failed.\n",
		l.times, strikes, len(t.order), l.rows, l.jobs-l.times, l.asked, l.killed, l.away, l.failures)
	return b.String()
}

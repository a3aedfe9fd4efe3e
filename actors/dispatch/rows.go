package dispatch

import (
	"container/heap"
	"slices"
	"time"

	"github.com/rowmill/rowmill/actors/order"
	"github.com/rowmill/rowmill/internal/retry"
	"github.com/rowmill/rowmill/tokenize/prompt"
)

// Rows holds the loaded rows of a worker: those that can go to an engine now,
// in the order in which they should, and those that must wait before another
// attempt.
type Rows struct {
	lengths order.Lengths
	now     *order.Pool[*Task]
	later   byDue
	total   int64 // rows of the job

	// suspects may have crashed their server. Other nodes get them only when this node has
	// no server: a crash there would cost the rows of another server too.
	suspects []*Task
}

// NewRows returns room for the rows of a job that has so many in total.
func NewRows(total int64) *Rows {
	q := &Rows{total: total}
	q.now = order.NewPool[*Task](&q.lengths, total)
	return q
}

// InOrder has rows go in the order of the input, unless they must wait: for answers of
// which none takes longer than others. It is called before Add.
func (q *Rows) InOrder() { q.now.InOrder() }

// holdBack is how many shards rows may stay behind the one being loaded, for
// want of length: so many are open at a time, and the parts of each.
const holdBack = 2

// Add takes in rows of a shard as they are loaded, in the order of the shards.
func (q *Rows) Add(tasks []*Task) {
	if len(tasks) == 0 {
		return
	}
	q.now.Add(q.unsuspected(tasks))
	shard := tasks[0].Behind
	if oldest, ok := q.now.Oldest(); ok && shard-oldest > holdBack {
		q.now.Expedite(shard - holdBack - 1)
	}
}

func rowOf(t *Task) order.Row[*Task] {
	return order.Row[*Task]{Value: t, Text: t.Row.Text, Position: t.Row.Index, Batch: t.Behind, Share: t.Share, Avoid: t.avoid}
}

// Return takes back what waited at an engine.
func (q *Rows) Return(tasks []*Task) {
	q.now.Front(q.unsuspected(tasks)...)
}

// unsuspected keeps the suspects among tasks, and returns the rows of the others.
func (q *Rows) unsuspected(tasks []*Task) []order.Row[*Task] {
	rows := make([]order.Row[*Task], 0, len(tasks))
	for _, t := range tasks {
		if t.apart > 0 {
			q.suspects = append(q.suspects, t)
		} else {
			rows = append(rows, rowOf(t))
		}
	}
	return rows
}

// Ready is how many rows can go to an engine now.
func (q *Rows) Ready() int { return q.now.Len() + len(q.suspects) }

// Spare is how many of these other nodes may have.
func (q *Rows) Spare() int { return q.now.Len() }

// Empty reports whether there are no rows, not even such as must wait.
func (q *Rows) Empty() bool { return q.Ready() == 0 && len(q.later) == 0 }

// Remember says how many tokens of prompts the prefix cache of a server holds.
func (q *Rows) Remember(tokens int64) { q.now.Remember(tokens * prompt.BytesPerToken) }

// Leave forgets an engine.
func (q *Rows) Leave(port order.Port) { q.now.Leave(port) }

// Take removes up to n tasks for an engine. alone says that there is no other.
func (q *Rows) Take(to order.Port, n int, alone bool) []*Task {
	tasks := q.takeSuspects(to, n, alone)
	for _, r := range q.now.Take(to, n-len(tasks), alone) {
		tasks = append(tasks, r.Value)
	}
	for _, t := range tasks {
		t.expect = q.lengths.PromptTokens(len(t.Row.Text)) + q.lengths.Expect(len(t.Row.Text), t.Row.Index, q.total)
	}
	return tasks
}

// takeSuspects removes up to n suspects for an engine.
func (q *Rows) takeSuspects(to order.Port, n int, alone bool) (tasks []*Task) {
	q.suspects = slices.DeleteFunc(q.suspects, func(t *Task) bool {
		if len(tasks) >= n || t.avoid == to && !alone {
			return false
		}
		tasks = append(tasks, t)
		return true
	})
	return tasks
}

// Learn takes what an accepted answer says about the others.
func (q *Rows) Learn(t *Task) {
	q.lengths.Learn(len(t.Row.Text), t.Row.Index, q.total, t.Out.InputTokens, t.Out.OutputTokens)
}

// The wait before another attempt grows from firstRetry to lastRetry, with full
// jitter (Brooker, "Exponential Backoff and Jitter", 2015).
const (
	firstRetry = 250 * time.Millisecond
	lastRetry  = 15 * time.Second
)

// Retry keeps t for another attempt, at another engine first. A row that lost
// nothing but its place in a queue can go at once.
func (q *Rows) Retry(t *Task, now time.Time) {
	tries := t.attempts + t.faults + t.refusals
	if tries == 0 {
		q.now.Front(rowOf(t))
		return
	}
	t.avoid = t.Port
	pause := min(lastRetry, firstRetry<<min(tries-1, 10))
	due := now.Add(retry.Jitter(pause) + time.Millisecond)
	if due.After(t.due) {
		t.due = due
	}
	heap.Push(&q.later, t)
}

// Wake makes due tasks ready, before all others, and returns the time until
// the next is due; 0 when none waits.
func (q *Rows) Wake(now time.Time) time.Duration {
	for len(q.later) > 0 {
		t := q.later[0]
		if wait := t.due.Sub(now); wait > 0 {
			return wait
		}
		heap.Pop(&q.later)
		q.Return([]*Task{t})
	}
	return 0
}

// Spread lets other nodes have the suspects: this one has no server for them.
func (q *Rows) Spread() {
	for _, t := range q.suspects {
		q.now.Front(rowOf(t))
	}
	q.suspects = nil
}

// Remove takes out up to n tasks that could go to an engine, the first to go first. It
// leaves the suspects.
func (q *Rows) Remove(n int) []*Task {
	if n <= 0 {
		return nil
	}
	rows := q.now.Take(order.None, n, true)
	q.now.Leave(order.None)
	tasks := make([]*Task, len(rows))
	for i, r := range rows {
		tasks[i] = r.Value
	}
	return tasks
}

// RemoveLater takes out all tasks that must wait, and the suspects.
func (q *Rows) RemoveLater() []*Task {
	tasks := slices.Concat(q.later, q.suspects)
	q.later, q.suspects = nil, nil
	return tasks
}

// byDue is a heap, earliest first.
type byDue []*Task

func (h byDue) Len() int           { return len(h) }
func (h byDue) Less(i, j int) bool { return h[i].due.Before(h[j].due) }
func (h byDue) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *byDue) Push(x any)        { *h = append(*h, x.(*Task)) }

func (h *byDue) Pop() any {
	old := *h
	t := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	return t
}

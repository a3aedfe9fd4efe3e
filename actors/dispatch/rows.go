package dispatch

import (
	"slices"
	"time"

	"github.com/rowmill/rowmill/actors/order"
	"github.com/rowmill/rowmill/internal/retry"
	"github.com/rowmill/rowmill/tokenize/prompt"
)

// Rows holds the loaded rows of a worker: rows that can be sent now, in the order in
// which they should be sent, and rows that must wait before another attempt.
type Rows struct {
	lengths order.Lengths
	now     *order.Pool[*Task]
	later   []*Task // tasks that wait for a retry, in the order of their due times
	total   int64   // number of rows of the job

	// suspects may have crashed their server. Other nodes get them only if this node has
	// no server: a crash there would hit the rows of another server too.
	suspects []*Task
}

// NewRows returns an empty Rows for a job with this many rows in total.
func NewRows(total int64) *Rows {
	q := &Rows{total: total}
	q.now = order.NewPool[*Task](&q.lengths, total)
	return q
}

// InOrder sends rows in the order of the input, except rows that wait for a retry. It is
// for jobs with answers of equal length. Call it before Add.
func (q *Rows) InOrder() { q.now.InOrder() }

// holdBack limits how long short rows wait: until the worker loads rows of a shard more
// than this number of shards later. So only about this many shards and their parts are
// open at a time.
const holdBack = 2

// Add adds loaded rows of a shard. The caller adds rows in the order of their shards.
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

// Return takes back rows that have waited in the queue of an engine.
func (q *Rows) Return(tasks []*Task) {
	q.now.Front(q.unsuspected(tasks)...)
}

// unsuspected keeps the suspects, and returns the rows of the other tasks.
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

// Ready returns the number of rows that can be sent to an engine now.
func (q *Rows) Ready() int { return q.now.Len() + len(q.suspects) }

// Spare returns the number of ready rows that other nodes may have.
func (q *Rows) Spare() int { return q.now.Len() }

// Empty reports whether there are no rows, including rows that wait for a retry.
func (q *Rows) Empty() bool { return q.Ready() == 0 && len(q.later) == 0 }

// Remember sets the size of the prefix cache of a server, in tokens of prompts.
func (q *Rows) Remember(tokens int64) { q.now.Remember(tokens * prompt.BytesPerToken) }

// Leave forgets an engine: the worker no longer uses it.
func (q *Rows) Leave(port order.Port) { q.now.Leave(port) }

// Take removes and returns up to n tasks for an engine. alone is true if the worker has
// no other engine.
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

// Learn uses an accepted answer to estimate the length of later answers.
func (q *Rows) Learn(t *Task) {
	q.lengths.Learn(len(t.Row.Text), t.Row.Index, q.total, t.Out.InputTokens, t.Out.OutputTokens)
}

// The wait before another attempt grows from firstRetry to lastRetry, with full jitter
// (Brooker, "Exponential Backoff and Jitter", 2015).
const (
	firstRetry = 250 * time.Millisecond
	lastRetry  = 15 * time.Second
)

// Retry keeps t for another attempt, preferably at another engine. A row without a
// failed or refused request can be sent at once.
func (q *Rows) Retry(t *Task, now time.Time) {
	tries := t.attempts + t.lostRequests + t.refusals
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
	at, _ := slices.BinarySearchFunc(q.later, t, func(a, b *Task) int { return a.due.Compare(b.due) })
	q.later = slices.Insert(q.later, at, t)
}

// Wake makes due tasks ready, before all other tasks, and returns the time until the
// next task is due; 0 if none waits.
func (q *Rows) Wake(now time.Time) time.Duration {
	due := slices.IndexFunc(q.later, func(t *Task) bool { return t.due.After(now) })
	if due < 0 {
		due = len(q.later)
	}
	if due > 0 {
		q.Return(q.later[:due])
		q.later = slices.Delete(q.later, 0, due)
	}
	if len(q.later) == 0 {
		return 0
	}
	return q.later[0].due.Sub(now)
}

// Spread makes the suspects available to other nodes, because this node has no server.
func (q *Rows) Spread() {
	for _, t := range q.suspects {
		q.now.Front(rowOf(t))
	}
	q.suspects = nil
}

// Remove removes up to n tasks that could be sent, in their order. The suspects stay.
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

// RemoveLater removes all tasks that wait for a retry, and the suspects.
func (q *Rows) RemoveLater() []*Task {
	tasks := slices.Concat(q.later, q.suspects)
	q.later, q.suspects = nil, nil
	return tasks
}

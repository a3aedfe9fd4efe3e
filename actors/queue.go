package actors

import (
	"container/heap"
	"math/rand/v2"
	"time"

	"github.com/rowmill/rowmill/actors/order"
)

// A queue holds the loaded rows of a worker: those that can go to an engine
// now, in the order in which they should, and those that must wait before
// another attempt.
type queue struct {
	lengths order.Lengths
	now     *order.Pool[*task]
	later   byDue
	total   int64 // rows of the job
}

// newQueue returns a queue for a job of total rows.
func newQueue(total int64) *queue {
	q := &queue{total: total}
	q.now = order.NewPool[*task](&q.lengths, total)
	return q
}

// holdBack is how many shards rows may stay behind the one being loaded, for
// want of length: so many are open at a time, and the parts of each.
const holdBack = 2

// add takes in rows of a shard as they are loaded, in the order of the shards.
func (q *queue) add(tasks []*task) {
	if len(tasks) == 0 {
		return
	}
	rows := make([]order.Row[*task], len(tasks))
	for i, t := range tasks {
		rows[i] = rowOf(t)
	}
	q.now.Add(rows)
	shard := tasks[0].shard
	if oldest, ok := q.now.Oldest(); ok && shard-oldest > holdBack {
		q.now.Expedite(shard - holdBack - 1)
	}
}

func rowOf(t *task) order.Row[*task] {
	return order.Row[*task]{Value: t, Text: t.row.Text, Position: t.row.Index, Batch: t.shard, Avoid: t.avoid}
}

// returned takes back what waited at an engine.
func (q *queue) returned(tasks []*task) {
	rows := make([]order.Row[*task], len(tasks))
	for i, t := range tasks {
		rows[i] = rowOf(t)
	}
	q.now.Front(rows...)
}

func (q *queue) ready() int  { return q.now.Len() }
func (q *queue) empty() bool { return q.now.Len() == 0 && len(q.later) == 0 }

// take removes up to n tasks for an engine. alone says that there is no other.
func (q *queue) take(to order.Port, n int, alone bool) []*task {
	rows := q.now.Take(to, n, alone)
	tasks := make([]*task, len(rows))
	for i, r := range rows {
		t := r.Value
		t.expect = q.lengths.PromptTokens(len(t.row.Text)) + q.lengths.Expect(len(t.row.Text), t.row.Index, q.total)
		tasks[i] = t
	}
	return tasks
}

// learn takes what an accepted answer says about the others.
func (q *queue) learn(t *task) {
	q.lengths.Learn(len(t.row.Text), t.row.Index, q.total, t.out.InputTokens, t.out.OutputTokens)
}

// The pause before another attempt grows from firstPause to lastPause, with
// full jitter (Brooker, "Exponential Backoff and Jitter", 2015).
const (
	firstPause = 250 * time.Millisecond
	lastPause  = 15 * time.Second
)

// retry keeps t for another attempt, at another engine first. A row that lost
// nothing but its place in a queue can go at once.
func (q *queue) retry(t *task, now time.Time) {
	tries := t.attempts + t.faults
	if tries == 0 {
		q.now.Front(rowOf(t))
		return
	}
	t.avoid = t.via.id
	pause := min(lastPause, firstPause<<min(tries-1, 10))
	due := now.Add(rand.N(pause) + time.Millisecond)
	if due.After(t.due) {
		t.due = due
	}
	heap.Push(&q.later, t)
}

// wake makes due tasks ready, before all others, and returns the time until
// the next is due; 0 when none waits.
func (q *queue) wake(now time.Time) time.Duration {
	for len(q.later) > 0 {
		t := q.later[0]
		if wait := t.due.Sub(now); wait > 0 {
			return wait
		}
		heap.Pop(&q.later)
		q.now.Front(rowOf(t))
	}
	return 0
}

// surrender removes up to n tasks that could go to an engine, the first to go
// first.
func (q *queue) surrender(n int) []*task {
	if n <= 0 {
		return nil
	}
	tasks := q.take(order.None, n, true)
	q.now.Leave(order.None)
	return tasks
}

// surrenderLater removes all tasks that must wait.
func (q *queue) surrenderLater() []*task {
	tasks := []*task(q.later)
	q.later = nil
	return tasks
}

// byDue is a heap, earliest first.
type byDue []*task

func (h byDue) Len() int           { return len(h) }
func (h byDue) Less(i, j int) bool { return h[i].due.Before(h[j].due) }
func (h byDue) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *byDue) Push(x any)        { *h = append(*h, x.(*task)) }

func (h *byDue) Pop() any {
	old := *h
	t := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	return t
}

package actors

import (
	"container/heap"
	"math/rand/v2"
	"time"
)

// A queue holds the loaded rows of a worker: those that can go to an engine
// now, and those that must wait before another attempt.
type queue struct {
	now   []*task
	later byDue
}

// The pause before another attempt grows from firstPause to lastPause, with
// full jitter (Brooker, "Exponential Backoff and Jitter", 2015).
const (
	firstPause = 250 * time.Millisecond
	lastPause  = 15 * time.Second
)

func (q *queue) add(tasks []*task)      { q.now = append(q.now, tasks...) }
func (q *queue) returned(tasks []*task) { q.now = append(tasks, q.now...) }
func (q *queue) ready() int             { return len(q.now) }
func (q *queue) empty() bool            { return len(q.now) == 0 && len(q.later) == 0 }

// take removes up to n tasks that can go now.
func (q *queue) take(n int) []*task {
	n = min(n, len(q.now))
	tasks := q.now[:n:n]
	q.now = q.now[n:]
	return tasks
}

// retry keeps t for another attempt. A row that lost nothing but its place in
// a queue can go at once.
func (q *queue) retry(t *task, now time.Time) {
	tries := t.attempts + t.faults
	if tries == 0 {
		q.now = append(q.now, t)
		return
	}
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
		q.now = append([]*task{t}, q.now...)
	}
	return 0
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

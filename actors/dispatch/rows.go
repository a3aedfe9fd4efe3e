package dispatch

import (
	"slices"
	"time"

	"github.com/rowmill/rowmill/actors/order"
	"github.com/rowmill/rowmill/internal/retry"
	"github.com/rowmill/rowmill/tokenize/prompt"
)

// PendingRows has the loaded rows of a worker that are not at a server: rows that can be sent
// now, in the order of sending, and rows that wait before another attempt.
type PendingRows struct {
	lengths order.LengthEstimator
	now     *order.Pool[*RowTask]
	later   []*RowTask // tasks that wait for a retry, in the order of the times at which they may be sent
	total   int64      // number of rows of the job

	// suspects has rows that may have crashed their server. Other nodes get these rows only
	// if this node has no server: otherwise they might crash a server there too.
	suspects []*RowTask
}

// NewPendingRows returns an empty PendingRows for a job that has total rows.
func NewPendingRows(total int64) *PendingRows {
	q := &PendingRows{total: total}
	q.now = order.NewPool[*RowTask](&q.lengths, total)
	return q
}

// KeepInputOrder makes Take return rows in the order of the input, except rows that wait for a
// retry. It is for jobs whose answers all have the same length. Call it before Add.
func (q *PendingRows) KeepInputOrder() { q.now.KeepInputOrder() }

// holdBack limits how long a row with a short answer waits: until the worker loads a
// shard that is more than holdBack shards after the shard of the row. So only about this
// many shards and their parts are open at a time.
const holdBack = 2

// Add adds loaded rows of one shard. The caller must add rows in the order of their
// shards.
func (q *PendingRows) Add(tasks []*RowTask) {
	if len(tasks) == 0 {
		return
	}
	q.now.Add(q.keepSuspects(tasks))
	shard := tasks[0].Behind
	if oldest, ok := q.now.Oldest(); ok && shard-oldest > holdBack {
		q.now.Expedite(shard - holdBack - 1)
	}
}

// rowOf returns the row of a task as package order needs it.
func rowOf(t *RowTask) order.Row[*RowTask] {
	return order.Row[*RowTask]{Value: t, Text: t.Row.Text, Position: t.Row.Index, Batch: t.Behind, Share: t.Share, Avoid: t.avoid}
}

// Return takes back rows that waited in the queue of a server and were not sent.
func (q *PendingRows) Return(tasks []*RowTask) {
	q.now.AddToFront(q.keepSuspects(tasks)...)
}

// keepSuspects adds the suspects among tasks to q.suspects, and returns the rows of the
// other tasks.
func (q *PendingRows) keepSuspects(tasks []*RowTask) []order.Row[*RowTask] {
	rows := make([]order.Row[*RowTask], 0, len(tasks))
	for _, t := range tasks {
		if t.trialGroup > 0 {
			q.suspects = append(q.suspects, t)
		} else {
			rows = append(rows, rowOf(t))
		}
	}
	return rows
}

// Ready returns the number of rows that can be sent to a server now.
func (q *PendingRows) Ready() int { return q.now.Len() + len(q.suspects) }

// CountReturnable returns the number of ready rows that other nodes could run instead.
func (q *PendingRows) CountReturnable() int { return q.now.Len() }

// Empty reports whether there are no rows, including rows that wait for a retry.
func (q *PendingRows) Empty() bool { return q.Ready() == 0 && len(q.later) == 0 }

// SetCacheTokens sets the size of a server's prefix cache, in tokens of prompts.
func (q *PendingRows) SetCacheTokens(tokens int64) {
	q.now.SetCacheBytes(tokens * prompt.BytesPerToken)
}

// Leave forgets a server that the worker no longer uses.
func (q *PendingRows) Leave(port order.ServerIndex) { q.now.Leave(port) }

// Take removes and returns up to n tasks for server to. alone means that the worker has
// no other server.
func (q *PendingRows) Take(to order.ServerIndex, n int, alone bool) []*RowTask {
	tasks := q.takeSuspects(to, n, alone)
	for _, r := range q.now.Take(to, n-len(tasks), alone) {
		tasks = append(tasks, r.Value)
	}
	for _, t := range tasks {
		t.expect = q.lengths.PromptTokens(len(t.Row.Text)) + q.lengths.AnswerTokens(len(t.Row.Text), t.Row.Index, q.total)
	}
	return tasks
}

// takeSuspects removes and returns up to n suspects for server to.
func (q *PendingRows) takeSuspects(to order.ServerIndex, n int, alone bool) (tasks []*RowTask) {
	q.suspects = slices.DeleteFunc(q.suspects, func(t *RowTask) bool {
		if len(tasks) >= n || t.avoid == to && !alone {
			return false
		}
		tasks = append(tasks, t)
		return true
	})
	return tasks
}

// Learn uses the accepted answer of t to estimate the length of later answers.
func (q *PendingRows) Learn(t *RowTask) {
	q.lengths.Learn(len(t.Row.Text), t.Row.Index, q.total, t.Out.InputTokens, t.Out.OutputTokens)
}

// The wait before another attempt grows from firstRetry to lastRetry, with full jitter
// (Brooker, "Exponential Backoff and Jitter", 2015).
const (
	firstRetry = 250 * time.Millisecond
	lastRetry  = 15 * time.Second
)

// Retry stores t for another attempt, if possible at another server. If no request of
// the row has failed or was refused, the row can be sent again at once.
func (q *PendingRows) Retry(t *RowTask, now time.Time) {
	tries := t.attempts + t.lostRequests + t.refusals
	if tries == 0 {
		q.now.AddToFront(rowOf(t))
		return
	}
	t.avoid = t.Port
	pause := min(lastRetry, firstRetry<<min(tries-1, 10))
	due := now.Add(retry.Jitter(pause) + time.Millisecond)
	if due.After(t.due) {
		t.due = due
	}
	at, _ := slices.BinarySearchFunc(q.later, t, func(a, b *RowTask) int { return a.due.Compare(b.due) })
	q.later = slices.Insert(q.later, at, t)
}

// WakeDueRetries makes the tasks ready that may be sent again at now, before all other tasks. It
// returns the time until it must be called again; 0 if no more tasks wait.
func (q *PendingRows) WakeDueRetries(now time.Time) time.Duration {
	due := slices.IndexFunc(q.later, func(t *RowTask) bool { return t.due.After(now) })
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

// ReleaseSuspects makes the suspects available to other nodes. Call it if this node has no
// server.
func (q *PendingRows) ReleaseSuspects() {
	for _, t := range q.suspects {
		q.now.AddToFront(rowOf(t))
	}
	q.suspects = nil
}

// Remove removes and returns up to n ready tasks, in the order of sending. It removes
// no suspects.
func (q *PendingRows) Remove(n int) []*RowTask {
	if n <= 0 {
		return nil
	}
	rows := q.now.Take(order.None, n, true)
	q.now.Leave(order.None)
	tasks := make([]*RowTask, len(rows))
	for i, r := range rows {
		tasks[i] = r.Value
	}
	return tasks
}

// RemoveLater removes and returns all tasks that wait for a retry, and all suspects.
func (q *PendingRows) RemoveLater() []*RowTask {
	tasks := slices.Concat(q.later, q.suspects)
	q.later, q.suspects = nil, nil
	return tasks
}

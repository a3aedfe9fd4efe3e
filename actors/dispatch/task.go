package dispatch

import (
	"sync"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/actors/order"
	"github.com/rowmill/rowmill/internal/tracing"
)

// A RowTask is one row that runs on this node, with its output and the history of its
// attempts.
type RowTask struct {
	Row   rowmill.Row // the row; its text shares memory with its block
	Out   rowmill.RowOutput
	Shard int
	Rel   int // number of the row in its shard
	// Share is the row's share if rows are assigned by prefix, numbered from 1 in the
	// order of loading; otherwise 0.
	Share   int
	Behind  int // the shard that limits how long the row may wait, see assign.RowSpan.WaitLimitShard
	Outcome Outcome
	Cut     bool // only a part of the row's text was sent

	Port     order.ServerIndex // the server to which the worker last sent the row
	Reserved int64             // bytes that the worker has reserved for the answer

	attempts int // number of attempts that count against the row
	failures
	promptCut
	attemptLog *rowmill.RowAttempts // the recorded attempts; nil before the first
	due        time.Time            // the row is not sent again before this time
	// trialGroup is the size of the group in which the row is tried because it may have crashed
	// its server: 1 for the row alone, 0 if it is no suspect.
	trialGroup             int
	soloCrashes            int               // number of crashes of a server while it ran only this row
	refusals               int               // number of refusals by busy servers, which cost no attempt
	refusedFrom, refusedAt time.Time         // the first refusal of the current wait, and the last refusal
	expect                 int64             // expected tokens of the prompt and the answer
	avoid                  order.ServerIndex // the server of the row's last failed request: others are preferred
	block                  *taskBlock
	queue                  *Queue // the queue to which the row was last added
}

// failures counts the failed requests of a row, by kind.
type failures struct {
	schemaFailures int // number of answers that broke the schema
	status500s     int // number of answers with status 500
	lostRequests   int // number of requests without an answer, which are no attempts
	timeouts       int // number of lostRequests that timed out
}

// promptCut says how much of a row's text is sent, if the whole text makes the prompt too
// long.
type promptCut struct {
	shortened int  // number of times that the server refused the prompt as too long
	unlimited bool // the last request was sent without a known limit for its prompt
	sent      int  // bytes of the row's text in the last request
	maxBytes  int  // maximum bytes of the row's text to send, from the server's count; 0 if not set
}

// A taskBlock counts the tasks that use the memory of one block of rows. The memory is
// freed with the last task.
type taskBlock struct {
	bytes int64         // size of the memory
	left  int           // number of tasks that are not freed
	span  *tracing.Span // trace span of these rows; nil for none
	freed func()        // called when the last task is freed; may be nil
}

// NewTasks returns tasks for rows of a shard that share memory. first is the row number
// of the shard's first row. bytes is the size of the memory, which stays in use until
// the last task is freed.
func NewTasks(shard int, first int64, rows []rowmill.Row) (tasks []*RowTask, bytes int64) {
	slab, shared := make([]RowTask, len(rows)), &taskBlock{left: len(rows)}
	tasks = make([]*RowTask, len(rows))
	for i, row := range rows {
		t := &slab[i]
		*t = RowTask{Row: row, Shard: shard, Behind: shard, Rel: int(row.Index - first), block: shared, Port: order.None, avoid: order.None}
		tasks[i] = t
		shared.bytes += t.RowBytes()
	}
	return tasks, shared.bytes
}

// AttachSpan makes span the parent of the trace spans of the tasks' requests. The tasks must
// come from one call of NewTasks. freed is called when the last task has been freed.
func AttachSpan(tasks []*RowTask, span *tracing.Span, freed func()) {
	tasks[0].block.span, tasks[0].block.freed = span, freed
}

// Suspect marks a row that may have crashed a server. The row is sent separately from
// other rows, in groups of at most group suspects. crashes is the number of crashes of
// a server while it ran only this row.
func (t *RowTask) Suspect(group, crashes int) {
	t.trialGroup, t.soloCrashes = max(group, 1), max(crashes, 0)
}

// SuspectInfo returns the values that were passed to Suspect; group is 0 if the row is no
// suspect.
func (t *RowTask) SuspectInfo() (group, crashes int) { return t.trialGroup, t.soloCrashes }

// Attempted reports whether an attempt at the row has counted.
func (t *RowTask) Attempted() bool { return t.attempts > 0 }

// maxLostRequests is the number of lost requests after which a row fails, because the
// row is probably the cause. One outage of a server costs a row at most one lost
// request.
const maxLostRequests = 10

// recordAttempt records the end of a request that was sent at began. If the outcome is final,
// the output gets all recorded attempts.
func (t *RowTask) recordAttempt(a rowmill.Attempt, began time.Time) {
	if t.attemptLog == nil {
		t.attemptLog = new(rowmill.RowAttempts)
	}
	a.At, a.Took = atOf(began), time.Since(began).Truncate(time.Microsecond)
	t.attemptLog.Add(a)
	if t.Outcome == Final {
		t.Out.Tries = t.attemptLog
	}
}

// atOf returns the start time of an attempt with the precision of stored records.
func atOf(began time.Time) time.Time { return began.UTC().Truncate(time.Millisecond) }

// secondsSince returns the seconds since a time, in whole milliseconds.
func secondsSince(began time.Time) float64 { return float64(time.Since(began).Milliseconds()) / 1000 }

// OutputBytes returns the memory of the task's output in bytes.
func (t *RowTask) OutputBytes() int64 {
	n := int64(len(t.Out.Text)+4*len(t.Out.Embedding)) + t.Out.Tries.Bytes()
	if t.Out.Err != nil {
		n += int64(len(t.Out.Err.Raw) + len(t.Out.Err.Message))
	}
	return n
}

// TaskBytes is the memory of a row without its text, in bytes: the task, and the
// headers of its text and id.
const TaskBytes = 320

// RowBytes returns the memory of the task without its output, in bytes. This memory is
// in use as soon as the block of the row is loaded.
func (t *RowTask) RowBytes() int64 { return int64(len(t.Row.Text)+len(t.Row.Fields)) + TaskBytes }

// Free clears the row and its output, and returns the number of bytes that this frees.
// The task itself may stay in queues for longer.
func (t *RowTask) Free() int64 {
	bytes := t.OutputBytes()
	t.Row, t.Out, t.attemptLog = rowmill.Row{}, rowmill.RowOutput{}, nil
	if t.block.left--; t.block.left == 0 {
		bytes += t.block.bytes
		if t.block.freed != nil {
			t.block.freed()
		}
	}
	return bytes
}

// Completions passes finished tasks from the goroutines that ran them to their worker.
// It gathers several tasks, unless the worker is needed at once.
type Completions struct {
	Notify func() // called when new tasks wait for Take; must not block

	mu        sync.Mutex
	tasks     []*RowTask
	announced bool        // Notify was called after the last Take
	late      *time.Timer // calls remind after gatherTime
}

// If the worker is not needed at once, it is notified after gatherTasks tasks or after
// gatherTime. Waking the worker costs as much as a few rows, and servers have enough
// waiting rows for aheadTime.
const (
	gatherTasks = 128
	gatherTime  = aheadTime / 10
)

// put adds finished tasks. notifyNow means that the worker must be notified at once.
func (o *Completions) put(notifyNow bool, tasks ...*RowTask) {
	if len(tasks) == 0 {
		return
	}
	o.mu.Lock()
	first := len(o.tasks) == 0
	o.tasks = append(o.tasks, tasks...)
	announce := !o.announced && (notifyNow || len(o.tasks) >= gatherTasks)
	switch {
	case announce:
		o.announced = true
	case !first || o.announced:
	case o.late == nil:
		o.late = time.AfterFunc(gatherTime, o.remind)
	default:
		o.late.Reset(gatherTime)
	}
	o.mu.Unlock()
	if announce {
		o.Notify()
	}
}

// remind notifies the worker of tasks that have waited for gatherTime.
func (o *Completions) remind() {
	o.mu.Lock()
	announce := !o.announced && len(o.tasks) > 0
	o.announced = o.announced || announce
	o.mu.Unlock()
	if announce {
		o.Notify()
	}
}

// Take removes and returns the gathered tasks. It uses the memory of spare for new
// tasks.
func (o *Completions) Take(spare []*RowTask) []*RowTask {
	o.mu.Lock()
	defer o.mu.Unlock()
	tasks := o.tasks
	o.tasks, o.announced = spare[:0], false
	return tasks
}

package dispatch

import (
	"sync"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/actors/order"
	"github.com/rowmill/rowmill/internal/tracing"
)

// A Task is one row that is processed on a node.
type Task struct {
	Row     rowmill.Row // its text shares memory with its block
	Out     rowmill.Output
	Shard   int
	Rel     int // number of the row in the shard
	Share   int // the row's share, if rows are assigned by prefix: numbered from 1 in the order of loading; 0 for none
	Behind  int // the shard that limits how long the row may wait, see assign.Span.Behind
	Outcome Outcome
	Cut     bool // only a part of the row's text was sent

	Port     order.Port // the engine that the row was last sent to; set by the worker
	Reserved int64      // bytes that its worker reserved for the answer

	attempts int // requests that count against the row
	failures
	cutting
	tries                  *rowmill.Tries
	due                    time.Time  // the row is not sent again before this time
	apart                  int        // the row may have crashed its server: size of the group in which it is tried, 1 for alone; 0: no suspect
	crashed                int        // times that the server crashed while only this row ran there
	refusals               int        // refusals by a busy server, which cost no attempt
	refusedFrom, refusedAt time.Time  // the first and the last refusal
	expect                 int64      // expected tokens of the prompt and the answer
	avoid                  order.Port // the engine where its last request failed: other engines are better
	block                  *block
	queue                  *Queue // where it was last put
}

// failures counts requests of a row that failed.
type failures struct {
	schemaFailures int // number of attempts with an answer that broke the schema
	status500s     int // number of attempts that were answered with status 500
	lostRequests   int // lost requests that do not count as attempts
	timeouts       int // number of lost requests that were timeouts
}

// cutting says how much of a row's text is sent, so that the server takes the prompt.
type cutting struct {
	shortened int  // times that the server refused the prompt as too long
	unlimited bool // it was last sent without a known limit for its prompt
	sent      int  // bytes of its text in the last request
	most      int  // bytes of its text to send, from the server's count of tokens; 0 if not set
}

// A block counts the tasks that still use the memory of their block of rows.
type block struct {
	bytes int64
	left  int           // number of tasks that are not freed
	span  *tracing.Span // of these rows; nil for none
	freed func()        // called when no task is left; may be nil
}

// NewTasks returns tasks for rows of a shard that share memory. first is the number of
// the shard's first row. bytes is the memory that they use until the last task is freed.
func NewTasks(shard int, first int64, rows []rowmill.Row) (tasks []*Task, bytes int64) {
	slab, shared := make([]Task, len(rows)), &block{left: len(rows)}
	tasks = make([]*Task, len(rows))
	for i, row := range rows {
		t := &slab[i]
		*t = Task{Row: row, Shard: shard, Behind: shard, Rel: int(row.Index - first), block: shared, Port: order.None, avoid: order.None}
		tasks[i] = t
		shared.bytes += t.RowBytes()
	}
	return tasks, shared.bytes
}

// Trace puts the spans of requests below the given span. The tasks must come from one
// call of NewTasks. freed is called when the last task has been freed.
func Trace(tasks []*Task, span *tracing.Span, freed func()) {
	tasks[0].block.span, tasks[0].block.freed = span, freed
}

// Suspect marks a row that may have crashed a server: the task is sent apart from other
// rows, in groups of at most this size. crashes is the number of crashes while the row
// was alone.
func (t *Task) Suspect(group, crashes int) { t.apart, t.crashed = max(group, 1), max(crashes, 0) }

// Suspected returns the values that Suspect takes; group is 0 if the row is no suspect.
func (t *Task) Suspected() (group, crashes int) { return t.apart, t.crashed }

// Attempted reports whether the row has used up an attempt.
func (t *Task) Attempted() bool { return t.attempts > 0 }

// maxLostRequests is the number of lost connections after which a row counts as their cause.
// Each outage of a server costs a row at most one.
const maxLostRequests = 10

// tried records the end of a request that was sent at began. A final output gets all
// recorded attempts.
func (t *Task) tried(a rowmill.Attempt, began time.Time) {
	if t.tries == nil {
		t.tries = new(rowmill.Tries)
	}
	a.At, a.Took = atOf(began), time.Since(began).Truncate(time.Microsecond)
	t.tries.Add(a)
	if t.Outcome == Final {
		t.Out.Tries = t.tries
	}
}

// atOf returns the start time of an attempt, as records have it.
func atOf(began time.Time) time.Time { return began.UTC().Truncate(time.Millisecond) }

// OutputBytes returns the memory of the task's output.
func (t *Task) OutputBytes() int64 {
	n := int64(len(t.Out.Text)+4*len(t.Out.Embedding)) + t.Out.Tries.Bytes()
	if t.Out.Err != nil {
		n += int64(len(t.Out.Err.Raw) + len(t.Out.Err.Message))
	}
	return n
}

// TaskBytes is the memory of a row without its text: the task, and the headers of text
// and id.
const TaskBytes = 320

// RowBytes returns the memory of the task without its output: it is in use from the load of
// the task's block on.
func (t *Task) RowBytes() int64 { return int64(len(t.Row.Text)+len(t.Row.Fields)) + TaskBytes }

// Free clears the row and its output, because queues may hold the task itself for
// longer, and returns the number of bytes that this frees.
func (t *Task) Free() int64 {
	bytes := t.OutputBytes()
	t.Row, t.Out, t.tries = rowmill.Row{}, rowmill.Output{}, nil
	if t.block.left--; t.block.left == 0 {
		bytes += t.block.bytes
		if t.block.freed != nil {
			t.block.freed()
		}
	}
	return bytes
}

// Completions passes finished tasks from the goroutines that ran them to their worker,
// several at a time if the worker is not needed at once.
type Completions struct {
	Notify func() // called when tasks wait that the worker does not know of; must not block

	mu        sync.Mutex
	tasks     []*Task
	announced bool // Notify was called after the last Take
	late      *time.Timer
}

// If the worker is not needed at once, it is notified of its tasks after gatherTasks
// tasks or after gatherTime: waking the worker costs as much as a few rows, and servers
// have rows for aheadTime.
const (
	gatherTasks = 128
	gatherTime  = aheadTime / 10
)

// put adds tasks. soon says that the worker is needed at once.
func (o *Completions) put(soon bool, tasks ...*Task) {
	if len(tasks) == 0 {
		return
	}
	o.mu.Lock()
	first := len(o.tasks) == 0
	o.tasks = append(o.tasks, tasks...)
	announce := !o.announced && (soon || len(o.tasks) >= gatherTasks)
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

// remind announces tasks that have waited for gatherTime.
func (o *Completions) remind() {
	o.mu.Lock()
	announce := !o.announced && len(o.tasks) > 0
	o.announced = o.announced || announce
	o.mu.Unlock()
	if announce {
		o.Notify()
	}
}

// Take returns the gathered tasks. New tasks gather in spare.
func (o *Completions) Take(spare []*Task) []*Task {
	o.mu.Lock()
	defer o.mu.Unlock()
	tasks := o.tasks
	o.tasks, o.announced = spare[:0], false
	return tasks
}

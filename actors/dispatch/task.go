package dispatch

import (
	"sync"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/actors/order"
	"github.com/rowmill/rowmill/internal/tracing"
)

// A Task is one row on its way through the engines of a node.
type Task struct {
	Row     rowmill.Row // its text shares memory with the block it came in
	Out     rowmill.Output
	Shard   int
	Rel     int // row within the shard
	Share   int // of rows that were dealt together, in the order in which they came; 0 for none
	Behind  int // the shard behind which it may stay a few shards, its own unless rows of several are dealt together
	Outcome Outcome
	Cut     bool // not all of its text was sent

	Port     order.Port // where it was last sent; its worker's to set
	Reserved int64      // bytes its worker set aside for the answer on its way

	attempts               int  // requests that count against the row
	breaches               int  // of them, answers that broke the schema
	crashes                int  // of them, those answered with status 500
	faults                 int  // requests lost with their server, which do not
	overdue                int  // of them, those not waited for any longer
	squeezed               int  // times the server said that the prompt was too long
	unlimited              bool // it was sent when no limit of its prompt was known
	sent                   int  // bytes of its text that were sent last
	most                   int  // bytes of its text to send, by what the server said of its tokens; 0 before
	tries                  *rowmill.Tries
	due                    time.Time  // not to be sent again before
	apart                  int        // it may have ended its server: the size of the group that it is tried in, 1 for alone; 0 for none
	crashed                int        // times the server crashed while it was alone there
	refusals               int        // times its server was busy, which cost it nothing
	refusedFrom, refusedAt time.Time  // the first and the last of them
	expect                 int64      // tokens it is expected to cost: its prompt and its answer
	avoid                  order.Port // the engine that failed it; goes elsewhere first
	block                  *block
}

// A block counts the tasks that still use the memory they came in.
type block struct {
	bytes int64
	left  int
	span  *tracing.Span // of these rows; nil for none
	freed func()        // hears that none is left; nil for nobody
}

// NewTasks makes tasks of rows of a shard whose first row is first, which share
// memory. bytes is what they hold until the last of them is freed.
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

// Trace has the requests of tasks that NewTasks made together stand below a span. freed
// hears when the last of them has been freed.
func Trace(tasks []*Task, span *tracing.Span, freed func()) {
	tasks[0].block.span, tasks[0].block.freed = span, freed
}

// Suspect has the task sent apart from others, in groups of a size at most: it may have
// crashed a server, and did so alone so many times.
func (t *Task) Suspect(group, crashes int) { t.apart, t.crashed = max(group, 1), max(crashes, 0) }

// Suspected returns what Suspect takes; a group of 0 for a row that is none.
func (t *Task) Suspected() (group, crashes int) { return t.apart, t.crashed }

// Attempted reports whether a server has refused or answered the row at its cost.
func (t *Task) Attempted() bool { return t.attempts > 0 }

// maxFaults is how many lost connections a row survives before it is taken
// for their cause: each outage of a server costs a row at most one.
const maxFaults = 10

// tried notes how a request ended that was sent at began, and has the output, if
// there is one now, tell of all of them.
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

// atOf is when an attempt is told to have begun.
func atOf(began time.Time) time.Time { return began.UTC().Truncate(time.Millisecond) }

// OutputBytes is what the task's output holds in memory.
func (t *Task) OutputBytes() int64 {
	n := int64(len(t.Out.Text)+4*len(t.Out.Embedding)) + t.Out.Tries.Bytes()
	if t.Out.Err != nil {
		n += int64(len(t.Out.Err.Raw) + len(t.Out.Err.Message))
	}
	return n
}

// TaskBytes is what a row takes beside its text: the task, headers of text and
// id.
const TaskBytes = 320

// RowBytes is what the task holds in memory from the time its block is loaded.
func (t *Task) RowBytes() int64 { return int64(len(t.Row.Text)+len(t.Row.Fields)) + TaskBytes }

// Free lets go of the row's memory, since queues may hold the task itself for
// longer, and returns how many bytes that gives back.
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

// An Outbox hands finished tasks from the goroutines that ran them to their
// worker, several at a time where the worker is not needed at once.
type Outbox struct {
	Notify func() // tasks wait that were not announced; must not block

	mu    sync.Mutex
	tasks []*Task
	told  bool // Notify was called since the last Take
	late  *time.Timer
}

// Where nobody needs the worker before, it hears of its tasks when gatherTasks
// have come or after gatherTime: a wake costs as much as a few rows do, and
// servers have rows for aheadTime.
const (
	gatherTasks = 128
	gatherTime  = aheadTime / 10
)

// put takes in tasks. soon says that the worker is needed at once.
func (o *Outbox) put(soon bool, tasks ...*Task) {
	if len(tasks) == 0 {
		return
	}
	o.mu.Lock()
	first := len(o.tasks) == 0
	o.tasks = append(o.tasks, tasks...)
	announce := !o.told && (soon || len(o.tasks) >= gatherTasks)
	switch {
	case announce:
		o.told = true
	case !first || o.told:
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

// remind announces what has waited for long enough.
func (o *Outbox) remind() {
	o.mu.Lock()
	announce := !o.told && len(o.tasks) > 0
	o.told = o.told || announce
	o.mu.Unlock()
	if announce {
		o.Notify()
	}
}

// Take returns what has gathered, and gathers into spare from now on.
func (o *Outbox) Take(spare []*Task) []*Task {
	o.mu.Lock()
	defer o.mu.Unlock()
	tasks := o.tasks
	o.tasks, o.told = spare[:0], false
	return tasks
}

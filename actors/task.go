package actors

import (
	"sync"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/actors/order"
)

// A task is one row on its way through the engines of a node.
type task struct {
	row      rowmill.Row // its text shares memory with the block it came in
	out      rowmill.Output
	shard    int
	rel      int // row within the shard
	verdict  verdict
	attempts int       // requests that count against the row
	breaches int       // of them, answers that broke the schema
	crashes  int       // of them, those answered with status 500
	faults   int       // requests lost with their server, which do not
	overdue  int       // of them, those not waited for any longer
	squeezed int       // times the server said that the prompt was too long
	cut      bool      // not all of its text was sent
	due      time.Time // not to be sent again before
	reserved int64     // of the budget, for the answer on its way
	block    *loadedBlock
	expect   int64       // tokens it is expected to cost: its prompt and its answer
	via      *enginePort // where it was last sent
	avoid    order.Port  // the engine that failed it; goes elsewhere first
}

// maxFaults is how many lost connections a row survives before it is taken
// for their cause: each outage of a server costs a row at most one.
const maxFaults = 10

// bytes is what the task's output holds in memory.
func (t *task) bytes() int64 {
	n := int64(len(t.out.Text) + 4*len(t.out.Embedding))
	if t.out.Err != nil {
		n += int64(len(t.out.Err.Raw) + len(t.out.Err.Message))
	}
	return n
}

// taskBytes is what a row takes beside its text: the task, headers of text and
// id.
const taskBytes = 320

// loaded is what the task holds in memory from the time its block is loaded.
func (t *task) loaded() int64 { return int64(len(t.row.Text)) + taskBytes }

// free lets go of the row's memory: queues may hold the task itself for longer.
func (t *task) free() { t.row, t.out = rowmill.Row{}, rowmill.Output{} }

// A loadedBlock counts the tasks that still use a block's memory.
type loadedBlock struct {
	bytes int64
	left  int
}

// An outbox hands finished tasks from the goroutines that ran them to their
// shard actor. One message announces any number of tasks.
type outbox struct {
	root  *actor.RootContext
	shard *actor.PID

	mu    sync.Mutex
	tasks []*task
}

func (o *outbox) put(tasks ...*task) {
	o.mu.Lock()
	announce := len(o.tasks) == 0
	o.tasks = append(o.tasks, tasks...)
	o.mu.Unlock()
	if announce {
		o.root.Send(o.shard, rowsFinished{})
	}
}

// empty returns what has gathered, in place of spare.
func (o *outbox) empty(spare []*task) []*task {
	o.mu.Lock()
	defer o.mu.Unlock()
	tasks := o.tasks
	o.tasks = spare[:0]
	return tasks
}

package actors

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/actors/assign"
	"github.com/rowmill/rowmill/actors/dispatch"
	"github.com/rowmill/rowmill/actors/order"
	"github.com/rowmill/rowmill/engine"
	"github.com/rowmill/rowmill/shard"
)

// Messages a shard actor receives.
type (
	adopt struct { // node: the job has this owner now
		owner   *courier
		epoch   int64
		session string
	}
	blockLoaded struct { // its errand
		span  assign.Span
		size  int64         // taken from the budget for it
		input *shard.Reader // open reader of span.Shard
		block *shard.Block
		err   error
	}
	rowsFinished struct{} // an outbox: tasks are waiting in it
	budgetFreed  struct{} // the budget: asking again makes sense
	flushDue     struct{} // itself: write what is finished
	retryDue     struct{} // itself: a pause is over
	reportDue    struct{} // itself: tell the owner how things stand
	partStored   struct { // its errand: a part is durable
		part  assign.Part
		batch *batch
		err   error
	}
	jobLookedUp struct{ over bool } // its errand: what the record says
	drainShard  struct{}            // node: run no further rows, write what is finished
)

// A worker is the shard actor: it runs the rows of one job on one node. It
// asks the job's owner for spans, loads their rows within the node's budget,
// hands them to the engines as those have room, and writes finished rows as
// parts. It outlives the owner: the next one finds it with all that it has.
type worker struct {
	cfg     Config
	name    string // unique for ever
	self    string // address of this node for others; empty on a single node
	job     *jobContext
	node    *actor.PID
	owner   *courier
	metrics *metrics
	budget  *budget
	slots   slots
	work    errand
	all     *sync.WaitGroup
	runs    *sync.WaitGroup // errands that may write objects
	log     *slog.Logger

	outbox  *dispatch.Outbox
	spare   []*dispatch.Task // the outbox's other slice
	ports   map[string]*enginePort
	opened  int            // ports, ever
	rows    *dispatch.Rows // what is loaded and what must wait
	shards  map[int]*shardState
	latest  int // the shard that the last span is of
	todo    []assign.Span
	timers  timers
	written int // parts being written
	cut     unsettled

	agreed   *assign.Worker
	heard    time.Time // when orders last came
	asked    bool      // the owner has been told that there is room
	hungry   bool      // and that there is nothing to do
	warnings []string
	refused  map[string]string // by engine
	fault    *assign.Fault

	exhausted      bool // no rows are left to be dealt
	loading        bool // a block is on its way
	noLoad, noSend bool // the budget was full for blocks; for answers
	draining, over bool
	done           bool  // nothing was left a report ago
	outstanding    int   // tasks at engines
	stalled        bool  // finished rows wait for too long to be committed
	unwritten      int64 // bytes of finished rows that gather
	held           int64 // bytes taken from the budget
	answer         int64 // bytes an answer takes, as learned
}

func (w *worker) Receive(c actor.Context) {
	switch m := c.Message().(type) {
	case *actor.Started:
		w.onStarted(c)
	case enginesChanged:
		w.onEnginesChanged(c, m)
	case queueOpened:
		w.onQueueOpened(c, m)
	case queueRefused:
		w.onQueueRefused(c, m)
	case adopt:
		w.onAdopt(c, m)
	case *assign.Assignment:
		w.onAssignment(c, m)
	case delivered:
		m.by.back(c, w.work)
	case reportDue:
		w.onReportDue(c)
	case jobLookedUp:
		w.onJobLookedUp(c, m)
	case blockLoaded:
		w.onBlockLoaded(c, m)
	case rowsFinished:
		w.onRowsFinished(c)
	case budgetFreed:
		w.onBudgetFreed(c)
	case retryDue:
		w.pump(c)
	case flushDue:
		w.onFlushDue(c)
	case partStored:
		w.onPartStored(c, m)
	case drainShard:
		w.onDrainShard(c)
	case *actor.Stopping:
		w.onStopping()
	default:
		unhandled(c, w.log)
	}
}

func (w *worker) onStarted(c actor.Context) {
	root, self := c.ActorSystem().Root, c.Self()
	w.outbox = &dispatch.Outbox{Notify: func() { root.Send(self, rowsFinished{}) }}
	w.ports = make(map[string]*enginePort)
	w.rows = dispatch.NewRows(w.job.manifest.Rows)
	w.shards = make(map[int]*shardState)
	w.cut = newUnsettled()
	w.refused = make(map[string]string)
	w.answer = firstAnswer
	if w.job.schema.Embedding {
		w.answer = 4 * int64(w.job.spec.Model.Dimension)
	}
	w.heard = time.Now()
	w.timers.after(c, w.cfg.PartInterval, flushDue{})
	w.onReportDue(c)
}

func (w *worker) onEnginesChanged(c actor.Context, m enginesChanged) {
	for _, e := range m.engines {
		_, serves := e.serves(w.job.spec.Model)
		_, open := w.ports[e.name]
		switch {
		case serves && !open && !w.draining:
			c.Request(e.pid, openQueue{job: w.job, out: w.outbox})
		case !serves && open:
			w.closePort(e.name)
		}
	}
	w.pump(c)
}

// closePort forgets an engine.
func (w *worker) closePort(name string) {
	p := w.ports[name]
	delete(w.ports, name)
	w.rows.Leave(p.id)
	w.withdraw(p)
}

func (w *worker) onQueueOpened(c actor.Context, m queueOpened) {
	if _, open := w.ports[m.engine]; open || w.draining {
		return
	}
	w.ports[m.engine] = &enginePort{id: order.Port(w.opened), queue: m.queue}
	w.opened++
	if tokens := m.queue.CacheTokens(); tokens > 0 {
		w.rows.Remember(tokens)
	}
	w.warnings = union(w.warnings, m.queue.Warnings())
	w.report(c)
	w.pump(c)
}

func (w *worker) onQueueRefused(c actor.Context, m queueRefused) {
	if fault, ok := asEngineError(m.err); ok && fault.Class == engine.ServerFault {
		return // its next probe tells
	}
	w.log.Warn("engine cannot run the job", "engine", m.engine, "err", m.err)
	w.refused[m.engine] = m.err.Error()
	w.report(c)
}

func (w *worker) onBudgetFreed(c actor.Context) {
	w.noLoad, w.noSend = false, false
	w.pump(c)
}

func (w *worker) onBlockLoaded(c actor.Context, m blockLoaded) {
	w.loading = false
	if m.err != nil {
		w.broke(c, fmt.Errorf("load rows: %w", m.err))
		return
	}
	st := w.shard(m.span.Shard)
	rest, tasks, bytes := st.unpack(m)
	w.hold(bytes - m.size)
	w.rows.Add(tasks)
	if rest.Count() > 0 {
		w.todo[0] = rest
	} else {
		w.todo = w.todo[1:]
	}
	w.pump(c)
}

func (w *worker) onRowsFinished(c actor.Context) {
	tasks, now := w.outbox.Take(w.spare), time.Now()
	for _, t := range tasks {
		w.outstanding--
		if p := w.port(t.Port); p != nil {
			p.outstanding--
		}
		switch {
		case t.Outcome != dispatch.Final:
			w.unreserve(t)
			w.rows.Retry(t, now)
		case t.Out.Failed() && fatal[t.Out.Err.Code]:
			w.fail(c, &assign.Fault{Row: t.Row.Index, Code: t.Out.Err.Code, Message: t.Out.Err.Message})
		default:
			n := t.OutputBytes()
			w.learn(n)
			if !t.Out.Failed() {
				w.rows.Learn(t)
			}
			w.hold(n - t.Reserved)
			w.agreed.Finished(t.Shard, t.Rel)
			w.unwritten += w.shard(t.Shard).finished(t, now)
		}
	}
	clear(tasks)
	w.spare = tasks
	for n, st := range w.shards {
		if w.drained(n) || w.unwritten >= w.cfg.PartBytes/2 && st.gathered()*2 >= w.unwritten {
			w.flush(c, n)
		}
	}
	if w.unwritten >= w.cfg.PartBytes/2 {
		w.flushAll(c)
	}
	w.pump(c)
}

// fatal are the faults of a row that end its job.
var fatal = map[string]bool{rowmill.RowTooLong: true, rowmill.CodeEngineError: true}

func (w *worker) onFlushDue(c actor.Context) {
	w.timers.after(c, w.cfg.PartInterval, flushDue{})
	w.flushAll(c)
}

func (w *worker) flushAll(c actor.Context) {
	for n := range w.shards {
		w.flush(c, n)
	}
}

// flush writes the finished rows of shard n as a part.
func (w *worker) flush(c actor.Context, n int) {
	st := w.shard(n)
	b := st.done
	st.done = nil
	if w.drained(n) {
		st.close(w.log)
		delete(w.shards, n)
	}
	if b == nil {
		return
	}
	w.unwritten -= b.bytes
	w.written++
	w.cut.cut(b)
	w.work.run(c, func(ctx context.Context) any {
		if !w.slots.write.enter(ctx) {
			return nil
		}
		defer w.slots.write.leave()
		var part assign.Part
		err := patiently(ctx, w.cfg.StoragePatience, w.log, "write part", func() (err error) {
			part, err = writePart(ctx, w.cfg.Blob, w.job, n, b.tasks)
			return err
		})
		return partStored{part: part, batch: b, err: err}
	})
}

func (w *worker) onPartStored(c actor.Context, m partStored) {
	w.written--
	w.release(m.batch.tasks)
	m.batch.tasks = nil
	if m.err != nil {
		w.broke(c, fmt.Errorf("write part: %w", m.err))
		return
	}
	w.cut.wrote(m.part.Key, m.batch)
	w.agreed.Wrote(m.part)
	w.report(c)
	w.pump(c)
}

// release gives the memory of written tasks back.
func (w *worker) release(tasks []*dispatch.Task) {
	var bytes int64
	for _, t := range tasks {
		bytes += t.Free()
	}
	w.hold(-bytes)
}

func (w *worker) hold(bytes int64) {
	w.held += bytes
	w.budget.take(bytes)
}

// onDrainShard gives back what has not been sent and waits for the rest.
func (w *worker) onDrainShard(c actor.Context) {
	w.draining = true
	for name := range w.ports {
		w.closePort(name)
	}
	w.finishDraining(c)
}

func (w *worker) finishDraining(c actor.Context) {
	w.giveBackAll()
	if w.outstanding == 0 && !w.loading {
		w.flushAll(c)
	}
	w.report(c)
}

// left reports whether nothing is left with a worker that drains.
func (w *worker) left() bool {
	return w.draining && w.outstanding == 0 && w.written == 0 && !w.loading && w.unwritten == 0 && w.agreed.Idle()
}

func (w *worker) onStopping() {
	w.timers.stop()
	w.work.cancel()
	for name := range w.ports {
		w.closePort(name)
	}
	w.hold(-w.held)
	if w.stalled {
		w.metrics.stalled.Dec()
	}
	for _, st := range w.shards {
		st.close(w.log)
	}
	w.all.Add(1)
	go func() {
		defer w.all.Done()
		w.runs.Wait()
	}()
}

// drained reports whether all rows of shard n that this worker has are
// written, and no more are on their way as far as it knows.
func (w *worker) drained(n int) bool {
	return w.agreed.Unfinished(n) == 0 && (n != w.latest || w.exhausted)
}

func (w *worker) shard(n int) *shardState {
	st := w.shards[n]
	if st == nil {
		st = &shardState{}
		w.shards[n] = st
	}
	return st
}

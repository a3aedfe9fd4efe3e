package actors

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/engine"
	"github.com/rowmill/rowmill/order"
	"github.com/rowmill/rowmill/shard"
)

// Messages a shard actor receives.
type (
	spansDealt struct { // job: rows to run; none are left when exhausted
		spans     []span
		exhausted bool
	}
	blockLoaded struct { // its errand
		span  span
		size  int64         // taken from the budget for it
		input *shard.Reader // open reader of span.shard
		block *shard.Block
		err   error
	}
	rowsFinished struct{} // an outbox: tasks are waiting in it
	budgetFreed  struct{} // the budget: asking again makes sense
	flushDue     struct{} // itself: write what is finished
	retryDue     struct{} // itself: a pause is over
	partStored   struct { // its errand: a part is on disk
		part  partWritten
		tasks []*task
		bytes int64
		err   error
	}
	partCommitted struct{ key string } // results: the rows of a part are done
	drainShard    struct{}             // job: run no further rows, write what is finished
)

// A worker is the shard actor: it runs the rows of one job on one node. It
// asks the job for spans, loads their rows within the node's budget, hands
// them to the engines as those have room, and writes finished rows as parts.
type worker struct {
	cfg     Config
	job     *jobContext
	owner   *actor.PID // the job
	results *actor.PID
	budget  *budget
	slots   slots
	work    errand
	log     *slog.Logger

	outbox  *outbox
	spare   []*task // the outbox's other slice
	ports   map[string]*enginePort
	opened  int    // ports, ever
	rows    *queue // what is loaded and what must wait
	shards  map[int]*shardState
	todo    []span
	timers  timers
	written int              // parts being written
	parts   map[string]int64 // bytes of parts that wait for their commit

	asked, exhausted   bool // spans were asked for; none are left
	loading            bool // a block is on its way
	noLoad, noSend     bool // the budget was full for blocks; for answers
	draining, reported bool
	outstanding        int   // tasks at engines
	unwritten          int64 // bytes of finished rows that gather
	uncommitted        int64 // bytes of parts on their way
	held               int64 // bytes taken from the budget
	answer             int64 // bytes an answer takes, as learned
}

func (w *worker) Receive(c actor.Context) {
	switch m := c.Message().(type) {
	case *actor.Started:
		w.onStarted(c)
	case enginesChanged:
		w.onEnginesChanged(c, m)
	case laneOpened:
		w.onLaneOpened(c, m)
	case laneRefused:
		w.onLaneRefused(c, m)
	case spansDealt:
		w.onSpansDealt(c, m)
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
	case partCommitted:
		w.onPartCommitted(c, m)
	case drainShard:
		w.onDrainShard(c)
	case *actor.Stopping:
		w.onStopping()
	default:
		unhandled(c, w.log)
	}
}

func (w *worker) onStarted(c actor.Context) {
	w.outbox = &outbox{root: c.ActorSystem().Root, shard: c.Self()}
	w.ports = make(map[string]*enginePort)
	w.rows = newQueue(w.job.manifest.Rows)
	w.shards = make(map[int]*shardState)
	w.parts = make(map[string]int64)
	w.answer = firstAnswer
	if w.job.schema.Embedding {
		w.answer = 4 * int64(w.job.spec.Model.Dimension)
	}
	w.timers.after(c, w.cfg.PartInterval, flushDue{})
}

func (w *worker) onEnginesChanged(c actor.Context, m enginesChanged) {
	for _, e := range m.engines {
		_, serves := e.serves(w.job.spec.Model)
		_, open := w.ports[e.name]
		switch {
		case serves && !open && !w.draining:
			c.Request(e.pid, openLane{job: w.job, out: w.outbox})
		case !serves && open:
			w.closePort(e.name)
		}
	}
	w.pump(c)
}

// closePort forgets an engine. What waited there comes back; what is running
// there comes through the outbox as usual.
func (w *worker) closePort(name string) {
	p := w.ports[name]
	delete(w.ports, name)
	w.rows.now.Leave(p.id)
	back := p.disp.withdraw(p.lane)
	w.outstanding -= len(back)
	p.outstanding -= len(back)
	for _, t := range back {
		w.unreserve(t)
	}
	w.rows.returned(back)
}

func (w *worker) onLaneOpened(c actor.Context, m laneOpened) {
	if _, open := w.ports[m.engine]; open || w.draining {
		return
	}
	w.ports[m.engine] = &enginePort{id: order.Port(w.opened), lane: m.lane, disp: m.disp}
	w.opened++
	if tokens := m.disp.cacheTokens(); tokens > 0 {
		w.rows.now.Remember(tokens * bytesPerToken)
	}
	if warnings := m.lane.call.Warnings(); len(warnings) > 0 {
		c.Send(w.owner, jobWarned{warnings})
	}
	w.pump(c)
}

func (w *worker) onLaneRefused(c actor.Context, m laneRefused) {
	if fault, ok := asEngineError(m.err); ok && fault.Class == engine.ServerFault {
		return // its next probe tells
	}
	w.log.Warn("engine cannot run the job", "engine", m.engine, "err", m.err)
	c.Send(w.owner, engineRefused{engine: m.engine, err: m.err})
}

func (w *worker) onSpansDealt(c actor.Context, m spansDealt) {
	w.asked, w.exhausted = false, m.exhausted
	for _, s := range m.spans {
		w.shard(s.shard).dealt(s)
	}
	w.todo = append(w.todo, m.spans...)
	w.pump(c)
}

func (w *worker) onBudgetFreed(c actor.Context) {
	w.noLoad, w.noSend = false, false
	w.pump(c)
}

func (w *worker) onBlockLoaded(c actor.Context, m blockLoaded) {
	w.loading = false
	if m.err != nil {
		if w.job.ctx.Err() == nil {
			c.Send(w.owner, jobBroke{fmt.Errorf("load rows: %w", m.err)})
		}
		return
	}
	st := w.shard(m.span.shard)
	rest, tasks, bytes := st.unpack(m)
	w.hold(bytes - m.size)
	w.rows.add(tasks)
	if rest.from < rest.to {
		w.todo[0] = rest
	} else {
		w.todo = w.todo[1:]
	}
	w.pump(c)
}

func (w *worker) onRowsFinished(c actor.Context) {
	tasks := w.outbox.empty(w.spare)
	for _, t := range tasks {
		w.outstanding--
		t.via.outstanding--
		switch {
		case t.verdict == unblamed, t.verdict == again:
			w.unreserve(t)
			w.rows.retry(t, time.Now())
		case t.out.Failed() && fatal[t.out.Err.Code]:
			c.Send(w.owner, rowBroke{row: t.row.Index, err: t.out.Err})
		default:
			n := t.bytes()
			w.learn(n)
			if !t.out.Failed() {
				w.rows.learn(t)
			}
			w.unwritten += n + t.loaded()
			w.hold(n - t.reserved)
			w.shard(t.shard).finished(t)
		}
	}
	clear(tasks)
	w.spare = tasks
	for n, st := range w.shards {
		if st.drained() || w.unwritten >= w.cfg.PartBytes/2 && st.bytes*2 >= w.unwritten {
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
	tasks, bytes := st.harvest()
	w.unwritten -= bytes
	if st.over() {
		st.close(w.log)
		delete(w.shards, n)
	}
	if len(tasks) == 0 {
		return
	}
	w.written++
	w.uncommitted += bytes
	w.work.run(c, func(ctx context.Context) any {
		if !w.slots.write.enter(ctx) {
			return nil
		}
		defer w.slots.write.leave()
		part, err := writePart(ctx, w.cfg.Blob, w.job, n, tasks)
		return partStored{part: part, tasks: tasks, bytes: bytes, err: err}
	})
}

func (w *worker) onPartStored(c actor.Context, m partStored) {
	w.written--
	w.release(m.tasks)
	if m.err != nil {
		if w.job.ctx.Err() == nil {
			c.Send(w.owner, jobBroke{fmt.Errorf("write part: %w", m.err)})
		}
		return
	}
	w.parts[m.part.key] = m.bytes
	c.Request(w.results, m.part)
	w.pump(c)
}

func (w *worker) onPartCommitted(c actor.Context, m partCommitted) {
	w.uncommitted -= w.parts[m.key]
	delete(w.parts, m.key)
	w.pump(c)
}

// release gives the memory of written tasks back.
func (w *worker) release(tasks []*task) {
	var bytes int64
	for _, t := range tasks {
		bytes += t.bytes()
		t.free()
		if t.block.left--; t.block.left == 0 {
			bytes += t.block.bytes
		}
	}
	w.hold(-bytes)
}

func (w *worker) hold(bytes int64) {
	w.held += bytes
	w.budget.take(bytes)
}

// onDrainShard takes back what has not been sent and waits for the rest.
func (w *worker) onDrainShard(c actor.Context) {
	w.draining = true
	for name := range w.ports {
		w.closePort(name)
	}
	w.finishDraining(c)
}

func (w *worker) finishDraining(c actor.Context) {
	if w.outstanding > 0 || w.reported {
		return
	}
	w.flushAll(c)
	if w.written == 0 {
		w.reported = true
		c.Send(w.owner, shardDrained{})
	}
}

func (w *worker) onStopping() {
	w.timers.stop()
	w.work.cancel()
	for name := range w.ports {
		w.closePort(name)
	}
	w.hold(-w.held)
	for _, st := range w.shards {
		st.close(w.log)
	}
}

func (w *worker) shard(n int) *shardState {
	st := w.shards[n]
	if st == nil {
		st = &shardState{}
		w.shards[n] = st
	}
	return st
}

package actors

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/actors/assign"
	"github.com/rowmill/rowmill/actors/dispatch"
	"github.com/rowmill/rowmill/actors/work"
	"github.com/rowmill/rowmill/blob/layout"
	"github.com/rowmill/rowmill/engine"
	"github.com/rowmill/rowmill/internal/shard"
	"github.com/rowmill/rowmill/results/archive"
)

// Messages that a worker receives.
type (
	adopt struct { // from the node: the job has this owner now
		owner   *messageLink
		epoch   int64
		session string
	}
	drainWorker struct{} // from the node: start no more rows, and write the finished rows
)

// workerEnded tells the node that a worker has nothing left to do.
type workerEnded struct{ job, worker string }

// A worker runs the rows of a job on a node. It asks the job's owner for spans (ranges
// of rows), loads their rows within the node's budget, gives them to engines with room,
// and writes finished rows as parts. It continues after the job has lost its owner: the
// next owner takes over the worker with all its rows.
type worker struct {
	*deps
	name   string // name of the worker; no other worker ever has the same name
	job    *jobContext
	node   *actor.PID
	owner  *messageLink
	tasks  taskGroup
	writes *sync.WaitGroup // counts the tasks that may write objects
	log    *slog.Logger
	timers timers

	completions *dispatch.Completions
	spare       []*dispatch.RowTask // slice to reuse for the next rows from completions
	rows        *assign.Worker      // the rows that the worker has, and their progress
	memory      *work.WorkerMemory
	trail       *work.WorkerTrace // traces of rows and parts; nil if the job is not traced
	loader      *work.Loader
	sender      *work.Sender
	flusher     *work.Flusher

	started time.Time
	phase   workerPhase
	writing gateWaiters // counts the parts that wait for their turn to be written
	stalled bool        // finished rows have waited too long for a commit
	report  heartbeatState
}

// A workerPhase is a phase in the life of a worker.
type workerPhase uint8

const (
	workerRuns   workerPhase = iota
	workerDrains             // starts no more rows
	workerLeft               // has no rows and parts left; a heartbeat tells the owner
	workerOver               // the node is about to stop the worker
)

func (w *worker) Receive(c actor.Context) {
	switch m := c.Message().(type) {
	case *actor.Started:
		w.onStarted(c)
	case mailboxStep:
		m(c)
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
	case drainWorker:
		w.onDrain(c)
	case *actor.Stopping:
		w.onStopping()
	default:
		logUnhandled(c, w.log)
	}
}

func (w *worker) onStarted(c actor.Context) {
	root, self := c.ActorSystem().Root, c.Self()
	w.completions = &dispatch.Completions{Notify: func() { root.Send(self, mailboxStep(w.onRowsFinished)) }}
	w.memory = w.budget.NewWorkerMemory(w.job.spec.Account, w.job.spec.Priority, func() { root.Send(self, mailboxStep(w.onMemoryFreed)) })
	var answer int64
	if w.job.schema.Embedding {
		answer = 4 * int64(w.job.spec.Model.Dimension)
	}
	w.trail = work.NewWorkerTrace(w.job.trace)
	w.loader = work.NewLoader(w.memory, w.job.manifest.Shards, w.trail, w.openShard)
	w.sender = work.NewSender(w.memory, w.job.manifest.Rows, answer)
	// A part gathers for one interval. Its commit takes up to most of the next
	// interval, because a heartbeat may have to be repeated.
	interval := w.cfg.Parts.Interval
	w.flusher = work.NewFlusher(w.cfg.Parts.Bytes, interval+max(interval, heartbeatInterval)*3/4)
	if w.job.schema.Embedding {
		w.sender.Rows.KeepInputOrder()
		w.flusher.ExpectInputOrder()
	}
	w.started = time.Now()
	w.report = newHeartbeatState(w.started)
	w.onFlushDue(c)
	w.onHeartbeatDue(c)
}

func (w *worker) onEnginesChanged(c actor.Context, m enginesChanged) {
	for _, e := range m.engines {
		_, serves := e.servedModel(w.job.spec)
		switch open := w.sender.HasServer(e.name); {
		case serves && !open && w.phase == workerRuns:
			c.Request(e.pid, openQueue{job: w.job, out: w.completions})
		case !serves && open:
			w.sender.Close(e.name)
		}
	}
	w.startReadyWork(c)
}

func (w *worker) onQueueOpened(c actor.Context, m queueOpened) {
	if w.sender.HasServer(m.engine) || w.phase != workerRuns {
		return
	}
	w.sender.Open(m.engine, m.queue)
	w.report.servers = appendMissing(w.report.servers, []string{m.server})
	w.heartbeat(c)
	w.startReadyWork(c)
}

func (w *worker) onQueueRefused(c actor.Context, m queueRefused) {
	if fault, ok := asEngineError(m.err); ok && fault.Class == engine.ServerFault {
		return // the next probe of the inference server reports this fault
	}
	w.log.Warn("engine cannot run the job", "engine", m.engine, "err", m.err)
	w.report.refused[m.engine] = m.err.Error()
	w.heartbeat(c)
}

// startReadyWork starts all work that is possible now: it sends loaded rows to engines with room,
// loads the next block of rows, asks the owner for rows, and writes finished rows that
// should not wait longer.
func (w *worker) startReadyWork(c actor.Context) {
	if w.phase != workerRuns {
		w.finishDraining(c)
		return
	}
	now := time.Now()
	if pause := w.sender.Rows.WakeDueRetries(now); pause > 0 {
		w.timers.runAfter(c, pause, "retry", w.startReadyWork)
	}
	if w.sender.CountServers() == 0 {
		w.sender.Rows.ReleaseSuspects()
	}
	w.setStalled(w.flusher.HasOverdueRows(now))
	room := w.sender.Room()
	if !w.stalled && !w.flusher.IsBehind() && w.sender.SendRows() {
		w.writeParts(c, w.flusher.CutAll()) // the memory is full, perhaps of finished rows
	}
	if w.sender.WantsRows(room) {
		w.loadRows(c)
	}
	idle := w.sender.Rows.Ready() == 0 && w.loader.Empty()
	hungry := idle && room > 0
	if w.report.shouldAsk(w.loader.WantsSpans() && !w.loader.Exhausted(), hungry, w.countUnsentRows()) {
		w.heartbeat(c)
	}
	if idle && w.sender.Sent() == 0 && w.flusher.HasGatheredRows() {
		w.writeParts(c, w.flusher.CutAll()) // no other row is running, so no more rows would join these parts
	}
}

// setStalled notes whether finished rows wait too long for a commit. While they do, no
// more rows start, and rows that engines have not started are taken back.
func (w *worker) setStalled(stalled bool) {
	if stalled == w.stalled {
		return
	}
	w.stalled = stalled
	if !stalled {
		w.metrics.stalled.Dec()
		w.log.Info("commits of finished rows have resumed; rows start again")
		return
	}
	w.metrics.stalled.Inc()
	w.log.Warn("finished rows wait too long for a commit; no more rows start")
	w.sender.Withdraw()
}

func (w *worker) onMemoryFreed(c actor.Context) {
	w.memory.RepeatRequests(func() {
		w.loader.Resume()
		w.sender.Resume()
		w.startReadyWork(c)
	})
}

// loadRows loads the next block of rows, if there is one and the memory has room.
func (w *worker) loadRows(c actor.Context) {
	load, ok := w.loader.Next(w.sender.Empty() && !w.flusher.HasGatheredRows())
	if !ok {
		return
	}
	w.tasks.run(c, "load rows", func(ctx context.Context) mailboxStep {
		err := w.storage.Retry(ctx, func() error { return load.Run(ctx) })
		return func(c actor.Context) { w.onLoaded(c, load, err) }
	})
}

// openShard opens the input shard of a span for reading.
func (w *worker) openShard(ctx context.Context, s assign.RowSpan) (*shard.Reader, error) {
	return archive.OpenShard(ctx, w.cfg.Blob, w.job.id, w.job.spec, s.Shard, s.Of)
}

func (w *worker) onLoaded(c actor.Context, load work.BlockLoad, err error) {
	if err != nil {
		w.loader.FailLoad(load)
		w.onError(c, fmt.Errorf("load rows: %w", err))
		return
	}
	w.sender.Rows.Add(w.loader.FinishLoad(load))
	w.startReadyWork(c)
}

// failsJob reports whether a task has failed with an error that ends the job. If the
// job allows that rows are cut (TruncateRows), and a cut row is still too long for its
// server, only the row fails.
func (w *worker) failsJob(t *dispatch.RowTask) bool {
	if !t.Out.Failed() {
		return false
	}
	switch t.Out.Err.Code {
	case rowmill.CodeEngineError, rowmill.CodeModelUnavailable:
		return true
	case rowmill.RowTooLong:
		return !w.job.spec.TruncateRows || !t.Attempted()
	}
	return false
}

func (w *worker) onRowsFinished(c actor.Context) {
	tasks, now := w.completions.Take(w.spare), time.Now()
	for _, t := range tasks {
		w.sender.MarkReturned(t)
		switch {
		case t.Outcome != dispatch.Final:
			w.sender.Retry(t, now)
		case w.failsJob(t):
			w.fail(c, &assign.Fault{Row: t.Row.Index, Code: t.Out.Err.Code, Message: t.Out.Err.Message})
		default:
			w.sender.RecordAnswer(t)
			w.rows.MarkFinished(t.Shard, t.Rel)
			w.flusher.Add(t, now)
		}
	}
	clear(tasks)
	w.spare = tasks
	w.closeShards(c)
	w.writeParts(c, w.flusher.CutFull(now))
	w.startReadyWork(c)
}

// closeShards writes the remaining rows of shards that get no more rows, and closes
// these shards.
func (w *worker) closeShards(c actor.Context) {
	for _, n := range w.loader.Shards() {
		if w.rows.CountUnfinished(n) > 0 || !w.loader.IsShardExhausted(n) {
			continue
		}
		w.writeParts(c, w.flusher.Cut(n))
		if err := w.loader.Release(n); err != nil {
			w.log.Warn("closing a shard failed", "err", err)
		}
	}
}

const (
	flushLooks   = 5           // how many times per partAge a worker checks which rows it must write
	firstPartAge = time.Second // partAge of a new worker
	partAgeShare = 20          // later, partAge is the age of the worker divided by this
)

// partAge returns how long finished rows may wait until they are written. A worker that has just
// started writes parts earlier, so that users see progress soon.
func (w *worker) partAge(now time.Time) time.Duration {
	return min(w.cfg.Parts.Interval, max(firstPartAge, now.Sub(w.started)/partAgeShare))
}

// onFlushDue writes the finished rows of each shard that would otherwise wait too long before
// the next check.
func (w *worker) onFlushDue(c actor.Context) {
	now := time.Now()
	age := w.partAge(now)
	next := age / flushLooks
	w.timers.runAfter(c, next, "flush", w.onFlushDue)
	w.writeParts(c, w.flusher.CutDue(now.Add(next-age)))
	w.closeShards(c)
}

// writeParts writes each batch of finished rows as a part, outside of the mailbox.
func (w *worker) writeParts(c actor.Context, batches []*work.Batch) {
	for _, b := range batches {
		span, turn := w.trail.BeginPartSpan(b.Shard), w.writing.joinQueue(w.slots.write, w.job.spec)
		w.tasks.run(c, "write a part", func(ctx context.Context) mailboxStep {
			if !turn(ctx) {
				return nil
			}
			defer w.slots.write.Leave(w.job.spec.Account)
			part, err := runWithResult(w.storageRetrier(ctx), func() (assign.Part, error) {
				return work.WritePart(ctx, w.cfg.Blob, w.job.schema, layout.NewPartKey(w.job.id, b.Shard, w.job.fence.Epoch), b)
			})
			return func(c actor.Context) {
				w.trail.EndSpan(b.Shard, span, err)
				w.onWritten(c, part, b, err)
			}
		})
	}
}

func (w *worker) onWritten(c actor.Context, part assign.Part, b *work.Batch, err error) {
	w.memory.Free(b.Tasks)
	if err != nil {
		w.flusher.MarkFailed(b)
		w.onError(c, fmt.Errorf("write part: %w", err))
		return
	}
	w.flusher.MarkWritten(part.Key, b)
	w.rows.MarkWritten(part)
	w.heartbeat(c)
	w.startReadyWork(c)
}

// onError reports to the owner that this worker cannot continue because of an error.
func (w *worker) onError(c actor.Context, err error) {
	if w.job.ctx.Err() == nil {
		w.fail(c, &assign.Fault{Row: -1, Message: err.Error(), Err: err})
	}
}

// fail reports a fault to the owner, if it is the worker's first fault.
func (w *worker) fail(c actor.Context, f *assign.Fault) {
	if w.report.recordFault(f) {
		w.heartbeat(c)
	}
}

func (w *worker) onStopping() {
	w.timers.stop()
	w.tasks.cancel()
	w.sender.CloseAll()
	w.memory.Close()
	if w.stalled {
		w.metrics.stalled.Dec()
	}
	if err := w.loader.Close(); err != nil {
		w.log.Warn("closing shards failed", "err", err)
	}
	w.all.Go(func() {
		w.writes.Wait()
	})
}

// asEngineError returns the *engine.Error in err, if there is one.
func asEngineError(err error) (*engine.Error, bool) {
	var e *engine.Error
	ok := errors.As(err, &e)
	return e, ok
}

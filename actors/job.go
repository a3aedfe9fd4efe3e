package actors

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/actors/assign"
	"github.com/rowmill/rowmill/actors/commit"
	"github.com/rowmill/rowmill/actors/ingest"
	"github.com/rowmill/rowmill/cluster/peer"
	"github.com/rowmill/rowmill/engine"
	"github.com/rowmill/rowmill/shard"
	"github.com/rowmill/rowmill/store"
	"github.com/rowmill/rowmill/tokenize/prompt"
)

// Messages a job receives.
type (
	ingested struct { // its errand: the input is cut into shards
		rec     store.Record
		input   shard.Manifest
		counter *prompt.Counter
		parts   []store.Part // what earlier owners committed
		err     error
	}
	recordUpdated struct { // its errand
		rec store.Record
		err error
	}
	enginesChanged struct{ engines []engineView } // node
	waitDue        struct{}                       // itself: no engine came in time
	workersDue     struct{}                       // itself: look who is here, and who is silent
	gatherDue      struct{}                       // itself: enough waiting for earlier workers
	recordDue      struct{}                       // itself: look whether the job was cancelled
	partCommitted  struct {                       // results: a part is recorded
		worker string
		part   assign.Part
	}
	booksDiffer    struct{ err error }        // results: the store has other parts than we thought
	jobBroke       struct{ err error }        // results, errands: it cannot go on, or not here
	jobSucceeded   struct{ rec store.Record } // results
	jobEnded       struct{ rec store.Record } // its errand: the end is recorded
	cancelJob      struct{}                   // node: the record says cancelled
	drainJob       struct{}                   // node: stop and give the job back
	resultsDrained struct{}                   // results: all I had is committed
	cleanedUp      struct {
		status   rowmill.Status
		released bool
	}
)

// A job is the actor that owns one job on this node, from claim to end.
type job struct {
	*process
	rec    store.Record
	fence  store.Fence
	node   *actor.PID
	lease  context.Context // the licence to act for the job
	runs   sync.WaitGroup  // errands that may write objects
	work   errand          // ends with the actor
	run    errand          // ends with the job's rows
	log    *slog.Logger    // names the job
	timers timers

	behavior actor.Behavior
	engines  []engineView
	refused  map[string]error // by engine
	job      *jobContext
	rows     int64 // of the whole input
	ledger   *assign.Ledger
	owner    *assign.Owner
	links    map[string]*courier  // by worker
	asked    map[string]time.Time // by address: when a node was last invited
	banned   map[string]time.Time // by address: until when a node is not invited
	looked   time.Time            // when the crew was last looked at
	asking   int                  // invites under way before the first deal
	awaited  map[string]bool      // nodes whose earlier worker has not reported yet
	workers  sync.WaitGroup       // of the job that are being stopped
	results  *actor.PID
	updating bool // a record update is under way
	draining bool
	closing  bool // no further parts are taken
	ending   bool
	stopping bool // its children were told to stop: nothing new may be spawned
}

func (j *job) Receive(c actor.Context) {
	if j.stopping {
		return
	}
	switch m := c.Message().(type) {
	case *actor.Started:
		j.onStarted(c)
	case cancelJob:
		j.stopRows(c)
		j.dismissWorkers(c)
		j.cleanUp(c, rowmill.StatusCancelled, false)
	case jobBroke:
		j.onJobBroke(c, m)
	case *actor.Terminated:
		j.onTerminated(c, m)
	case *actor.Stopping:
		j.onStopping()
	case *assign.Heartbeat:
		if j.results != nil && !j.ending { // else the worker says it again
			j.onHeartbeat(c, m)
		}
	case whereIs:
		if j.owner == nil {
			answer(c, refuse(codeUnknownJob, "the rows of job %s are not counted yet", m.job))
			return
		}
		answer(c, j.owner.Where(m.row))
	default:
		j.behavior.Receive(c)
	}
}

// starting: the input is read, the rows are counted.
func (j *job) starting(c actor.Context) {
	switch m := c.Message().(type) {
	case ingested:
		j.onIngested(c, m)
	case jobSucceeded:
		j.onJobSucceeded(c, m)
	case enginesChanged:
		j.engines = m.engines
	case drainJob:
		j.draining = true // the input is read to its end: it cannot be asked for twice
	default:
		unhandled(c, j.log)
	}
}

// waiting: for an engine that serves the model.
func (j *job) waiting(c actor.Context) {
	switch m := c.Message().(type) {
	case enginesChanged:
		j.engines = m.engines
		j.proceed(c)
	case recordUpdated:
		j.onRecordUpdated(c, m)
	case waitDue:
		j.fail(c, rowmill.Failf(rowmill.CodeModelUnavailable,
			"No engine offered the model %s within %s. Start an inference server that serves it, then submit the job again.", j.rec.Spec.Model.ID, j.cfg.WaitForEngine))
	case drainJob:
		j.draining = true
		if !j.updating {
			j.release(c)
		}
	default:
		unhandled(c, j.log)
	}
}

// running: rows are dealt, run and committed.
func (j *job) running(c actor.Context) {
	switch m := c.Message().(type) {
	case partCommitted:
		j.onPartCommitted(c, m)
	case *invited:
		j.onInvited(c, m)
	case *peer.Refusal: // of this node
		j.onInvited(c, &invited{err: m, epoch: j.fence.Epoch})
	case delivered:
		j.onDelivered(c, m)
	case workersDue:
		j.onWorkersDue(c)
	case gatherDue:
		j.startAssigning(c)
	case recordDue:
		j.onRecordDue(c)
	case enginesChanged:
		j.onEnginesChanged(c, m)
	case booksDiffer:
		j.log.Warn("the store has lost parts that it had acknowledged; beginning again from those it has", "err", m.err)
		j.release(c)
	case recordUpdated:
		j.onRecordUpdated(c, m)
	case jobSucceeded:
		j.onJobSucceeded(c, m)
	case drainJob:
		j.draining = true
		j.drainResults(c)
	case resultsDrained:
		j.release(c)
	default:
		unhandled(c, j.log)
	}
}

// over: the end is being recorded, or is recorded; rows no longer matter.
func (j *job) over(c actor.Context) {
	switch m := c.Message().(type) {
	case jobEnded:
		j.rec = m.rec
		j.cleanUp(c, m.rec.Job.Status, false)
	case cleanedUp:
		// The node stops this actor: that it stopped would overtake the message.
		c.Send(j.node, jobOver{id: j.rec.Job.ID, status: m.status, released: m.released})
	default: // late messages of rows that were stopped
	}
}

func (j *job) onStarted(c actor.Context) {
	j.run = newErrand(j.lease, &j.runs)
	j.work = newErrand(j.lease, j.all)
	j.refused = make(map[string]error)
	j.asked, j.banned, j.awaited = make(map[string]time.Time), make(map[string]time.Time), make(map[string]bool)
	j.behavior = actor.NewBehavior()
	j.behavior.Become(j.starting)
	rec := j.rec
	j.run.run(c, func(ctx context.Context) any {
		m := ingested{rec: rec}
		if m.counter, m.err = j.counters.Counter(rec.Spec.Model, rec.Spec.System); m.err != nil {
			return m
		}
		if m.input, m.err = ingest.Run(ctx, j.cfg.ingest(), &m.rec, j.fence, m.counter); m.err != nil {
			return m
		}
		m.err = j.retry(ctx, "reserve cost", func() error { return ingest.Reserve(ctx, j.cfg.Store, &m.rec, j.fence, m.input) })
		if m.err != nil {
			return m
		}
		m.err = j.retry(ctx, "read parts", func() (err error) {
			m.parts, err = j.cfg.Store.ListParts(ctx, rec.Job.ID)
			return err
		})
		return m
	})
}

func (j *job) onIngested(c actor.Context, m ingested) {
	if m.err == nil {
		j.rec, j.rows = m.rec, m.input.Rows
		if spec := &j.rec.Spec; spec.Estimate {
			if !j.cfg.ingest().Samples(spec, m.input.Size) {
				j.estimate(c, m.input)
				return
			}
			m.input = m.input.FirstRows(m.input.Size.SampleRows)
		}
		j.job, m.err = newJobContext(j.run.ctx, j.cfg, &j.rec, j.fence, m.input, m.counter)
	}
	if m.err == nil {
		j.ledger, m.err = assign.NewLedger(m.input.Shards, m.parts)
	}
	if m.err == nil {
		j.owner, m.err = assign.NewOwner(m.input.Shards, m.parts)
	}
	if m.err != nil {
		j.onJobBroke(c, jobBroke{m.err})
		return
	}
	j.behavior.Become(j.waiting)
	j.timers.after(c, j.cfg.WaitForEngine, waitDue{})
	j.proceed(c)
}

// estimate ends the job with what its input alone tells.
func (j *job) estimate(c actor.Context, input shard.Manifest) {
	usd, e := ingest.Unsampled(&j.rec.Spec, input.Rows, input.Size)
	now := j.cfg.Clock()
	j.run.run(c, func(ctx context.Context) any {
		rec, err := recordEstimate(ctx, j.cfg.Store, j.fence, input.Rows, usd, e, now)
		if err != nil {
			return jobBroke{err}
		}
		return jobSucceeded{rec}
	})
}

// proceed records the number of rows and, once an engine serves the model,
// that the job runs.
func (j *job) proceed(c actor.Context) {
	if j.updating {
		return
	}
	if j.draining {
		j.release(c)
		return
	}
	run, message := j.served(), "Processing rows."
	if !run {
		message = fmt.Sprintf("Waiting for an engine that serves %s.", j.rec.Spec.Model.ID)
	}
	if !run && j.rec.Job.Message == message {
		return
	}
	rows, shards := j.rows, j.ledger.Shards()
	now := j.cfg.Clock()
	j.update(c, func(r *store.Record) {
		if r.Job.NumRows == nil {
			r.Job.NumRows, r.Shards = &rows, shards
		}
		steps := []rowmill.Status{rowmill.StatusStarting}
		if run {
			steps = append(steps, rowmill.StatusRunning)
		}
		advance(&r.Job, steps, now)
		r.Job.Message = message
	})
}

func (j *job) onJobSucceeded(c actor.Context, m jobSucceeded) {
	j.rec = m.rec
	j.stopRows(c)
	j.dismissWorkers(c)
	j.cleanUp(c, rowmill.StatusSucceeded, true)
}

func (j *job) served() bool {
	return slices.ContainsFunc(j.engines, func(e engineView) bool {
		_, ok := e.serves(j.rec.Spec.Model)
		return ok && j.refused[e.name] == nil
	})
}

// update changes the record outside the mailbox.
func (j *job) update(c actor.Context, change func(*store.Record)) {
	j.updating = true
	j.run.run(c, func(ctx context.Context) any {
		var rec store.Record
		err := j.retry(ctx, "update record", func() (err error) {
			rec, err = j.cfg.Store.Update(ctx, j.fence, func(r *store.Record) error {
				change(r)
				return nil
			})
			return err
		})
		return recordUpdated{rec, err}
	})
}

func (j *job) retry(ctx context.Context, what string, do func() error) error {
	return retryStorage(ctx, j.cfg.StoragePatience, j.log, what, do)
}

func (j *job) onRecordUpdated(c actor.Context, m recordUpdated) {
	j.updating = false
	if m.err != nil {
		j.onJobBroke(c, jobBroke{fmt.Errorf("update record: %w", m.err)})
		return
	}
	j.rec = m.rec
	if j.results == nil {
		if j.rec.Job.Status == rowmill.StatusRunning && !j.draining {
			j.startRows(c)
			return
		}
		j.proceed(c)
	}
}

// startRows brings up the actors that do the work.
func (j *job) startRows(c actor.Context) {
	j.timers.stop()
	warning, failure := j.job.pin(j.engines)
	if failure != nil {
		j.fail(c, failure)
		return
	}
	j.behavior.Become(j.running)
	if warning != "" {
		j.update(c, func(r *store.Record) { r.Job.Warnings = union(r.Job.Warnings, []string{warning}) })
	}
	j.links = make(map[string]*courier)
	j.results = c.SpawnPrefix(j.metrics.props("results", func() actor.Actor {
		return &committer{
			process: j.process, job: j.job, owner: c.Self(), rows: j.rows,
			progress: commit.NewProgress(j.ledger, j.cfg.survives(j.ledger.Rows), j.rec.Spec.Estimate),
			files: &commit.Files{
				Bucket: j.cfg.Blob, Schema: j.job.schema, Epoch: j.fence.Epoch, Shards: j.job.manifest.Shards, Retry: j.retry,
			},
			work: newErrand(j.run.ctx, &j.runs), log: j.log,
		}
	}), "results")
	c.Watch(j.results)
	if j.owner.Exhausted() {
		j.owner.Assigning = true
		return
	}
	j.gather(c)
}

func (j *job) onEnginesChanged(c actor.Context, m enginesChanged) {
	before := j.served()
	j.engines = m.engines
	j.inviteNew(c)
	if after := j.served(); after != before {
		message := "Processing rows."
		if !after {
			message = fmt.Sprintf("Waiting for an engine that serves %s; finished rows are kept.", j.rec.Spec.Model.ID)
		}
		j.update(c, func(r *store.Record) { r.Job.Message = message })
	}
}

func (j *job) onRowBroke(c actor.Context, f *assign.Fault) {
	if f.Code == rowmill.RowTooLong {
		j.fail(c, rowmill.Failf(rowmill.CodeRowTooLong, "Row %d does not fit the context of the model: %s", f.Row, f.Message))
		return
	}
	j.fail(c, rowmill.Failf(rowmill.CodeEngineError, "The engine refuses the job (seen at row %d): %s", f.Row, f.Message))
}

func union(have, more []string) []string {
	for _, w := range more {
		if !slices.Contains(have, w) {
			have = append(have, w)
		}
	}
	return have
}

func asEngineError(err error) (*engine.Error, bool) {
	var e *engine.Error
	ok := errors.As(err, &e)
	return e, ok
}

package actors

import (
	"cmp"
	"context"
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
	"github.com/rowmill/rowmill/actors/registry"
	"github.com/rowmill/rowmill/actors/trial"
	"github.com/rowmill/rowmill/cluster/peer"
	"github.com/rowmill/rowmill/internal/shard"
	"github.com/rowmill/rowmill/internal/tracing"
	"github.com/rowmill/rowmill/store"
)

// Messages a job receives, beside heartbeats, answers to invites, and steps.
type (
	cancelJob      struct{} // node: the record says cancelled
	drainJob       struct{} // node: stop and give the job back
	storageChanged struct{} // node: an outage has begun or ended
)

// Messages a job sends to its node, beside requests.
type (
	jobOver struct { // nothing is left to do for it here
		id       string
		status   rowmill.Status
		released bool // it waits for another owner
		unsure   bool // it may still be this node's, for which nobody else takes it
	}
	// jobHarmless says that a job has been worked on here for a while, or waits, and
	// the node lives.
	jobHarmless struct{ id string }
)

// A job is the actor that owns one job on this node, from claim to end.
type job struct {
	*process
	rec     store.Record
	claimed int64 // version of the record after the claim
	fence   store.Fence
	node    *actor.PID
	log     *slog.Logger    // names the job
	tasks   taskGroup       // ends with the job's rows
	writes  *sync.WaitGroup // those, which may write objects
	ending  taskGroup       // ends with the actor
	timers  timers
	trace   *tracing.Job // nil where it is not traced

	adopter  store.Adopter // in the record, until it is known that it does no harm
	harmless bool          // the node knows that
	advanced bool          // rows were recorded here

	phase    jobPhase
	errand   *registry.Errand // while it is jobWaits, for operators
	awaits   *tracing.Span    // likewise
	draining bool             // it is to be given back
	updating bool             // the record is being changed
	engines  []engineView
	refused  map[string]error // by engine: why it cannot run the job
	begun    *begun           // what is read while the rest is, and runs as soon as it can
	whole    bool             // all of the input is read
	input    shard.Manifest   // all of it; of an estimate job runs the first rows
	job      *jobContext
	ledger   *assign.Ledger
	results  *actor.PID     // the committer, once the rows are counted
	early    []partWritten  // what it is to record then
	copies   *ingest.Copies // rows that get the answers of others; nil for none
	copying  bool           // some are being written
	reading  turns          // of the input
	merging  turns          // of the results
	waits    lasting

	owner     *assign.Owner
	links     map[string]*link // by worker
	unwanted  map[string]bool  // workers that were told to let go
	invites   invitations
	waiting   int64          // rows that no worker has, as the metrics say
	looked    time.Time      // when it was last looked who is silent
	dismissed sync.WaitGroup // workers that are being stopped
}

// A jobPhase is how far a job is.
type jobPhase uint8

const (
	jobStarts  jobPhase = iota // the input is read, the rows are counted
	jobWaits                   // for an engine that serves the model
	jobRuns                    // rows are assigned, run and, once the input is whole, recorded
	jobCloses                  // the same, but further parts are for the next owner
	jobEnds                    // its end is being recorded, or is recorded
	jobStopped                 // its children were told to stop: nothing new may be spawned
)

func (j *job) Receive(c actor.Context) {
	if j.phase == jobStopped {
		return
	}
	defer j.showWaiting()
	switch m := c.Message().(type) {
	case *actor.Started:
		j.onStarted(c)
	case *actor.Stopping:
		j.onStopping()
	case step:
		m(c)
	case cancelJob:
		j.onCancelled(c)
	case whereIs:
		j.onWhereIs(c, m)
	case whereRows:
		j.onWhereRows(c, m)
	default:
		if j.phase < jobEnds { // else a late message of what was stopped
			j.receive(c)
		}
	}
}

// showWaiting has the metrics tell how many rows of the job nobody has taken.
func (j *job) showWaiting() {
	waiting := int64(0)
	if j.owner != nil && j.phase < jobEnds {
		waiting = j.owner.Free()
	}
	if waiting != j.waiting {
		j.metrics.undealt.WithLabelValues(j.rec.Spec.Model.ID).Add(float64(waiting - j.waiting))
		j.waiting = waiting
	}
}

// receive takes what matters only before the end.
func (j *job) receive(c actor.Context) {
	switch m := c.Message().(type) {
	case enginesChanged:
		j.onEnginesChanged(c, m)
	case storageChanged:
		j.say(c)
	case *assign.Heartbeat:
		j.onHeartbeat(c, m)
	case *invited:
		j.onInvited(c, "", m, nil)
	case *peer.Refusal: // of this node
		j.onInvited(c, "", nil, m)
	case partsCommitted:
		j.onPartsCommitted(c, m)
	case jobBroke:
		j.broke(c, m.err)
	case jobSucceeded:
		j.onJobSucceeded(c, m.rec)
	case drainJob:
		j.onDrain(c)
	case rowsCopied:
		j.onRowsCopied(c, m)
	case resultsDrained:
		j.release(c)
	case *actor.Terminated:
		j.broke(c, fmt.Errorf("actor %s stopped unexpectedly", m.GetWho().GetId()))
	default:
		unhandled(c, j.log)
	}
}

// onStarted reads the input.
func (j *job) onStarted(c actor.Context) {
	j.refused = make(map[string]error)
	j.invites = newInvitations()
	if j.transport.peers != nil {
		j.timers.after(c, recordInterval, "record", j.lookAtRecord)
	}
	if _, away := j.storage.Objects(); away {
		j.say(c)
	}
	j.timers.after(c, firstLook, "reading", j.lookAtInput)
	if n := len(j.rec.Adopters); n > 0 {
		j.adopter = j.rec.Adopters[n-1]
	}
	j.timers.after(c, trial.Time, "harmless", j.outlived)
	if raw := j.rec.Spec.Raw; raw != nil && raw.Deadline != nil {
		j.timers.after(c, raw.Deadline.Sub(j.cfg.Clock()), "window", j.onWindowClosed)
	}
	in := ingested{rec: j.rec}
	if ingest.Early(&j.rec.Spec) && firstClaim(j.claimed) { // else workers may have rows of what is read only now
		root, self := c.ActorSystem().Root, c.Self()
		in.ready = func(b begun) {
			root.Send(self, step(func(c actor.Context) {
				if j.tasks.ctx.Err() == nil {
					j.onBegun(c, b)
				}
			}))
		}
	}
	j.tasks.run(c, "read the input", func(ctx context.Context) step {
		span := j.trace.Begin("read the input")
		err := j.ingest(ctx, &in)
		span.Set(slog.Int64("rowmill.rows", in.input.Rows), slog.Int("rowmill.shards", len(in.input.Shards)))
		span.End(err)
		return func(c actor.Context) { j.onIngested(c, in, err) }
	})
}

// onWindowClosed ends a batch whose time is up. What is recorded by then counts.
func (j *job) onWindowClosed(c actor.Context) {
	if j.phase >= jobEnds || j.owner != nil && j.owner.Done() { // its result is being made
		return
	}
	j.fail(c, rowmill.Failf(rowmill.CodeWindowExpired,
		"The completion window of %s ended before all requests had run. POST /v1/jobs/%s/resume runs the rest.", j.rec.Spec.Raw.Window, j.rec.Job.ID))
}

// await waits for an engine, and goes on.
func (j *job) await(c actor.Context) {
	j.phase = jobWaits
	j.errand = j.tasks.entry.Begin("wait for an engine")
	j.awaits = j.trace.Begin("wait for an engine")
	j.timers.after(c, j.cfg.Servers.Wait, "wait", func(c actor.Context) {
		j.fail(c, rowmill.Failf(rowmill.CodeModelUnavailable,
			"No engine offered the model %s within %s. Start an inference server that serves it, then submit the job again.", j.rec.Spec.Model.ID, j.cfg.Servers.Wait))
	})
	j.proceed(c)
}

// proceed records the number of rows, once they are counted, and, once an engine
// serves the model, that the job runs.
func (j *job) proceed(c actor.Context) {
	if j.updating || j.draining && !j.whole {
		return
	}
	if j.draining {
		j.release(c)
		return
	}
	run := j.served()
	message, waits := j.message()
	if !run && j.rec.Job.Message == message && len(j.rec.Adopters) == 0 && (j.rec.Shards > 0 || !j.whole) {
		return
	}
	counted := j.counted()
	now, cut := j.cfg.Clock(), j.reads()
	mark := j.mark(!run && j.whole) // while it reads its input that may be what ends us
	j.update(c, func(r *store.Record) {
		counted(r)
		if r.Shards == 0 && r.ShardRows == 0 { // rows run of what the next owner would cut anew
			r.ShardRows, r.ShardBytes = cut.ShardRows, cut.ShardBytes
		}
		steps := []rowmill.Status{rowmill.StatusStarting}
		if run {
			steps = append(steps, rowmill.StatusRunning)
		}
		advance(&r.Job, steps, now)
		r.Say(message, waits, now)
		mark(r)
	})
}

func (j *job) served() bool {
	return slices.ContainsFunc(j.engines, func(e engineView) bool {
		_, ok := e.serves(&j.rec.Spec)
		return ok && j.refused[e.name] == nil
	})
}

// update changes the record outside the mailbox.
func (j *job) update(c actor.Context, change func(*store.Record)) {
	j.updating = true
	j.tasks.run(c, "change the record", func(ctx context.Context) step {
		var rec store.Record
		err := j.storage.WaitHere(ctx, func() (err error) {
			rec, err = j.cfg.Store.Update(ctx, j.fence, func(r *store.Record) error {
				change(r)
				return nil
			})
			return err
		})
		return func(c actor.Context) {
			j.updating = false
			if err != nil {
				j.broke(c, fmt.Errorf("update record: %w", err))
				return
			}
			j.rec = rec
			if len(rec.Adopters) == 0 {
				j.doesNoHarm(c)
			}
			if j.phase == jobWaits {
				j.onProceeded(c)
				return
			}
			j.begin(c)
			j.count(c)
			j.say(c)
		}
	})
}

func (j *job) onProceeded(c actor.Context) {
	if j.rec.Job.Status == rowmill.StatusRunning && !j.draining {
		j.startRows(c)
		return
	}
	j.proceed(c)
}

// startRows brings up the actors that do the work.
func (j *job) startRows(c actor.Context) {
	j.timers.cancel("wait")
	warning, failure := j.job.pin(j.engines)
	if failure != nil {
		j.fail(c, failure)
		return
	}
	j.phase = jobRuns
	j.errand.End()
	j.awaits.End(nil)
	if !j.job.sends(j.rec.Job.Sampling) || warning != "" {
		j.update(c, func(r *store.Record) {
			r.Job.Sampling = j.job.sampling()
			if warning != "" {
				r.Job.Warnings = union(r.Job.Warnings, []string{warning})
			}
		})
	}
	j.links = make(map[string]*link)
	j.unwanted = make(map[string]bool)
	j.count(c)
	if j.owner.Exhausted() {
		j.owner.Assigning = true
		return
	}
	j.gather(c)
}

// startResults brings up the actor that records parts.
func (j *job) startResults(c actor.Context) {
	j.results = c.SpawnPrefix(j.metrics.props(registry.Of{Kind: "results", Job: j.rec.Job.ID}, func(entry *registry.Entry) actor.Actor {
		files := &commit.Files{
			Bucket: j.cfg.Blob, Schema: j.job.schema, Epoch: j.fence.Epoch, Shards: j.job.manifest.Shards,
		}
		return &committer{
			process: j.process, job: j.job, owner: c.Self(), rows: j.input.Rows, copied: j.input.Copies, merging: &j.merging,
			sizes:    j.cfg.pieces(),
			progress: commit.NewProgress(j.ledger, j.cfg.survives(&j.rec.Spec, j.ledger.Rows), j.rec.Spec.Estimate, j.cfg.pieces()),
			files:    files, copies: j.copiesFor(files),
			tasks: newTaskGroup(j.tasks.ctx, j.writes, entry), log: entry.Log(j.log),
		}
	}), "results")
	c.Watch(j.results)
	for _, p := range j.early {
		c.Send(j.results, p)
	}
	j.early = nil
	j.copyRows(c)
	j.drainResults(c)
}

func (j *job) onEnginesChanged(c actor.Context, m enginesChanged) {
	j.engines = m.engines
	switch j.phase {
	case jobStarts:
		j.begin(c)
	case jobWaits:
		j.proceed(c)
	case jobRuns, jobCloses:
		j.inviteNew(c)
		j.say(c)
	}
}

// onDrain begins to give the job back. Input is read to its end: it cannot be
// asked for twice.
func (j *job) onDrain(c actor.Context) {
	j.draining = true
	switch j.phase {
	case jobWaits:
		if !j.updating && j.whole {
			j.release(c)
		}
	case jobRuns:
		j.drainResults(c)
	}
}

func (j *job) onWhereIs(c actor.Context, m whereIs) {
	if j.owner == nil {
		answer(c, notCounted(m.job))
		return
	}
	answer(c, j.owner.Where(m.row))
}

func (j *job) onRowBroke(c actor.Context, f *assign.Fault) {
	switch f.Code {
	case rowmill.RowTooLong:
		j.fail(c, rowmill.Failf(rowmill.CodeRowTooLong, "Row %d does not fit the context of the model: %s", f.Row, f.Message))
	case rowmill.CodeModelUnavailable:
		j.fail(c, rowmill.Failf(rowmill.CodeModelUnavailable, "%s. POST /v1/jobs/%s/resume runs the rest once it does (jobs.wait_for_engine).", f.Message, j.rec.Job.ID))
	default:
		j.fail(c, rowmill.Failf(rowmill.CodeEngineError, "The engine refuses the job (seen at row %d): %s", f.Row, f.Message))
	}
}

// onWhereRows answers from the book: it costs the same however many rows there are.
func (j *job) onWhereRows(c actor.Context, m whereRows) {
	if j.owner == nil || !j.whole {
		answer(c, notCounted(m.Job))
		return
	}
	w := Whereabouts{Nodes: []NodeRows{}}
	w.Complete, w.Shards = j.owner.Complete()
	for _, s := range j.owner.Shares(time.Now()) {
		w.Nodes = append(w.Nodes, NodeRows{Node: j.nameOf(s.Address), Assigned: s.Assigned, Done: s.Done, Rate: s.Rate})
	}
	slices.SortStableFunc(w.Nodes, func(a, b NodeRows) int { return cmp.Compare(a.Node, b.Node) })
	answer(c, w)
}

// nameOf is the name of the node at an address; the address where it has left.
func (j *job) nameOf(address string) string {
	if address == "" {
		return j.cfg.Node
	}
	for _, m := range j.transport.others() {
		if m.Peer == address {
			return m.Node
		}
	}
	return address
}

func notCounted(job string) *peer.Refusal {
	return refuse(codeUnknownJob, "the rows of job %s are not counted yet", job)
}

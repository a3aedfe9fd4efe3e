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
	"github.com/rowmill/rowmill/actors/ingest"
	"github.com/rowmill/rowmill/actors/nodes"
	"github.com/rowmill/rowmill/actors/poison"
	"github.com/rowmill/rowmill/actors/registry"
	"github.com/rowmill/rowmill/cluster/peer"
	"github.com/rowmill/rowmill/cluster/peer/peerv1"
	"github.com/rowmill/rowmill/internal/tracing"
	"github.com/rowmill/rowmill/store"
)

// Messages that a job receives from its node.
type (
	drainJob       struct{} // stop and give the job back
	storageChanged struct{} // an outage of storage has begun or ended
)

// Messages that a job receives from its own slow work and timers. Further ones are
// begun, inputRead, jobEnded, and messages that other actors send too.
type (
	recordChanged struct {
		rec store.Record
		err error
	}
	outlivedRecorded struct{} // the record now says that other jobs may run on this node beside this job
	inviteAnswered   struct {
		address string
		answer  *invited
		err     error
	}
)

// Names of the timers of a job; each comment says what the job does when the timer
// fires.
const (
	recordTimer   timerName = "record"   // read whether the job is cancelled or rescheduled, or has another owner
	readingTimer  timerName = "reading"  // update the message about the input
	harmlessTimer timerName = "harmless" // note that the job has run for poison.Time without a crash of the process
	windowTimer   timerName = "window"   // end a batch at its deadline
	waitTimer     timerName = "wait"     // fail the job, because no engine offered the model in time
	gatherTimer   timerName = "gather"   // stop waiting for heartbeats of workers of earlier owners
	workersTimer  timerName = "workers"  // find silent workers and new nodes
)

// jobHarmless tells the node that this job does not seem to crash the process: the job
// ran for a while, made progress, or waits.
type jobHarmless struct{ id string }

const (
	// gatherTimeout is how long a new owner waits for heartbeats of workers of earlier
	// owners. After that it assigns rows that these workers may still have. The timeout
	// is longer than a message takes, and longer than the time between two heartbeats.
	gatherTimeout = 3 * time.Second
	// recordInterval is the time between reads of the job's record. A client may have
	// cancelled or rescheduled the job, and the hint about it was lost. Or another node may
	// own the job after the store lost its last writes.
	recordInterval = 5 * time.Second
	// If reading the input takes longer than firstLook, the job writes a message about
	// the progress to its record, and updates the message every readingInterval. The
	// interval is not shorter, because each update is a write to the store.
	firstLook       = time.Second
	readingInterval = 5 * time.Second
)

// A job is the actor that owns one job on this node, from claim to end. The decisions
// are made by four structs that know no actors: jobOwnership (the record), inputReader (the
// input), jobWorkers (the workers) and jobEnder (the end). After each message the job actor
// sends the outgoing messages of jobWorkers.
type job struct {
	*deps
	own     *jobOwnership
	in      *inputReader
	crew    *jobWorkers
	closing *jobEnder

	node   *actor.PID
	log    *slog.Logger // has the job's ID
	tasks  taskGroup    // slow work on the rows; cancelled when work on the rows stops
	ending taskGroup    // slow work to end the job; cancelled when the actor stops
	timers timers
	trace  *tracing.JobTrace // nil if the job is not traced

	phase jobPhase
	engineWait
	draining bool        // the job will be given back, because the node drains or the job yields
	yields   bool        // the job is rescheduled, so its rows stop on all nodes before it is given back
	job      *jobContext // nil until the input is read, or its first rows can run
	ledger   *assign.PartLedger
	results  *actor.PID        // the committer; nil until the rows are counted
	early    []partWritten     // parts that wait until the committer exists
	copying  bool              // the committer is writing a part with copied rows
	merging  gateWaiters       // merges of the job that wait for their turn
	waits    lastingWaitReason // why this job waits for other jobs

	reported  nodes.Demand    // the last demand sent to the node
	committed store.RowTotals // sums over the rows that this owner has committed
}

// engineWait is the wait of a job for an engine that serves its model.
type engineWait struct {
	waiting       *registry.RunningTask // the wait, as operators see it; in phase jobWaits
	awaits        *tracing.Span         // trace span of the wait; in phase jobWaits
	rests         lastingWaitReason     // the model, while no engine serves it
	withoutEngine time.Time             // since when no engine serves the model; zero if an engine serves it
}

// A jobPhase is a phase in the life of a job actor.
type jobPhase uint8

const (
	jobStarts  jobPhase = iota // reads the input and counts the rows
	jobWaits                   // waits for an engine that serves the model
	jobRuns                    // assigns and runs rows; records them once the input is whole
	jobCloses                  // like jobRuns, but parts that arrive now are for the next owner
	jobEnds                    // the end of the job is being recorded, or is recorded
	jobStopped                 // the actor is stopping, so it handles no more messages
)

// newJob returns the actor of a job that the node has claimed. The context licence ends
// with the node's lease. writes counts the tasks that may write objects.
func newJob(licence context.Context, p *deps, rec store.Record, fence store.Fence, engines []engineView, writes *sync.WaitGroup, entry *registry.ActorEntry, log *slog.Logger) *job {
	log = entry.Log(log)
	trace := p.cfg.trace(&rec)
	return &job{
		deps: p, log: log, trace: trace,
		own:     newOwnership(p, rec, fence),
		in:      &inputReader{deps: p, fence: fence, trace: trace},
		crew:    newJobWorkers(rec.Spec, log, p.metrics, engines),
		closing: &jobEnder{deps: p, fence: fence, log: log, writes: writes},
		tasks:   newTaskGroup(licence, writes, entry), ending: newTaskGroup(licence, p.all, entry),
	}
}

func (j *job) Receive(c actor.Context) {
	if j.phase == jobStopped {
		return
	}
	defer func() { j.crew.updateWaitingRows(j.phase < jobEnds) }()
	switch m := c.Message().(type) {
	case *actor.Started:
		j.onStarted(c)
	case *actor.Stopping:
		j.onStopping()
		return
	case mailboxStep: // sent by a link after it has delivered a message, or failed to deliver it
		m(c)
	case jobCancelled:
		j.finishJob(c, j.own.cancelledRecord())
	case getRow:
		respondIfAsked(c, j.crew.locateRow(m))
	case *peerv1.LocateRowsRequest:
		respondIfAsked(c, j.crew.rowDistribution(m.GetJob(), j.in.whole, j.nameOf, time.Now()))
	case jobEnded:
		j.onEnded(c, m.rec)
	case jobOver:
		c.Send(j.node, m) // the node stops this actor; if the actor stopped itself, the stop would overtake this message
	default:
		if j.phase < jobEnds { // later messages come from work that was stopped
			j.receive(c)
		}
	}
	for _, l := range j.crew.takeOutgoing() {
		l.body.Job, l.body.Epoch = j.own.fence.JobID, j.own.fence.Epoch
		l.to.send(c, j.tasks, l.body)
	}
}

// receive handles messages that have an effect only until the job ends.
func (j *job) receive(c actor.Context) {
	switch m := c.Message().(type) {
	case timerName:
		j.onTimer(c, m)
	case shardsArrived:
		j.onNewShards(c, m)
	case inputRead:
		j.onInputRead(c, m)
	case recordChanged:
		j.onRecordChanged(c, m)
	case outlivedRecorded:
		j.reportHarmless(c)
	case enginesChanged:
		j.onEnginesChanged(c, m)
	case storageChanged:
		j.updateMessage(c)
	case *assign.Heartbeat:
		j.onHeartbeat(c, m)
	case inviteAnswered:
		j.onInvited(c, m)
	case *invited: // from this node
		j.onInvited(c, inviteAnswered{answer: m})
	case *peer.Refusal: // from this node
		j.onInvited(c, inviteAnswered{err: m})
	case partsCommitted:
		j.onPartsCommitted(c, m)
	case jobError:
		j.onError(c, m.err)
	case jobSucceeded:
		j.finishJob(c, m.rec)
	case drainJob:
		j.onDrain(c)
	case jobRescheduled:
		j.onRescheduled(c)
	case rowsCopied:
		j.onRowsCopied(c, m)
	case resultsDrained:
		j.release(c)
	case *actor.Terminated:
		j.onError(c, fmt.Errorf("actor %s stopped unexpectedly", m.GetWho().GetId()))
	default:
		logUnhandled(c, j.log)
	}
}

func (j *job) onTimer(c actor.Context, name timerName) {
	switch name {
	case recordTimer:
		j.timers.sendAfter(c, recordInterval, recordTimer)
		j.tasks.runAndSend(c, "look up a job", j.own.checkRecord)
	case readingTimer:
		j.timers.sendAfter(c, readingInterval, readingTimer)
		j.updateMessage(c)
	case harmlessTimer:
		change := j.own.markOutlived()
		if change == nil {
			j.reportHarmless(c)
			return
		}
		j.tasks.runAndSend(c, "change the record", func(ctx context.Context) any {
			if _, err := j.own.updateRecord(ctx, change); err != nil {
				return jobError{err}
			}
			return outlivedRecorded{}
		})
	case windowTimer:
		if j.crew.owner == nil || !j.crew.owner.IsFullyCommitted() { // if all rows are done, let the committer make the result
			j.failJob(c, windowFailure(&j.own.rec))
		}
	case waitTimer:
		if spec := &j.own.rec.Spec; spec.Estimate {
			j.tasks.runAndSend(c, "end the job", j.in.unsampledEstimator(spec))
			return
		}
		if j.crew.canStartServer() {
			j.timers.sendAfter(c, j.cfg.Servers.Wait, waitTimer)
			return
		}
		j.failJob(c, rowmill.Failf(rowmill.CodeModelUnavailable,
			"No engine offered the model %s within %s. Start an inference server that serves it, then submit the job again.", j.own.rec.Spec.Model.ID, j.cfg.Servers.Wait))
	case gatherTimer:
		j.startAssigning(c)
	case workersTimer:
		j.checkAndInvite(c)
	}
}

func (j *job) onStarted(c actor.Context) {
	j.node = c.Parent()
	j.closing.node = j.node
	j.reportDemand(c)
	j.timers.sendAfter(c, recordInterval, recordTimer)
	if _, away := j.storage.ObjectsOutage(); away {
		j.updateMessage(c)
	}
	j.timers.sendAfter(c, firstLook, readingTimer)
	j.timers.sendAfter(c, poison.Time, harmlessTimer)
	if raw := j.own.rec.Spec.Raw; raw != nil && raw.Deadline != nil {
		j.timers.sendAfter(c, raw.Deadline.Sub(j.cfg.Clock()), windowTimer)
	}
	var ready func(shardsArrived)
	if ingest.CanRunEarly(&j.own.rec.Spec) && j.own.isFirstOwner() { // only the first owner: otherwise workers of an earlier owner may have these rows
		root, self, tasks := c.ActorSystem().Root, c.Self(), j.tasks
		ready = func(b shardsArrived) {
			root.Send(self, delayedMessage{b, func() bool { return tasks.ctx.Err() != nil }})
		}
	}
	rec := j.own.rec
	j.tasks.runAndSend(c, "read the input", func(ctx context.Context) any { return j.in.readInput(ctx, rec, ready) })
}

// tryToStart moves a job that waits for an engine forward. It records the number of rows
// once they are counted, and status running once an engine serves the model.
func (j *job) tryToStart(c actor.Context) {
	j.reportDemand(c)
	if j.own.updating || j.draining && !j.in.whole {
		return
	}
	if j.draining {
		j.release(c)
		return
	}
	rec, run := &j.own.rec, j.crew.hasEngine()
	message, waits := j.message()
	switch {
	case !run && rec.Job.Message == message && !rec.HasOwnersClaim() && (rec.Shards > 0 || !j.in.whole):
		return
	case run && !rec.HasOwnersClaim() && len(rec.Claims) > 0 && j.own.harmless: // this job must run alone, but other jobs may have started while it waited
		j.log.Info("job given back: it may crash its node, so it must not start while other jobs run on the node")
		j.release(c)
		return
	}
	counted := j.in.rowCountUpdate()
	now, cut := j.cfg.Clock(), j.in.ingestConfig()
	mark := j.own.crashRiskUpdate(!run && j.in.whole) // while the job reads its input, the input may still crash this node
	j.updateRecord(c, func(r *store.Record) {
		counted(r)
		if r.Shards == 0 && r.ShardRows == 0 { // rows run before the whole input is read, so the next owner must cut the input the same way
			r.ShardRows, r.ShardBytes = cut.ShardRows, cut.ShardBytes
		}
		steps := []rowmill.Status{rowmill.StatusStarting}
		if run {
			steps = append(steps, rowmill.StatusRunning)
		}
		advanceStatus(&r.Job, steps, now)
		r.SetMessage(message, waits, now)
		mark(r)
	})
}

// updateRecord changes the job's record in the store, outside of the mailbox; recordChanged
// brings the result.
func (j *job) updateRecord(c actor.Context, change func(*store.Record)) {
	j.own.updating = true
	j.tasks.runAndSend(c, "change the record", func(ctx context.Context) any {
		rec, err := j.own.updateRecord(ctx, change)
		return recordChanged{rec, err}
	})
}

func (j *job) onRecordChanged(c actor.Context, m recordChanged) {
	j.own.updating = false
	if m.err != nil {
		j.onError(c, fmt.Errorf("update record: %w", m.err))
		return
	}
	j.own.rec = m.rec
	if len(m.rec.Claims) == 0 {
		j.reportHarmless(c)
	}
	switch {
	case j.phase == jobWaits && m.rec.Job.Status == rowmill.StatusRunning && !j.draining:
		j.startRows(c)
	case j.phase == jobWaits:
		j.tryToStart(c)
	default:
		j.startEarlyRows(c)
		j.tryStartCommitter(c)
		j.updateMessage(c)
	}
}

func (j *job) onEnginesChanged(c actor.Context, m enginesChanged) {
	j.crew.engines = m.engines
	switch j.phase {
	case jobStarts:
		j.startEarlyRows(c)
	case jobWaits:
		j.tryToStart(c)
	case jobRuns, jobCloses:
		j.inviteNew(c)
		j.updateMessage(c)
	}
}

// onDrain starts to give the job back. If this node is downloading the input, or rows run
// while the input is still being read, the job reads its input to the end first: no other
// node can download the input again.
func (j *job) onDrain(c actor.Context) {
	j.draining = true
	switch j.phase {
	case jobStarts:
		if !j.downloads.Running(j.own.fence.JobID) {
			j.release(c)
		}
	case jobWaits:
		if !j.own.updating && j.in.whole {
			j.release(c)
		}
	case jobRuns:
		j.drainResults(c)
	}
}

// onRescheduled starts to give the job back, so that it waits until its pause ends, or a node
// claims it with its new priority. Rows that servers run already finish first, because their
// GPU time is spent.
func (j *job) onRescheduled(c actor.Context) {
	if j.draining {
		return
	}
	j.log.Info("job yields: a client paused it or changed its priority")
	j.yields = true
	j.crew.recallRows()
	j.onDrain(c)
}

// reportHarmless tells the node once that this job has not crashed it, so the node may
// claim other jobs beside it.
func (j *job) reportHarmless(c actor.Context) {
	if j.own.harmless {
		return
	}
	j.own.harmless = true
	if j.crew.owner != nil {
		j.crew.owner.LiftWaryLimit()
		j.crew.assignRows()
	}
	j.timers.cancel(harmlessTimer)
	c.Send(j.node, jobHarmless{j.own.fence.JobID})
}

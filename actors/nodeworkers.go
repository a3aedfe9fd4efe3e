package actors

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/actors/assign"
	"github.com/rowmill/rowmill/actors/nodes"
	"github.com/rowmill/rowmill/actors/registry"
	"github.com/rowmill/rowmill/actors/storage"
	"github.com/rowmill/rowmill/cluster/peer"
	"github.com/rowmill/rowmill/cluster/peer/peerv1"
	"github.com/rowmill/rowmill/internal/panics"
	"github.com/rowmill/rowmill/internal/shard"
	"github.com/rowmill/rowmill/results/archive"
	"github.com/rowmill/rowmill/store"
)

// nodeWorkers is the part of the node actor that runs workers, one for each job with
// rows on this node. The struct workers decides whether to start or stop a worker.
type nodeWorkers struct {
	nodePart
	reach    *bucketReach
	cleaner  *cleaner
	engines  *engines
	workers  workerTable
	draining bool
}

// onInvite handles an owner's request to work for a job. It starts a worker, or gives
// the present worker its new owner, or refuses.
func (n *nodeWorkers) onInvite(c actor.Context, m *invite) {
	if h := n.workers.running[m.Job]; h != nil && m.Epoch > h.epoch {
		n.checkClaim(c, m, c.Sender())
		return
	}
	n.admitInvite(c, m, c.Sender())
}

// claimPatience is how long checkClaim waits for the records: less than an owner waits for the
// answer to an invite. An owner that waits longer gives the rows of the worker to others.
const claimPatience = 500 * time.Millisecond

// checkClaim admits an invite from a new owner unless the records do not have its claim. In a split
// of Redis the losing side may claim the job again, with a later epoch than the real owner: a
// worker that followed it would refuse the real owner. If the records do not answer, the later
// epoch wins.
func (n *nodeWorkers) checkClaim(c actor.Context, m *invite, asker *actor.PID) {
	n.tasks.run(c, "check a claim", func(ctx context.Context) mailboxStep {
		ctx, cancel := context.WithTimeout(ctx, claimPatience)
		defer cancel()
		rec, err := n.cfg.Store.Get(ctx, m.Job)
		return func(c actor.Context) {
			if err == nil && rec.Epoch < m.Epoch {
				answer(c, asker, unknownClaim(&rec))
				return
			}
			n.admitInvite(c, m, asker)
		}
	})
}

// unknownClaim returns the refusal of an owner: the record does not have its claim.
func unknownClaim(rec *store.Record) *peer.Refusal {
	return refuse(codeStale, "the records do not have this claim; they have epoch %d", rec.Epoch)
}

// admitInvite does the work of onInvite after the check of the claim. asker may be nil.
func (n *nodeWorkers) admitInvite(c actor.Context, m *invite, asker *actor.PID) {
	h, refused := n.workers.admit(m, n.draining, time.Now())
	switch {
	case refused != nil:
		answer(c, asker, refused)
	case h != nil:
		h.owner = n.linkTo(m)
		c.Send(h.pid, adopt{h.owner, m.Epoch, m.Session})
		answer(c, asker, &invited{Working: true})
	case n.reach.bucketState() == nodes.Away:
		n.workers.recordStartResult(m.Job, nil)
		answer(c, asker, refuse(codeAway, "this node cannot use object storage now"))
	default:
		answer(c, asker, &invited{}) // answer before the start, which may take longer than the owner waits for an answer
		n.startWorker(c, m)
	}
}

func (n *nodeWorkers) linkTo(m *invite) *messageLink {
	return &messageLink{local: m.owner, transport: n.transport, address: m.Address}
}

// startWorker reads the job's record and manifest, and spawns the worker.
func (n *nodeWorkers) startWorker(c actor.Context, m *invite) {
	runs := &sync.WaitGroup{}
	work := newTaskGroup(context.Background(), runs, nil) // spawnWorker sets the entry
	n.tasks.run(c, "start a worker", func(ctx context.Context) mailboxStep {
		job, err := runWithResult(panics.Catch, func() (*jobContext, error) { return n.loadContext(ctx, m, work) })
		return func(c actor.Context) {
			switch {
			case err != nil:
			case n.draining:
				err = refuse(codeDraining, "the node is draining")
			case !n.engines.serves(job.spec):
				err = refuse(codeNoEngine, "no engine here serves %s now", job.spec.Model.ID)
			default:
				n.spawnWorker(c, m, job, work, runs)
				return
			}
			work.cancel() // the owner will send another invite
			n.workers.recordStartResult(m.Job, nil)
			var known *peer.Refusal
			if errors.As(err, &known) || storage.IsTransient(err) {
				n.log.Debug("this node did not start a worker for the job", "job", m.Job, "err", err)
			} else {
				n.log.Warn("starting a worker failed; the job's owner will invite this node again", "job", m.Job, "err", err)
			}
		}
	})
}

// loadContext returns the context of a job, made from the job's record and manifest.
func (n *nodeWorkers) loadContext(ctx context.Context, m *invite, work taskGroup) (*jobContext, error) {
	rec, err := n.cfg.Store.Get(ctx, m.Job)
	switch {
	case err != nil:
		return nil, err
	case rec.Job.Status.IsTerminal():
		return nil, refuse(codeUnknownJob, "job %s is over", m.Job)
	case rec.Epoch > m.Epoch:
		return nil, refuse(codeStale, "the record has epoch %d", rec.Epoch)
	case rec.Epoch < m.Epoch:
		return nil, unknownClaim(&rec)
	}
	count, err := n.counters.NewCounter(&rec.Spec)
	if err != nil {
		return nil, err
	}
	var input shard.Manifest
	switch {
	case rec.Spec.Inline != nil:
		input = shard.InlineManifest(rec.Spec.Inline)
	case m.Input != nil:
		input = *m.Input
	default:
		if input, err = archive.ReadManifest(ctx, n.cfg.Blob, &rec); err != nil {
			return nil, err
		}
	}
	fence := store.Fence{JobID: m.Job, Session: rec.Session, Epoch: m.Epoch}
	job, err := newJobContext(work.ctx, n.cfg, &rec, fence, input, count)
	if err != nil {
		return nil, err
	}
	job.context, job.maxTokens = m.Context, m.MaxTokens
	return job, nil
}

func (n *nodeWorkers) spawnWorker(c actor.Context, m *invite, job *jobContext, work taskGroup, runs *sync.WaitGroup) {
	h := &workerHandle{name: n.workers.name(), epoch: m.Epoch, remote: m.owner == nil, owner: n.linkTo(m), runs: runs}
	log := job.trace.WithTraceID(n.deps.log.With("job", m.Job))
	h.pid = c.SpawnPrefix(n.metrics.props(registry.ActorIdentity{Kind: "worker", Job: m.Job}, func(entry *registry.ActorEntry) actor.Actor {
		work.entry = entry
		return &worker{
			deps: n.deps, name: h.name, job: job, node: c.Self(), owner: h.owner, tasks: work, writes: runs, log: entry.Log(log),
			rows: assign.NewWorker(h.name, m.Epoch, m.Session),
		}
	}), fmt.Sprintf("worker-%s-%d", m.Job, m.Epoch))
	c.Watch(h.pid)
	n.workers.recordStartResult(m.Job, h)
	n.metrics.workers.Set(float64(len(n.workers.running)))
	c.Send(h.pid, enginesChanged{n.engines.own})
}

func (n *nodeWorkers) onEnded(c actor.Context, m workerEnded) {
	if h := n.workers.find(m.job, m.worker); h != nil {
		n.stopWorker(c, m.job, h, nil, nil)
	}
}

// onDismiss stops the worker and the compactions of a job that has ended.
func (n *nodeWorkers) onDismiss(c actor.Context, m *peerv1.DismissRequest) {
	job := m.GetJob()
	h, refused := n.workers.dismiss(job, m.GetEpoch())
	if refused != nil {
		respondIfAsked(c, refused)
		return
	}
	written := n.compactions.CancelJob(job)
	switch {
	case h != nil:
		n.stopWorker(c, job, h, c.Sender(), written)
	case written == nil:
		respondIfAsked(c, accepted{})
	default:
		n.answerAfterWrites(c, c.Sender(), written)
	}
}

// answerAfterWrites waits for the last writes of the ended compactions by calling written,
// and then answers asker.
func (n *nodeWorkers) answerAfterWrites(c actor.Context, asker *actor.PID, written func()) {
	root := c.ActorSystem().Root
	n.tasks.run(c, "end compactions", func(context.Context) mailboxStep {
		written()
		if asker != nil {
			root.Send(asker, accepted{})
		}
		return nil
	})
}

// stopWorker stops a worker. It answers asker when the worker has stopped and all
// writes of the job's objects have ended; asker may be nil. written waits for the job's
// compactions; nil if there are none.
func (n *nodeWorkers) stopWorker(c actor.Context, job string, h *workerHandle, asker *actor.PID, written func()) {
	n.workers.markStopping(job)
	n.metrics.workers.Set(float64(len(n.workers.running)))
	root := c.ActorSystem().Root
	n.tasks.run(c, "stop a worker", func(context.Context) mailboxStep {
		if err := root.StopFuture(h.pid).Wait(); err != nil {
			n.log.Warn("stopping the worker failed", "job", job, "err", err)
		}
		h.runs.Wait()
		if written != nil {
			written()
		}
		if asker != nil {
			root.Send(asker, accepted{})
		}
		return func(c actor.Context) {
			n.workers.forget(job)
			n.cleaner.cleanUpAfterWrites(c, job, asker != nil, func() {})
		}
	})
}

// onPanicked tells the job's owner that a worker has panicked. The worker does not
// start again, because its rows would probably cause the same panic.
func (n *nodeWorkers) onPanicked(c actor.Context, job string, h *workerHandle) {
	n.workers.forget(job)
	n.metrics.workers.Set(float64(len(n.workers.running)))
	last := &assign.Heartbeat{
		Job: job, Epoch: h.epoch, Worker: h.name, Address: n.address,
		Fresh: true, // the owner may not know this worker yet
		Fault: &assign.Fault{Row: -1, Code: rowmill.CodeInternalError, Message: "the worker had an internal error; the log of its node has the cause"},
	}
	if h.remote {
		n.tell(c, h.owner.address, last)
	} else {
		c.RequestWithCustomSender(h.owner.local, last, h.pid)
	}
	n.cleaner.cleanUpAfterWrites(c, job, false, h.runs.Wait)
}

// onTerminated handles the stop of a worker after a panic. It returns false if the
// stopped actor is not a worker.
func (n *nodeWorkers) onTerminated(c actor.Context, who *actor.PID) bool {
	for job, h := range n.workers.running {
		if h.pid.Equal(who) {
			n.onPanicked(c, job, h)
			return true
		}
	}
	return false
}

func (n *nodeWorkers) drain(c actor.Context) {
	n.draining = true
	n.tellAll(c, drainWorker{})
}

func (n *nodeWorkers) tellAll(c actor.Context, m any) {
	for _, h := range sortedByKey(n.workers.running) {
		c.Send(h.pid, m)
	}
}

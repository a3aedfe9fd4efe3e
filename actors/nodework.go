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
	"github.com/rowmill/rowmill/actors/ingest"
	"github.com/rowmill/rowmill/cluster/peer"
	"github.com/rowmill/rowmill/shard"
	"github.com/rowmill/rowmill/store"
)

// This half of the node keeps its workers: one for each job that it runs rows
// of, whoever owns the job.

// Messages a node receives about its workers.
type (
	hired struct { // its errand: what a worker needs
		invite *invite
		work   errand
		runs   *sync.WaitGroup
		job    *jobContext
		err    error
	}
	workerOver   struct{ job, worker string } // worker: nothing is left for it to do
	workerLetGo  struct{ job string }         // its errand: the worker has stopped
	fromPeer     struct{ body any }           // System: a message of another node, to be answered
	peerAccepted struct{}                     // the answer to most of them
)

// A placement is a worker on this node.
type placement struct {
	pid   *actor.PID
	name  string
	epoch int64
	owner *courier
	runs  *sync.WaitGroup
}

// Codes of refusals between nodes.
const (
	codeUnknownJob = "unknown_job" // nobody here has to do with it
	codeStale      = "stale"       // a later owner is known
	codeNoEngine   = "no_engine"   // nothing here serves the model
	codeDraining   = "draining"
	codeBusy       = peer.CodeBusy // ask again
)

func refuse(code, format string, args ...any) *peer.Refusal {
	return &peer.Refusal{Code: code, Message: fmt.Sprintf(format, args...)}
}

func (n *node) onFromPeer(c actor.Context, m fromPeer) {
	switch body := m.body.(type) {
	case *invite:
		n.onInvite(c, body)
	case *assign.Heartbeat:
		n.pass(c, n.jobs[body.Job], body.Job, body)
	case *assign.Assignment:
		if w := n.workers[body.Job]; w != nil && w.name == body.Worker {
			n.pass(c, w.pid, body.Job, body)
			return
		}
		n.pass(c, nil, body.Job, body)
	case *dismiss:
		n.onDismiss(c, body)
	case hint:
		c.Respond(peerAccepted{})
		if body.Cancelled {
			n.onJobCancelled(c, jobCancelled{id: body.Job, told: true})
		} else {
			n.claim(c, body.Job)
		}
	case drainNode:
		c.Respond(peerAccepted{})
		n.onDrainNode(c)
		n.system.askToDrain()
	default:
		c.Respond(refuse(peer.CodeUnknownKind, "a message of type %T", body))
	}
}

// pass hands a message of another node to who it is for.
func (n *node) pass(c actor.Context, to *actor.PID, job string, body any) {
	if to == nil {
		c.Respond(refuse(codeUnknownJob, "job %s is not known here", job))
		return
	}
	c.Send(to, body)
	c.Respond(peerAccepted{})
}

// onInvite hires a worker for a job, or tells the one there is who asks now.
func (n *node) onInvite(c actor.Context, m *invite) {
	w := n.workers[m.Job]
	switch {
	case n.draining && w == nil:
		c.Respond(refuse(codeDraining, "the node is draining"))
	case w != nil && m.Epoch < w.epoch:
		c.Respond(refuse(codeStale, "epoch %d is known", w.epoch))
	case w != nil:
		w.epoch, w.owner = m.Epoch, n.courierTo(m)
		c.Send(w.pid, adopt{w.owner, m.Epoch, m.Session})
		c.Respond(&invited{Working: true})
	case n.hiring[m.Job] || n.leaving[m.Job] > 0:
		c.Respond(refuse(codeBusy, "a worker is being set up or taken down"))
	case m.owner == nil && n.guests() >= n.cfg.MaxActive:
		c.Respond(refuse(codeBusy, "the node works for %d jobs of others", n.cfg.MaxActive))
	default:
		n.hire(c, m)
	}
}

// guests is how many jobs of other nodes rows are run of here.
func (n *node) guests() (count int) {
	for _, w := range n.workers {
		if w.owner.local == nil {
			count++
		}
	}
	return count
}

func (n *node) courierTo(m *invite) *courier {
	return &courier{local: m.owner, post: n.system.post, address: m.Address, kind: kindHeartbeat}
}

// hire reads what a worker needs to know.
func (n *node) hire(c actor.Context, m *invite) {
	n.hiring[m.Job] = true
	c.Respond(&invited{}) // setting a worker up may take longer than a message
	runs := &sync.WaitGroup{}
	work := newErrand(context.Background(), runs)
	h := hired{invite: m, work: work, runs: runs}
	n.work.run(c, func(ctx context.Context) any {
		h.job, h.err = n.brief(ctx, m, work)
		return h
	})
}

// brief makes the context of a job from its record and its manifest.
func (n *node) brief(ctx context.Context, m *invite, work errand) (*jobContext, error) {
	rec, err := n.cfg.Store.Get(ctx, m.Job)
	switch {
	case err != nil:
		return nil, err
	case rec.Job.Status.Terminal():
		return nil, refuse(codeUnknownJob, "job %s is over", m.Job)
	case rec.Epoch > m.Epoch:
		return nil, refuse(codeStale, "epoch %d is in the record", rec.Epoch)
	}
	count, err := n.counters.Counter(rec.Spec.Model, rec.Spec.System)
	if err != nil {
		return nil, err
	}
	input := shard.Inline(rec.Spec.Inline)
	if rec.Spec.Inline == nil {
		if input, err = ingest.ReadManifest(ctx, n.cfg.Blob, m.Job); err != nil {
			return nil, err
		}
	}
	if m.Sample > 0 {
		input = input.FirstRows(m.Sample)
	}
	fence := store.Fence{JobID: m.Job, Session: rec.Session, Epoch: m.Epoch}
	job, err := newJobContext(work.ctx, n.cfg, &rec, fence, input, count)
	if err != nil {
		return nil, err
	}
	job.context, job.maxTokens = m.Context, m.MaxTokens
	return job, nil
}

func (n *node) onHired(c actor.Context, m hired) {
	delete(n.hiring, m.invite.Job)
	err := m.err
	if err == nil && n.draining {
		err = refuse(codeDraining, "the node is draining")
	}
	if err == nil && !slices.ContainsFunc(n.engines, func(v engineView) bool { _, ok := v.serves(m.job.spec.Model); return ok }) {
		err = refuse(codeNoEngine, "no engine here serves %s now", m.job.spec.Model.ID)
	}
	if err != nil {
		m.work.cancel() // whoever asked asks again
		var known *peer.Refusal
		if errors.As(err, &known) {
			n.log.Debug("no worker set up", "job", m.invite.Job, "err", err)
		} else {
			n.log.Warn("set up a worker", "job", m.invite.Job, "err", err)
		}
		n.reportDrained()
		return
	}
	n.place(c, m)
}

// place spawns a worker.
func (n *node) place(c actor.Context, m hired) {
	id := m.invite.Job
	n.placed++
	name := fmt.Sprintf("%s-%s-%d", n.cfg.Node, n.nonce, n.placed)
	w := &placement{name: name, epoch: m.invite.Epoch, owner: n.courierTo(m.invite), runs: m.runs}
	log := n.log.With("job", id)
	w.pid = c.SpawnPrefix(n.metrics.props("worker", func() actor.Actor {
		return &worker{
			cfg: n.cfg, name: name, self: n.address(), job: m.job, node: c.Self(), owner: w.owner,
			metrics: n.metrics, budget: n.budget, slots: n.slots, work: m.work, all: n.all, runs: m.runs, log: log, agreed: assign.NewWorker(name, m.invite.Epoch, m.invite.Session),
		}
	}), fmt.Sprintf("worker-%s-%d", id, m.invite.Epoch))
	c.Watch(w.pid)
	n.workers[id] = w
	n.metrics.workers.Set(float64(len(n.workers)))
	c.Send(w.pid, enginesChanged{n.engines})
}

func (n *node) onWorkerOver(c actor.Context, m workerOver) {
	if w := n.workers[m.job]; w != nil && w.name == m.worker {
		n.letGo(c, m.job, w, nil)
	}
}

// letGo stops a worker and, once it has, answers asker.
func (n *node) letGo(c actor.Context, job string, w *placement, asker *actor.PID) {
	delete(n.workers, job)
	n.metrics.workers.Set(float64(len(n.workers)))
	n.leaving[job]++
	root := c.ActorSystem().Root
	n.work.run(c, func(context.Context) any {
		if err := root.StopFuture(w.pid).Wait(); err != nil {
			n.log.Warn("stop worker", "job", job, "err", err)
		}
		w.runs.Wait()
		if asker != nil {
			root.Send(asker, peerAccepted{})
		}
		return workerLetGo{job}
	})
}

func (n *node) onWorkerLetGo(m workerLetGo) {
	if n.leaving[m.job]--; n.leaving[m.job] <= 0 {
		delete(n.leaving, m.job)
	}
	n.reportDrained()
}

// onDismiss ends the work for a job that is over.
func (n *node) onDismiss(c actor.Context, m *dismiss) {
	w := n.workers[m.Job]
	switch {
	case w != nil && w.epoch <= m.Epoch:
		n.letGo(c, m.Job, w, c.Sender())
	case w == nil && (n.hiring[m.Job] || n.leaving[m.Job] > 0):
		c.Respond(refuse(codeBusy, "a worker is being set up or taken down"))
	default:
		c.Respond(peerAccepted{})
	}
}

// onWorkerPanicked tells the owner that a worker is gone: its rows would meet
// the same fault again.
func (n *node) onWorkerPanicked(c actor.Context, job string, w *placement) {
	delete(n.workers, job)
	n.metrics.workers.Set(float64(len(n.workers)))
	last := &assign.Heartbeat{
		Job: job, Epoch: w.epoch, Worker: w.name, Address: n.address(),
		Fresh: true, // the owner may not have heard of it before
		Fault: &assign.Fault{Row: -1, Code: rowmill.CodeInternalError, Message: "the worker met a fault of its own; the log of its node says which"},
	}
	if w.owner.local != nil {
		c.RequestWithCustomSender(w.owner.local, last, w.pid)
		return
	}
	owner := &courier{post: w.owner.post, address: w.owner.address, kind: kindHeartbeat} // that of the worker died with it
	owner.send(c, n.work, parcel{job, w.epoch, last})
}

// address is where other nodes reach this one; empty on a single node.
func (n *node) address() string {
	if n.cfg.Peers == nil {
		return ""
	}
	return n.cfg.Peers.Self().Peer
}

// claimLater notes an orphan that another node should claim first, and claims
// it when that has not happened in time.
func (n *node) claimLater(c actor.Context, orphans []store.Orphan, now time.Time) {
	seen := make(map[string]time.Time, len(orphans))
	for _, o := range orphans {
		since, known := n.orphans[o.JobID]
		if !known {
			since = now
		}
		seen[o.JobID] = since
		if now.Sub(since) >= time.Duration(n.rank(o.JobID))*claimStagger {
			n.claim(c, o.JobID)
		}
	}
	n.orphans = seen
}

// claimStagger is how long a node leaves an orphan to each of those that stand
// before it.
const claimStagger = 300 * time.Millisecond

// rank is how many members stand before this one for a job, by rendezvous
// hashing (Thaler and Ravishankar, "Using Name-Based Mappings to Increase Hit
// Rates", 1998).
func (n *node) rank(job string) (before int) {
	if n.cfg.Peers == nil {
		return 0
	}
	self := n.cfg.Peers.Self()
	mine := rendezvous(job, self.ID)
	for _, m := range n.cfg.Peers.Members() {
		if m.Owns && m.ID != self.ID && rendezvous(job, m.ID) > mine {
			before++
		}
	}
	return before
}

// logUnanswered says why another node did not do what it was asked.
func logUnanswered(log *slog.Logger, address string, err error) {
	var refused *peer.Refusal
	if errors.As(err, &refused) {
		log.Debug("a node declines", "node", address, "err", err)
		return
	}
	log.Warn("a node does not answer", "node", address, "err", err)
}

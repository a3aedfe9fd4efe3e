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
	"github.com/rowmill/rowmill/blob/layout"
	"github.com/rowmill/rowmill/engine"
	"github.com/rowmill/rowmill/store"
	"github.com/rowmill/rowmill/tokenize/prompt"
)

// Messages a node receives.
type (
	jobSubmitted struct{ id string } // System: a job waits, do not wait for the next scan
	jobCancelled struct {            // System: its record says cancelled
		id   string
		told bool // by another node, which tells all
	}
	scanDue      struct{} // itself
	orphansFound struct { // its errand
		orphans []store.Orphan
		err     error
	}
	jobClaimed struct { // its errand
		id  string
		rec store.Record
		err error
	}
	claimReturned struct{ id string } // its errand: the job is an orphan again
	jobOver       struct {            // job: nothing is left to do for it here
		id       string
		status   rowmill.Status
		released bool // it waits for another owner
	}
	engineChanged  struct{ view engineView }      // engine
	attachEngine   struct{ server engine.Engine } // System: use this one too
	detachEngine   struct{ name string }          // System: use it no longer
	engineLeft     struct{ name string }          // engine: detached, it has given back what waited
	membersChanged struct{}                       // System: nodes came, went or said something new
	stateDue       struct{}                       // itself: tell the other nodes how this one is
	leaseEnded     struct{}                       // System: the session can no longer be trusted
	leaseOpened    struct{ lease *lease }         // System: a new session
	drainNode      struct{}                       // System: give all jobs back
)

// A node is the root of everything on this process: it claims jobs that nobody
// owns, runs one actor per job and one per inference server, and tells each
// about the others.
type node struct {
	cfg      Config
	system   *System
	metrics  *metrics
	budget   *budget
	slots    slots
	counters *prompt.Counters
	all      *sync.WaitGroup
	work     errand
	log      *slog.Logger
	timers   timers

	nonce    string // of this start
	lease    *lease
	engines  []engineView
	remote   []engineView      // those of the other nodes
	members  []string          // ids of the other nodes
	said     string            // the last state that was spread
	berths   map[string]*berth // by engine
	jobs     map[string]*actor.PID
	claiming map[string]bool
	fences   map[string]store.Fence
	orphans  map[string]time.Time  // when they were first seen
	workers  map[string]*placement // by job
	hiring   map[string]bool       // jobs whose worker is being set up
	leaving  map[string]int        // workers being stopped, by job
	placed   int                   // workers, ever
	janitor  *janitor
	scanning bool
	draining bool
	stopping bool // its children were told to stop: nothing new may be spawned
}

func (n *node) Receive(c actor.Context) {
	if n.stopping {
		return
	}
	switch m := c.Message().(type) {
	case *actor.Started:
		n.onStarted(c)
	case jobSubmitted:
		n.onJobSubmitted(c, m)
	case jobCancelled:
		n.onJobCancelled(c, m)
	case scanDue:
		n.onScanDue(c)
	case orphansFound:
		n.onOrphansFound(c, m)
	case jobClaimed:
		n.onJobClaimed(c, m)
	case claimReturned:
		n.onClaimReturned(c, m)
	case jobOver:
		n.onJobOver(c, m)
	case *actor.Terminated:
		n.onTerminated(c, m)
	case engineChanged:
		n.onEngineChanged(c, m)
	case attachEngine:
		n.onAttachEngine(c, m)
	case detachEngine:
		n.onDetachEngine(c, m)
	case engineLeft:
		n.onEngineLeft(c, m)
	case leaseEnded:
		n.onLeaseEnded(c)
	case leaseOpened:
		n.lease = m.lease
	case drainNode:
		n.onDrainNode(c)
	case janitorDue:
		n.onJanitorDue(c)
	case janitorDone:
		n.onJanitorDone(c, m)
	case membersChanged:
		n.onMembersChanged(c)
	case stateDue:
		n.onStateDue(c)
	case fromPeer:
		n.onFromPeer(c, m)
	case *invite:
		n.onInvite(c, m)
	case hired:
		n.onHired(c, m)
	case *dismiss:
		n.onDismiss(c, m)
	case workerOver:
		n.onWorkerOver(c, m)
	case workerLetGo:
		n.onWorkerLetGo(m)
	case delivered:
		m.by.back(c, n.work)
	case *actor.Stopping:
		n.stopping = true
		n.timers.stop()
		n.work.cancel()
	default:
		unhandled(c, n.log)
	}
}

func (n *node) onStarted(c actor.Context) {
	n.jobs, n.fences = make(map[string]*actor.PID), make(map[string]store.Fence)
	n.claiming, n.hiring = make(map[string]bool), make(map[string]bool)
	n.berths, n.workers, n.leaving = make(map[string]*berth), make(map[string]*placement), make(map[string]int)
	n.nonce = layout.Nonce()
	for _, server := range n.cfg.Engines {
		n.attach(c, server)
	}
	n.publish()
	n.onStateDue(c)
	n.onScanDue(c)
	n.janitor = &janitor{cfg: n.cfg, log: n.log}
	n.timers.after(c, n.cfg.JanitorInterval, janitorDue{})
}

// free is how many more jobs may run.
func (n *node) free() int {
	if n.cfg.OwnsNone {
		return 0
	}
	return n.cfg.MaxActive - len(n.jobs) - len(n.claiming)
}

// onJobSubmitted claims a job, or leaves it to another node where this one is
// about to go or never owns any.
func (n *node) onJobSubmitted(c actor.Context, m jobSubmitted) {
	if n.draining || n.cfg.OwnsNone {
		n.tellNext(c, m.id)
		return
	}
	n.claim(c, m.id)
}

func (n *node) claim(c actor.Context, id string) {
	if n.draining || n.lease == nil || n.free() < 1 || n.claiming[id] || n.jobs[id] != nil {
		return
	}
	n.claiming[id] = true
	session := n.lease.session
	n.work.run(c, func(ctx context.Context) any {
		rec, err := n.cfg.Store.Claim(ctx, id, session)
		if err != nil && passing(err) {
			rec, err = n.claimed(ctx, id, session, err)
		}
		return jobClaimed{id, rec, err}
	})
}

// claimed finds out whether a claim that failed with err has taken effect.
func (n *node) claimed(ctx context.Context, id, session string, err error) (store.Record, error) {
	var rec store.Record
	gone := patiently(ctx, n.cfg.LeaseTTL, n.log, "claim job", func() (err error) {
		rec, err = n.cfg.Store.Get(ctx, id)
		return err
	})
	if gone == nil && rec.Session == session && !rec.Job.Status.Terminal() {
		return rec, nil
	}
	return rec, err
}

func (n *node) onScanDue(c actor.Context) {
	n.timers.after(c, n.cfg.ScanInterval, scanDue{})
	n.metrics.memory.Set(float64(n.budget.inUse()))
	if n.scanning || n.draining || n.lease == nil || n.free() < 1 {
		return
	}
	n.scanning = true
	limit := n.free()
	n.work.run(c, func(ctx context.Context) any {
		orphans, err := n.cfg.Store.Orphans(ctx, limit)
		return orphansFound{orphans, err}
	})
}

func (n *node) onOrphansFound(c actor.Context, m orphansFound) {
	n.scanning = false
	if m.err != nil {
		n.log.Warn("look for jobs without an owner", "err", m.err)
		return
	}
	n.claimLater(c, m.orphans, time.Now())
}

func (n *node) onJobClaimed(c actor.Context, m jobClaimed) {
	delete(n.claiming, m.id)
	if n.draining && m.err != nil {
		n.reportDrained()
		return
	}
	switch {
	case m.err == nil:
	case errors.Is(m.err, rowmill.ErrConflict), errors.Is(m.err, rowmill.ErrTerminal), errors.Is(m.err, rowmill.ErrNotFound):
		return // somebody else was faster
	case errors.Is(m.err, rowmill.ErrLeaseLost):
		n.onLeaseEnded(c)
		return
	default:
		n.log.Warn("claim job", "job", m.id, "err", m.err)
		return
	}
	fence := store.Fence{JobID: m.id, Session: m.rec.Session, Epoch: m.rec.Epoch}
	if n.lease == nil || n.lease.session != fence.Session {
		return // an orphan already
	}
	if n.draining {
		n.returnClaim(c, fence)
		return
	}
	licence := n.lease.ctx
	log := n.log.With("job", m.id)
	if fence.Epoch > 1 {
		n.metrics.takeovers.Inc()
	}
	log.Info("job claimed", "status", m.rec.Job.Status, "epoch", fence.Epoch, "model", m.rec.Job.Model)
	props := n.metrics.props("job", func() actor.Actor {
		return &job{
			cfg: n.cfg, rec: m.rec, fence: fence, node: c.Self(), address: n.address(), post: n.system.post, lease: licence,
			slots: n.slots, counters: n.counters, metrics: n.metrics, all: n.all, log: log, engines: n.everyEngine(),
		}
	})
	pid := c.SpawnPrefix(props, fmt.Sprintf("job-%s-%d", m.id, fence.Epoch))
	c.Watch(pid)
	n.jobs[m.id], n.fences[m.id] = pid, fence
	n.metrics.active.Set(float64(len(n.jobs)))
}

// returnClaim gives back a job that was claimed as the node began to drain: its
// own workers wait to hear from an owner.
func (n *node) returnClaim(c actor.Context, fence store.Fence) {
	n.claiming[fence.JobID] = true
	n.work.run(c, func(ctx context.Context) any {
		if err := n.cfg.Store.Release(ctx, fence); err != nil {
			n.log.Warn("release job", "job", fence.JobID, "err", err)
		}
		return claimReturned{fence.JobID}
	})
}

func (n *node) onClaimReturned(c actor.Context, m claimReturned) {
	delete(n.claiming, m.id)
	n.tellNext(c, m.id)
	n.reportDrained()
}

func (n *node) onJobCancelled(c actor.Context, m jobCancelled) {
	if !m.told {
		n.tellAll(c, hint{Job: m.id, Cancelled: true})
	}
	if m.told && n.jobs[m.id] == nil {
		return // who told it cleans up
	}
	n.log.Info("job cancelled", "job", m.id)
	n.metrics.jobs.WithLabelValues(string(rowmill.StatusCancelled)).Inc()
	if pid := n.jobs[m.id]; pid != nil {
		c.Send(pid, cancelJob{})
		return
	}
	n.work.run(c, func(ctx context.Context) any {
		if err := removeObjects(ctx, n.cfg, m.id, false); err != nil {
			n.log.Warn("clean up after job", "job", m.id, "err", err)
		}
		return nil
	})
}

func (n *node) onJobOver(c actor.Context, m jobOver) {
	if pid := n.jobs[m.id]; pid != nil {
		c.Stop(pid)
	}
	delete(n.jobs, m.id)
	delete(n.fences, m.id)
	n.metrics.active.Set(float64(len(n.jobs)))
	if m.released {
		n.tellNext(c, m.id)
	}
	switch m.status {
	case rowmill.StatusSucceeded, rowmill.StatusFailed:
		n.log.Info("job over", "job", m.id, "status", m.status)
		n.metrics.jobs.WithLabelValues(string(m.status)).Inc()
	}
	if n.draining {
		n.reportDrained()
		return
	}
	n.onScanDue(c)
}

// onTerminated fails a job whose actor panicked: its rows would meet the same
// fault again.
func (n *node) onTerminated(c actor.Context, m *actor.Terminated) {
	for id, w := range n.workers {
		if w.pid.Equal(m.GetWho()) {
			n.onWorkerPanicked(c, id, w)
			return
		}
	}
	for id, pid := range n.jobs {
		if !pid.Equal(m.GetWho()) {
			continue
		}
		fence := n.fences[id]
		n.onJobOver(c, jobOver{id: id, status: rowmill.StatusFailed})
		n.work.run(c, func(ctx context.Context) any {
			failure := rowmill.Failf(rowmill.CodeInternalError, "The service met a fault of its own while it ran the job. Its log says which.")
			if _, err := endJob(ctx, n.cfg.Store, fence, failure, n.cfg.Clock(), n.log); err != nil {
				n.log.Warn("record failure", "job", id, "err", err)
			}
			return nil
		})
		return
	}
}

// onLeaseEnded stops all jobs: they are not ours any more.
func (n *node) onLeaseEnded(c actor.Context) {
	if n.lease == nil {
		return
	}
	n.log.Error("session lost, jobs stop; their rows go on and wait for the next owner", "jobs", len(n.jobs))
	n.metrics.fenced.Inc()
	n.lease.cancel(rowmill.ErrLeaseLost)
	n.lease = nil
	for id, pid := range n.jobs {
		delete(n.jobs, id)
		delete(n.fences, id)
		c.Stop(pid)
	}
	n.metrics.active.Set(0)
	n.system.reopen()
}

func (n *node) onDrainNode(c actor.Context) {
	if n.draining {
		return
	}
	n.draining = true
	n.publish()
	for _, w := range n.workers {
		c.Send(w.pid, drainShard{})
	}
	for _, pid := range n.jobs {
		c.Send(pid, drainJob{})
	}
	n.reportDrained()
}

func (n *node) reportDrained() {
	if n.draining && len(n.jobs)+len(n.claiming)+len(n.workers)+len(n.hiring)+len(n.leaving) == 0 {
		n.system.drainedOnce.Do(func() { close(n.system.drained) })
	}
}

package actors

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/actors/poison"
	"github.com/rowmill/rowmill/actors/registry"
	"github.com/rowmill/rowmill/actors/storage"
	"github.com/rowmill/rowmill/internal/panics"
	"github.com/rowmill/rowmill/internal/retry"
	"github.com/rowmill/rowmill/store"
)

// leaseChanged tells the node that the System has opened a session, or if ended is
// true, that a session may have expired.
type leaseChanged struct {
	lease *lease
	ended bool
}

// nodeJobs is the part of the node actor that claims jobs without an owner and runs an
// actor for each job that it owns. The struct claims decides which jobs to claim.
type nodeJobs struct {
	nodePart
	reopen   func() // opens a new session after the last one was lost
	near     *clusterView
	reach    *bucketReach
	cleaner  *cleaner
	engines  *engines
	claims   claims
	lease    *lease // the present session; nil after it was lost
	scanning bool   // a search for jobs is running
	hinting  int    // hints to other nodes in progress
	draining bool
}

// scanOrphans searches for jobs without an owner, now and every scan interval.
func (n *nodeJobs) scanOrphans(c actor.Context) {
	n.timers.runAfter(c, n.near.scanInterval(n.cfg.Ownership.ScanInterval), "scan", n.scanOrphans)
	n.metrics.memory.Set(float64(n.budget.InUse()))
	limit := n.claims.scanLimit()
	if n.scanning || !n.canClaim() || limit < 1 {
		return
	}
	n.scanning = true
	n.tasks.run(c, "look for jobs", func(ctx context.Context) mailboxStep {
		orphans, err := runWithResult(panics.Catch, func() ([]store.OrphanJob, error) { return n.cfg.Store.Orphans(ctx, limit) })
		return func(c actor.Context) {
			n.scanning = false
			if err != nil {
				if !storage.IsTransient(err) { // else storage has logged it once already
					n.log.Warn("looking for jobs without an owner failed, will be tried again", "err", err)
				}
				return
			}
			for _, o := range sortedByKey(n.claims.unsureClaims) {
				n.claim(c, o)
			}
			n.claims.places.ForgetWaiting()
			for _, o := range n.claims.orphansToClaim(orphans, n.near.claimDelay, time.Now()) {
				if own, owned := n.claims.owned[o.JobID]; owned {
					n.checkOwned(c, own)
					continue
				}
				n.claim(c, o)
			}
			n.published.placeWaits.Store(&slotWaits{n.claims.places.Waits()})
			n.metrics.shut.Set(float64(n.claims.places.CountWithoutPlace()))
		}
	})
}

// checkOwned checks a job that this node owns and that the store lists as an orphan. If
// the store has lost this node's claim, it makes the job's actor stop, so that a node
// can claim the job again.
func (n *nodeJobs) checkOwned(c actor.Context, o ownedJob) {
	n.tasks.run(c, "look up a job", func(ctx context.Context) mailboxStep {
		rec, err := n.cfg.Store.Get(ctx, o.fence.JobID)
		if err != nil || rec.Job.Status.IsTerminal() || rec.Epoch >= o.fence.Epoch {
			return nil
		}
		return func(c actor.Context) {
			c.Send(o.pid, jobError{fmt.Errorf("the store has lost the claim: %w", rowmill.ErrLeaseLost)})
		}
	})
}

func (n *nodeJobs) claim(c actor.Context, o store.OrphanJob) {
	if !n.canClaim() {
		return
	}
	stage := poison.StageOf(poison.FilterEnded(o.Claims, n.near.isOwnerMissing))
	if !n.claims.beginClaim(o, stage, time.Now()) {
		return
	}
	job, session, by := o.JobID, n.lease.session, n.near.ownClaim(stage == poison.Alone)
	n.tasks.run(c, "claim a job", func(ctx context.Context) mailboxStep {
		rec, err := runWithResult(panics.Catch, func() (store.Record, error) { return n.cfg.Store.Claim(ctx, job, session, by) })
		if err != nil && (!storage.IsPermanent(err) || errors.Is(err, rowmill.ErrConflict)) {
			rec, err = n.findClaim(ctx, job, session, err)
		}
		return func(c actor.Context) {
			if err != nil {
				n.onClaimFailed(c, o, session, err)
				return
			}
			n.onClaimed(c, rec)
		}
	})
}

// findClaim reads the record of a job after a claim failed with err. If this or an
// earlier claim has taken effect after all, the record names this node's session as the
// owner, and findClaim returns the record. Otherwise it returns err.
func (n *nodeJobs) findClaim(ctx context.Context, job, session string, err error) (store.Record, error) {
	var rec store.Record
	gone := retry.Storage.WithTimeLimit(n.cfg.Ownership.LeaseTTL).Do(ctx, func() (err error) {
		rec, err = n.cfg.Store.Get(ctx, job)
		return err
	}, func(err error) bool { return !storage.IsPermanent(err) }, nil)
	if gone == nil && rec.Session == session && !rec.Job.Status.IsTerminal() {
		return rec, nil
	}
	return rec, err
}

func (n *nodeJobs) onClaimFailed(c actor.Context, o store.OrphanJob, session string, err error) {
	n.claims.forgetJob(o.JobID)
	switch {
	case errors.Is(err, rowmill.ErrConflict), errors.Is(err, rowmill.ErrTerminal), errors.Is(err, rowmill.ErrNotFound):
		// another node was faster, or the job is over
	case errors.Is(err, rowmill.ErrLeaseLost):
		if n.lease != nil && n.lease.session == session {
			n.onLeaseLost(c)
		}
	case errors.Is(err, store.ErrDamaged): // the store has recorded the failure of the job
		n.log.Error("the job cannot run: its specification is damaged", "job", o.JobID, "err", err)
		n.cleaner.scheduleCleanup(c, o.JobID)
	case storage.IsTransient(err): // storage has logged it once already
		n.claims.markUnsure(o)
	default:
		n.log.Warn("claiming the job failed", "job", o.JobID, "err", err)
		if !storage.IsPermanent(err) && !errors.Is(err, store.ErrNewer) {
			n.claims.markUnsure(o)
		}
	}
}

func (n *nodeJobs) onClaimed(c actor.Context, rec store.Record) {
	id := rec.Job.ID
	fence := store.Fence{JobID: id, Session: rec.Session, Epoch: rec.Epoch}
	switch {
	case n.lease == nil || n.lease.session != fence.Session: // the session of the claim was lost, so the job is an orphan again
		n.claims.forgetJob(id)
		return
	case n.draining:
		n.returnClaim(c, n.claims.claiming[id], fence)
		return
	}
	tried := rec.Claims[:max(0, len(rec.Claims)-1)]
	if ended := poison.FilterEnded(tried, n.near.hasOwnerEnded); poison.MustPark(ended) {
		n.park(c, rec, fence, ended)
		return
	}
	log := n.cfg.trace(&rec).WithTraceID(n.deps.log.With("job", id))
	if !isFirstClaim(rec.Version) {
		n.metrics.takeovers.Inc()
	}
	log.Info("job claimed", "status", rec.Job.Status, "epoch", fence.Epoch, "model", rec.Job.Model)
	licence, writes, engines := n.lease.ctx, &sync.WaitGroup{}, n.engines.usableEngines(false)
	pid := c.SpawnPrefix(n.metrics.props(registry.ActorIdentity{Kind: "job", Job: id}, func(entry *registry.ActorEntry) actor.Actor {
		return newJob(licence, n.deps, rec, fence, engines, writes, entry, log)
	}), fmt.Sprintf("job-%s-%d", id, fence.Epoch))
	c.Watch(pid)
	n.claims.markOwned(pid, fence, writes, log)
	n.metrics.active.Set(float64(len(n.claims.owned)))
}

// returnClaim gives back a job that was claimed just before the node began to drain. It
// sends a hint to the node that should claim the job next, because workers on this node
// wait for an owner.
func (n *nodeJobs) returnClaim(c actor.Context, o store.OrphanJob, fence store.Fence) {
	n.tasks.run(c, "give the job back", func(ctx context.Context) mailboxStep {
		if err := n.cfg.Store.Release(ctx, fence); err != nil {
			n.log.Warn("giving the job back failed; another node claims it after this node's session has ended", "job", fence.JobID, "err", err)
		}
		return func(c actor.Context) {
			n.claims.forgetJob(fence.JobID)
			n.hintNextNode(c, o)
		}
	})
}

// onCancelled handles the hint that a job was cancelled. The node that got the client's
// request tells the other nodes, and cleans up if it does not own the job.
func (n *nodeJobs) onCancelled(c actor.Context, h *hint, remote bool) {
	o, owned := n.claims.owned[h.GetJob()]
	if !remote {
		n.tellOthers(c, h)
	} else if !owned {
		return
	}
	n.log.Info("job cancelled", "job", h.GetJob())
	n.metrics.jobs.WithLabelValues(string(rowmill.StatusCancelled)).Inc()
	if owned {
		c.Send(o.pid, recordTimer) // let the job check its record: if the store was split in two, the cancellation may be lost
	} else {
		n.cleaner.scheduleCleanup(c, h.GetJob())
	}
}

// onRescheduled handles the hint that a job has a new priority or pause: the owner of the job
// reads the record.
func (n *nodeJobs) onRescheduled(c actor.Context, h *hint, remote bool) {
	if !remote {
		n.tellOthers(c, h)
	}
	if o, owned := n.claims.owned[h.GetJob()]; owned {
		c.Send(o.pid, recordTimer)
	}
}

// tellOthers sends a hint to all other nodes.
func (n *nodeJobs) tellOthers(c actor.Context, h *hint) {
	for _, m := range n.transport.otherMembers() {
		n.tell(c, m.Peer, h)
	}
}

func (n *nodeJobs) onJobOver(c actor.Context, m jobOver) {
	o, owned := n.claims.owned[m.id]
	claimed, claiming := n.claims.claiming[m.id]
	if owned && m.status.IsTerminal() {
		c.Stop(o.pid)
	} else if owned {
		n.stopJob(c, o)
	}
	n.claims.forgetJob(m.id)
	switch {
	case m.unsure && owned:
		n.claims.markUnsure(o.OrphanJob)
	case m.unsure && claiming:
		n.claims.markUnsure(claimed)
	}
	n.metrics.active.Set(float64(len(n.claims.owned)))
	if m.released && owned {
		n.hintNextNode(c, o.OrphanJob)
	}
	if m.status.IsTerminal() {
		log := o.log
		if !owned {
			log = n.log.With("job", m.id)
		}
		log.Info("job ended", "status", m.status)
		n.cleaner.scheduleCleanup(c, m.id)
	}
	if m.status == rowmill.StatusSucceeded || m.status == rowmill.StatusFailed { // onCancelled counts cancelled jobs
		n.metrics.jobs.WithLabelValues(string(m.status)).Inc()
	}
	if n.draining {
		return
	}
	n.scanOrphans(c)
}

// stopJob stops the actor of a job that may continue on another node. That node may end
// the job before this node's last writes, so the cleaner runs once more after these
// writes.
func (n *nodeJobs) stopJob(c actor.Context, o ownedJob) {
	root := c.ActorSystem().Root
	c.Stop(o.pid)
	n.cleaner.cleanUpAfterWrites(c, o.fence.JobID, false, func() {
		_ = root.StopFuture(o.pid).Wait() // only waits until the actor has stopped
		o.writes.Wait()
	})
}

// onJobPanicked fails a job after its actor panicked. The job does not run again,
// because it would probably cause the same panic.
func (n *nodeJobs) onJobPanicked(c actor.Context, id string, o ownedJob) {
	n.onJobOver(c, jobOver{id: id})
	n.tasks.run(c, "end the job", func(ctx context.Context) mailboxStep {
		failure := rowmill.Failf(rowmill.CodeInternalError, "The service had an internal error while it ran the job. Its log has the cause.")
		rec, err := recordFailure(ctx, n.cfg.Store, o.fence, failure, n.cfg.Clock(), n.log)
		if err != nil {
			n.log.Warn("recording the job's failure failed, so another node may run the job", "job", id, "err", err)
			return nil
		}
		n.endTrace(&rec)
		return func(c actor.Context) {
			o.log.Info("job ended", "status", rowmill.StatusFailed)
			n.metrics.jobs.WithLabelValues(string(rowmill.StatusFailed)).Inc()
			n.cleaner.scheduleCleanup(c, id)
		}
	})
}

func (n *nodeJobs) onLeaseChanged(c actor.Context, m leaseChanged) {
	switch {
	case !m.ended:
		n.lease = m.lease
	case n.lease == m.lease:
		n.onLeaseLost(c)
	}
}

// onLeaseLost stops all jobs after this node has lost its session, because the node
// does not own them any more.
func (n *nodeJobs) onLeaseLost(c actor.Context) {
	n.log.Error("the node lost its session in the record store, so its jobs stop here; other nodes take them", "jobs", len(n.claims.owned))
	n.metrics.fenced.Inc()
	n.lease.cancel(rowmill.ErrLeaseLost)
	n.lease = nil
	for id, o := range sortedByKey(n.claims.owned) {
		n.claims.forgetJob(id)
		n.stopJob(c, o)
	}
	clear(n.claims.unsureClaims) // without the session these jobs are orphans
	n.metrics.active.Set(0)
	n.reopen()
}

func (n *nodeJobs) onJobHarmless(c actor.Context, m jobHarmless) {
	if n.claims.trials.End(m.id) {
		n.scanOrphans(c)
	}
}

// park keeps a job from running on any node for Config.Ownership.ParkTime, because it may
// have crashed its earlier owners. This node has claimed the job but not started it.
func (n *nodeJobs) park(c actor.Context, rec store.Record, fence store.Fence, ended []store.Claim) {
	id, rest := rec.Job.ID, n.cfg.Ownership.ParkTime
	n.log.Error("job parked: no node runs it for some time, because the processes of its last owners ended before it made progress",
		"job", id, "ended", len(ended), "node", ended[len(ended)-1].Node, "for", rest)
	n.tasks.run(c, "park a job", func(ctx context.Context) mailboxStep {
		err := n.storage.Retry(ctx, func() error { return n.cfg.Store.Park(ctx, fence, rest, parkMessage(id, ended)) })
		return func(c actor.Context) {
			if err != nil {
				n.log.Warn("cannot record that the job is parked; this node claims the job again", "job", id, "err", err)
			} else {
				n.metrics.parked.Inc()
			}
			n.onJobOver(c, jobOver{id: id, unsure: err != nil})
		}
	})
}

// canClaim reports whether the node may claim jobs now. A node that cannot use the
// bucket claims no jobs if other nodes can use the bucket.
func (n *nodeJobs) canClaim() bool {
	_, away := n.storage.RecordsOutage()
	return !n.draining && n.lease != nil && !away && !n.reach.isCutOff()
}

func (n *nodeJobs) onHint(c actor.Context, h *hint, remote bool) {
	switch {
	case h.GetCancelled():
		n.onCancelled(c, h, remote)
	case h.GetRescheduled():
		n.onRescheduled(c, h, remote)
	case !remote && (n.draining || n.cfg.Ownership.OwnsNone):
		n.hintNextNode(c, orphanOf(h))
	case h.Account == nil: // from a node of an older version, which sends no account
		n.scanOrphans(c)
	default:
		n.claim(c, orphanOf(h))
	}
}

// hintNextNode sends a hint about a job without an owner to the other node that comes first
// in the job's order of nodes.
func (n *nodeJobs) hintNextNode(c actor.Context, o store.OrphanJob) {
	first, ok := n.reach.nextClaimer(o.JobID)
	if !ok {
		return
	}
	n.hinting++
	n.tasks.run(c, "hint a node", func(ctx context.Context) mailboxStep {
		if err := n.transport.tellPeer(ctx, first.Peer, hintOf(o)); err != nil {
			n.transport.logUnanswered(n.log, first.Peer, err)
		}
		return func(actor.Context) { n.hinting-- }
	})
}

// isIdle reports whether a draining node has given back all jobs and has told the next
// owners.
func (n *nodeJobs) isIdle() bool { return n.claims.isIdle() && n.hinting == 0 }

// onTerminated handles the stop of a job's actor after a panic.
func (n *nodeJobs) onTerminated(c actor.Context, who *actor.PID) {
	for id, o := range n.claims.owned {
		if o.pid.Equal(who) {
			n.onJobPanicked(c, id, o)
			return
		}
	}
}

func (n *nodeJobs) drain(c actor.Context) {
	n.draining = true
	n.downloads.Drain()
	n.tellAll(c, drainJob{})
}

// announceEngines sends the present engines to the jobs of this node.
func (n *nodeJobs) announceEngines(c actor.Context) {
	n.tellAll(c, enginesChanged{n.engines.usableEngines(n.draining)})
}

func (n *nodeJobs) tellAll(c actor.Context, m any) {
	for _, o := range sortedByKey(n.claims.owned) {
		c.Send(o.pid, m)
	}
}

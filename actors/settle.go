package actors

import (
	"context"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/rowmill/rowmill/actors/retention"
	"github.com/rowmill/rowmill/internal/panics"
)

// A job that has ended first settles: for Config.Ownership.Settle, the node keeps the
// data that the job no longer needs. A store that loses its last writes in a crash may
// lose the end of the job, and the job would then continue with this data. If the node
// crashes before it removes the data, the janitor removes the data later.

// A pendingCleanup is an ended job whose data is kept until the time at.
type pendingCleanup struct {
	job string
	at  time.Time // when the job's data may be removed
}

// A cleaner is the part of the node actor that removes data: the data that finished
// jobs no longer need, and expired data.
type cleaner struct {
	nodePart
	settling []pendingCleanup // ended jobs whose data is still kept, in the order of their ends
	tidying  int              // number of cleanups in progress
	janitor  *retention.Janitor
	mayClean func() (now, first bool) // now: the janitor may run; first: this node, and no other, removes expired data
}

// scheduleCleanup plans the removal of the data that an ended job no longer needs. The removal
// starts when the store cannot lose the end of the job any more.
func (n *cleaner) scheduleCleanup(c actor.Context, job string) {
	if n.cfg.Ended != nil && n.cfg.Ownership.Settle > 0 {
		n.notifyEndedNow(c, job)
	}
	n.settling = append(n.settling, pendingCleanup{job, time.Now().Add(n.cfg.Ownership.Settle)})
	if len(n.settling) == 1 {
		n.timers.runAfter(c, n.cfg.Ownership.Settle, "settle", n.cleanUpDue)
	}
}

// cleanUpAfterWrites cleans up a finished job once more after this node's last writes
// for the job, because another node may have cleaned up before these writes. wait
// returns when these writes have ended. ownerWaits means that the node that ends the job
// waits for these writes for a limited time.
func (n *cleaner) cleanUpAfterWrites(c actor.Context, job string, ownerWaits bool, wait func()) {
	n.tasks.run(c, "wait for writes", func(ctx context.Context) mailboxStep {
		wait()
		rec, err := n.readRecord(ctx, job)
		if err != nil || !rec.Job.Status.IsTerminal() || ownerWaits && !rec.IsCleanedUp() {
			return nil // the node that ends the job cleans up later
		}
		return func(c actor.Context) { n.scheduleCleanup(c, job) }
	})
}

// cleanUpDue removes the data that settled jobs no longer need.
func (n *cleaner) cleanUpDue(c actor.Context) {
	var due []string
	for now := time.Now(); len(n.settling) > 0 && !n.settling[0].at.After(now); n.settling = n.settling[1:] {
		due = append(due, n.settling[0].job)
	}
	if len(n.settling) > 0 {
		n.timers.runAfter(c, time.Until(n.settling[0].at), "settle", n.cleanUpDue)
	}
	n.tidying++
	n.tasks.run(c, "clean up after jobs", func(ctx context.Context) mailboxStep {
		// After a network partition, the node may read an outdated store. Then it must
		// not remove results that the other side of the partition has made. The other side
		// may have cleaned up before this node's last writes, so this node tries again.
		if err := n.cfg.Store.ConfirmPrimary(ctx); err != nil {
			n.log.Warn("the store cannot confirm that all nodes write to it, so the node cleans up after these jobs later", "jobs", len(due), "err", err)
			return func(c actor.Context) {
				n.tidying--
				n.postpone(c, due)
			}
		}
		for _, job := range due {
			if err := n.tidyJob(ctx, job); err != nil {
				n.log.Warn("cleaning up after the job failed", "job", job, "err", err)
			}
		}
		return func(actor.Context) { n.tidying-- }
	})
}

// minPostponed is the shortest time until the node tries again to clean up.
const minPostponed = time.Second

// postpone plans the removal of the data of ended jobs once more, because it is not certain now that
// they have ended.
func (n *cleaner) postpone(c actor.Context, jobs []string) {
	pause := max(n.cfg.Ownership.Settle, minPostponed)
	for _, job := range jobs {
		n.settling = append(n.settling, pendingCleanup{job, time.Now().Add(pause)})
	}
	if len(n.settling) == len(jobs) {
		n.timers.runAfter(c, pause, "settle", n.cleanUpDue)
	}
}

// isIdle reports whether a draining node has no cleanup to wait for. A draining node does
// not wait until Config.Ownership.Settle has passed.
func (n *cleaner) isIdle() bool {
	return n.tidying == 0 && (n.cfg.Ownership.Settle > 0 || len(n.settling) == 0)
}

// notifyEndedNow calls Config.Ended for an ended job at once, because the cleanup, which
// also calls it, starts only after Config.Ownership.Settle. If this call fails, the
// cleanup repeats it.
func (n *cleaner) notifyEndedNow(c actor.Context, job string) {
	n.tasks.run(c, "announce a job's end", func(ctx context.Context) mailboxStep {
		if err := panics.Catch(func() error { return n.notifyIfEnded(ctx, job) }); err != nil {
			n.log.Warn("announcing the job's end failed, will be tried again", "job", job, "err", err)
		}
		return nil
	})
}

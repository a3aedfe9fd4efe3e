package actors

import (
	"context"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/rowmill/rowmill/actors/retention"
	"github.com/rowmill/rowmill/internal/contain"
)

// A job that is over settles: what its end makes superfluous stays for a while,
// because a store that forgets its last writes in a crash may take the end
// back, and then the job goes on from there. What a node that dies meanwhile
// leaves, the janitor finds.

// A settling job has ended.
type settling struct {
	job string
	at  time.Time // when it has settled
}

// A cleaner removes what is not kept: of jobs that are over, and of old ones. It is a part
// of the node actor.
type cleaner struct {
	nodePart
	settling []settling // jobs that are over, in the order of their ends
	tidying  int        // clean-ups at work
	janitor  *retention.Janitor
	turn     func() (now, first bool) // whether the janitor may do a round, and whether this node is the one that cleans
}

// settle has what a job no longer needs removed once its end is safe.
func (n *cleaner) settle(c actor.Context, job string) {
	if n.cfg.Ended != nil && n.cfg.Ownership.Settle > 0 {
		n.announceNow(c, job)
	}
	n.settling = append(n.settling, settling{job, time.Now().Add(n.cfg.Ownership.Settle)})
	if len(n.settling) == 1 {
		n.timers.after(c, n.cfg.Ownership.Settle, "settle", n.tidy)
	}
}

// lookAfter has a job that is over settle once more, after this node has stored
// what it still wrote for it: whoever cleaned up may have done so before. stopped
// returns when nothing is written here any more; expected says that whoever
// cleans up waits for that, for a while.
func (n *cleaner) lookAfter(c actor.Context, job string, expected bool, stopped func()) {
	n.tasks.run(c, "wait for writes", func(ctx context.Context) step {
		stopped()
		rec, err := n.record(ctx, job)
		if err != nil || !rec.Job.Status.Terminal() || expected && !rec.Tidied() {
			return nil // who ends the job cleans up, or is about to
		}
		return func(c actor.Context) { n.settle(c, job) }
	})
}

// tidy removes what jobs that have settled no longer need.
func (n *cleaner) tidy(c actor.Context) {
	var due []string
	for now := time.Now(); len(n.settling) > 0 && !n.settling[0].at.After(now); n.settling = n.settling[1:] {
		due = append(due, n.settling[0].job)
	}
	if len(n.settling) > 0 {
		n.timers.after(c, time.Until(n.settling[0].at), "settle", n.tidy)
	}
	n.tidying++
	n.tasks.run(c, "clean up after jobs", func(ctx context.Context) step {
		// A node on the losing side of a partition must not remove the results of the other
		// side. The janitor cleans up later.
		if err := n.cfg.Store.Confirm(ctx); err != nil {
			n.log.Warn("cleaning up after jobs waits until the store confirms its place", "jobs", len(due), "err", err)
			due = nil
		}
		for _, job := range due {
			if err := n.tidyJob(ctx, job); err != nil {
				n.log.Warn("cleaning up after the job failed", "job", job, "err", err)
			}
		}
		return func(actor.Context) { n.tidying-- }
	})
}

// idle reports whether no clean-up is at work that a node would wait for as
// it drains. It does not wait for ends to become safe.
func (n *cleaner) idle() bool {
	return n.tidying == 0 && (n.cfg.Ownership.Settle > 0 || len(n.settling) == 0)
}

// announceNow does so where the clean-up has to wait until the store can not forget
// the end any more. Should this fail, or the store forget it, the clean-up does it
// again.
func (n *cleaner) announceNow(c actor.Context, job string) {
	n.tasks.run(c, "announce a job's end", func(ctx context.Context) step {
		if err := contain.Run(func() error { return n.announceJob(ctx, job) }); err != nil {
			n.log.Warn("announcing the job's end failed, will be tried again", "job", job, "err", err)
		}
		return nil
	})
}

package actors

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/actors/trial"
	"github.com/rowmill/rowmill/cluster"
	"github.com/rowmill/rowmill/internal/contain"
	"github.com/rowmill/rowmill/store"
)

// adopter is this node in the record of a job that it claims.
func (n *node) adopter(alone bool) store.Adopter {
	return store.Adopter{Node: n.cfg.Node, Process: n.id, Alone: alone}
}

// missed reports whether the process of an owner is not there: neither this one, nor
// one that others hear of. It may have ended.
func (n *node) missed(a store.Adopter) bool {
	return a.Process != n.id && (n.cfg.Peers == nil ||
		!slices.ContainsFunc(n.cfg.Peers.Members(), func(m cluster.Member) bool { return m.ID == a.Process }))
}

// ended reports whether the process of an owner has ended for all that can be known:
// its node runs another, or it was heard here before and is missed while others are
// heard. Who has just begun has heard of nobody's end, and who hears nobody may be cut
// off.
func (n *node) ended(a store.Adopter) bool {
	if !n.missed(a) || n.cfg.Peers == nil {
		return n.missed(a)
	}
	another := slices.ContainsFunc(n.cfg.Peers.Members(), func(m cluster.Member) bool { return m.Node == a.Node })
	return another || n.heard[a.Process] && len(n.members) > 0
}

// suspect reports whether a job may be what has ended an owner of it.
func (n *node) suspect(o store.Orphan) bool { return len(trial.Ended(o.Tried, n.missed)) > 0 }

// countSuspects looks how many suspects there are among all that have no owner.
func (n *node) countSuspects(orphans []store.Orphan) {
	suspects := 0
	for _, o := range orphans {
		if n.suspect(o) {
			suspects++
		}
	}
	n.claims.trials.Count(suspects)
}

func (n *node) onJobHarmless(c actor.Context, m jobHarmless) {
	if n.claims.trials.End(m.id) {
		n.scan(c)
	}
}

// convict fails a job that ends its owners, in place of taking it up.
func (n *node) convict(c actor.Context, rec store.Record, ended []store.Adopter) {
	id := rec.Job.ID
	fence := store.Fence{JobID: id, Session: rec.Session, Epoch: rec.Epoch}
	n.process.log.Error("the job is failed: the processes that had it last ended, and nothing of it was done", "job", id, "ended", len(ended), "node", ended[len(ended)-1].Node)
	n.tasks.run(c, "end the job", func(ctx context.Context) step {
		_, err := recordFailure(ctx, n.cfg.Store, fence, endedFailure(id, ended), n.cfg.Clock(), n.log)
		return func(c actor.Context) {
			over := jobOver{id: id, status: rowmill.StatusFailed}
			if err != nil { // another's by now, or over
				n.log.Warn("recording the failure failed", "job", id, "err", err)
				over.status = ""
			}
			n.onJobOver(c, over)
		}
	})
}

// giveBack gives back what could not be drained, after the actor has stopped: that
// this process ends says nothing against those jobs.
func (n *node) giveBack(ctx context.Context) {
	var all sync.WaitGroup
	for id, o := range inOrder(n.claims.owned) {
		all.Go(func() {
			err := contain.Run(func() error { return n.cfg.Store.Release(ctx, o.fence) })
			if err != nil && !rowmill.MustStop(err) {
				n.process.log.Warn("giving the job back failed", "job", id, "err", err)
			}
		})
	}
	all.Wait()
}

// endedFailure says what is known of owners that ended.
func endedFailure(id string, ended []store.Adopter) *rowmill.Failure {
	var when []string
	for _, a := range ended {
		when = append(when, fmt.Sprintf("%s, which took it up at %s", a.Node, a.Claimed().Format("2006-01-02 15:04:05Z")))
	}
	return rowmill.Failf(rowmill.CodeInternalError,
		"%d processes in a row ended while they owned the job and before anything more of it was done: %s. It is not tried again, since it may be what ended them: "+
			"the logs of these nodes say why they ended, or their system does where it killed them for their memory. Rows that were done are kept; after the cause is mended, rowmill jobs resume %s runs the rest.",
		len(ended), strings.Join(when, "; "), id)
}

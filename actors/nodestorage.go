package actors

import (
	"context"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/rowmill/rowmill/actors/nodes"
)

// What a node does about records and objects that it cannot use.

const (
	// lookInterval is the time between looks at a bucket that nothing has used:
	// the others have to know who reaches it.
	lookInterval = 5 * time.Second
	// awayInterval is the same while something is away, whose end should be
	// noticed soon.
	awayInterval = 2 * time.Second
)

// onStorageChanged tells everybody on this node, and the others.
func (n *node) onStorageChanged(c actor.Context) {
	for _, o := range inOrder(n.claims.owned) {
		c.Send(o.pid, storageChanged{})
	}
	n.judgeStorage(c)
	n.publishState()
	n.lookAtStorage(c)
	n.scan(c)
}

// judgeStorage decides whether the jobs of this node should be others', because
// it alone cannot use the bucket.
func (n *node) judgeStorage(actor.Context) {
	_, away := n.storage.Objects()
	switch {
	case !away || len(nodes.Reaching(n.transport.others())) == 0:
		n.reached = time.Time{}
	case n.reached.IsZero():
		n.reached = time.Now()
	}
	n.storage.Leave(n.leaves() && time.Since(n.reached) >= n.cfg.StoragePatience)
}

// leaves reports whether others can do what this node cannot.
func (n *node) leaves() bool { return !n.reached.IsZero() }

// claimsNow reports whether the node takes jobs: what it cannot do others can,
// if there are any.
func (n *node) claimsNow() bool {
	_, away := n.storage.Records()
	return n.phase == serving && n.lease != nil && !away && !n.leaves()
}

// objects is what the other nodes are told of the bucket.
func (n *node) objects() string {
	if _, away := n.storage.Objects(); away {
		return nodes.Away
	}
	return nodes.Reached
}

// lookAtStorage looks at what nobody uses, where it matters: others have to know
// of this node, or something is away.
func (n *node) lookAtStorage(c actor.Context) {
	_, records := n.storage.Records()
	_, objects := n.storage.Objects()
	interval := lookInterval
	switch {
	case records || objects:
		interval = awayInterval
	case n.cfg.Peers == nil:
		return
	}
	n.timers.after(c, interval, "storage", n.lookAtStorage)
	n.judgeStorage(c)
	n.tasks.run(c, "look at storage", func(ctx context.Context) step {
		n.storage.Look(ctx, lookInterval)
		return nil
	})
}

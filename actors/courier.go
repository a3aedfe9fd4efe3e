package actors

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/rowmill/rowmill/cluster/peer"
)

// A courier brings an actor's messages to its partner, on this node or on
// another. What it carries says how things stand, so that a newer message
// stands for an older one: between nodes one is on its way at a time, and only
// the newest waits.
type courier struct {
	local   *actor.PID // the partner, where it is on this node
	post    *post
	address string // of the partner's node
	kind    string // of envelope

	busy    bool
	waiting parcel // its body is nil where none waits
}

// A parcel is what a courier can carry: a heartbeat or an assignment.
type parcel struct {
	job   string
	epoch int64
	body  any
}

// delivered tells an actor that a courier is back.
type delivered struct {
	by  *courier
	err error
}

// carryTimeout is how long a message to another node may take: many times what
// it takes a node that is well, and less than two reports.
const carryTimeout = 1500 * time.Millisecond

// send brings m to the partner, or keeps it until the courier is back.
func (k *courier) send(c actor.Context, work errand, m parcel) {
	switch {
	case k.local != nil:
		c.Request(k.local, m.body)
	case k.busy:
		k.waiting = m
	default:
		k.busy = true
		work.run(c, func(ctx context.Context) any {
			ctx, cancel := context.WithTimeout(ctx, carryTimeout)
			defer cancel()
			return delivered{k, k.post.ask(ctx, k.address, k.kind, m.job, m.epoch, m.body, nil)}
		})
	}
}

// back must be called with each delivered: it sends what waits.
func (k *courier) back(c actor.Context, work errand) {
	k.busy = false
	if m := k.waiting; m.body != nil {
		k.waiting = parcel{}
		k.send(c, work, m)
	}
}

// A post carries requests to other nodes.
type post struct{ peers Peers }

func (p *post) ask(ctx context.Context, address, kind, job string, epoch int64, body, reply any) error {
	doc, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("encode %s: %w", kind, err)
	}
	self := p.peers.Self()
	err = p.peers.Ask(ctx, address, peer.Envelope{Protocol: Protocol, From: self.ID, Kind: kind, Job: job, Epoch: epoch, Body: doc}, reply)
	if err != nil {
		return fmt.Errorf("%s to %s: %w", kind, address, err)
	}
	return nil
}

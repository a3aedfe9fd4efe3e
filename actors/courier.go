package actors

import (
	"context"

	"github.com/asynkron/protoactor-go/actor"
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

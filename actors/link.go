package actors

import (
	"context"

	"github.com/asynkron/protoactor-go/actor"
)

// A link brings an actor's messages to its partner, on this node or on another.
// What they say is how things stand, so that a newer message stands for an
// older one: between nodes one is on its way at a time, and only the newest
// waits.
type link struct {
	local     *actor.PID // the partner, where it is on this node
	transport *transport
	address   string // of the partner's node
	failed    func(*link, error)

	busy    bool
	waiting any // nil where none waits
}

// send brings m to the partner, or keeps it until the one before it has arrived
// or has not; failed then hears why, if it is there.
func (l *link) send(c actor.Context, tasks taskGroup, m any) {
	switch {
	case l.local != nil:
		c.Request(l.local, m)
	case l.busy:
		l.waiting = m
	default:
		l.busy = true
		tasks.run(c, "tell a node", func(ctx context.Context) step {
			err := l.transport.tell(ctx, l.address, m)
			return func(c actor.Context) {
				l.busy = false
				if next := l.waiting; next != nil {
					l.waiting = nil
					l.send(c, tasks, next)
				}
				if err != nil && l.failed != nil {
					l.failed(l, err)
				}
			}
		})
	}
}

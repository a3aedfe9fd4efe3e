package actors

import (
	"context"

	"github.com/asynkron/protoactor-go/actor"
)

// A messageLink sends the messages of a job actor to a worker, or of a worker to its job
// actor. The receiver, called the partner, is on this node or on another. Each message
// states the whole situation, so a newer message replaces an older one. Between nodes
// one message is on its way at a time, and only the newest waits.
type messageLink struct {
	local     *actor.PID // set if the partner is on this node
	transport *peerTransport
	address   string                    // address of the partner's node
	failed    func(*messageLink, error) // called after a delivery has failed; nil: do nothing

	busy    bool // a message is on its way to another node
	waiting any  // newest message that waits until busy is false; nil if none
}

// send sends m to the partner. If an earlier message is still on its way, m waits until
// that message has arrived or failed. After a failed delivery, send calls failed, if
// set.
func (l *messageLink) send(c actor.Context, tasks taskGroup, m any) {
	switch {
	case l.local != nil:
		c.Request(l.local, m)
	case l.busy:
		l.waiting = m
	default:
		l.busy = true
		tasks.run(c, "tell a node", func(ctx context.Context) mailboxStep {
			err := l.transport.tellPeer(ctx, l.address, m)
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

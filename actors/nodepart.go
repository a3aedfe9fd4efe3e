package actors

import (
	"context"
	"log/slog"

	"github.com/asynkron/protoactor-go/actor"
)

// A nodePart holds the fields that all parts of the node actor share. The parts run in
// the mailbox of the node actor; each has its own state and timers.
type nodePart struct {
	*deps
	tasks  taskGroup
	timers timers
	log    *slog.Logger
}

// tell sends another node a message that may be lost; it logs a failure.
func (n *nodePart) tell(c actor.Context, address string, m any) {
	n.tasks.run(c, "tell a node", func(ctx context.Context) mailboxStep {
		if err := n.transport.tellPeer(ctx, address, m); err != nil {
			n.transport.logUnanswered(n.log, address, err)
		}
		return nil
	})
}

package actors

import (
	"context"
	"log/slog"

	"github.com/asynkron/protoactor-go/actor"
)

// A nodePart is what the parts of the node actor have in common. They run in its
// mailbox; each has the state of one duty of the node and its own timers.
type nodePart struct {
	*process
	tasks  taskGroup
	timers timers
	log    *slog.Logger
}

// tell sends another node something that may be lost.
func (n *nodePart) tell(c actor.Context, address string, m any) {
	n.tasks.run(c, "tell a node", func(ctx context.Context) step {
		if err := n.transport.tell(ctx, address, m); err != nil {
			n.transport.unanswered(n.log, address, err)
		}
		return nil
	})
}

package actors

import (
	"context"

	"github.com/asynkron/protoactor-go/actor"
)

// janitorName is what nodes are ranked for: the first of them cleans. Where two
// believe to be first they repeat each other's work, which harms nothing.
const janitorName = "janitor"

// janitorRest is how much sooner the next round comes while there is more to do.
const janitorRest = 60

// clean has the janitor do a round, if this node is the one that cleans.
func (n *node) clean(c actor.Context) {
	if n.phase == draining || n.lease == nil || n.cfg.Ownership.OwnsNone || n.rank(janitorName) > 0 {
		n.timers.after(c, n.cfg.Janitor.Interval, "janitor", n.clean)
		return
	}
	n.tasks.run(c, func(ctx context.Context) step {
		more, err := n.janitor.Round(ctx)
		return func(c actor.Context) {
			pause := n.cfg.Janitor.Interval
			if err != nil {
				n.log.Warn("removing data that is not kept any longer failed", "err", err)
			} else if more {
				pause /= janitorRest
			}
			n.timers.after(c, pause, "janitor", n.clean)
		}
	})
}

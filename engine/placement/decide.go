package placement

import (
	"slices"
	"time"
)

// drain is the time that a server is expected to need from Stop or Sleep until its GPUs
// are free. The rows of a server that makes room are cancelled, so it ends within 20 s.
const drain = 20 * time.Second

// Decide returns the actions that the present state needs, at most one for each server,
// ordered by node and server. It is called about every second and after each change. An
// action needs time: a server that must make room stops first, and a later call starts
// another server on its GPUs. All nodes of a cluster get the same actions for the same
// input, and each node runs its own.
//
// The rules, in the order of their precedence:
//
//   - Mode Off stops a server. Mode On runs it before all others. If servers with mode On
//     do not fit, the first by name run.
//   - Urgent rows of a model without a server take GPUs at once. The server that
//     loses least makes room; a server with urgent rows does not. So the rows start within Load
//     and 30 s. If several models wait, the oldest is first, and MaxWait applies.
//   - A model that has waited for MaxWait takes GPUs after Hold. The oldest is first. GPUs
//     that become free meanwhile are kept for it.
//   - Free GPUs, and GPUs of idle servers, run the models with rows in an order with a
//     short makespan. One more server of a model starts only if it saves more time than
//     its load. A server with rows does not stop for this.
//   - An idle server stops after Idle.
//
// No model starves. Its rows wait for at most
//
//	MaxWait + (n + 1) × (load + Hold + drain) + load
//
// where n is the number of models that have waited longer, load is the longest time of a
// load, and drain is the longest time from Stop until GPUs are free. Only modes, urgent
// rows and failed starts delay a model further. The bound holds among urgent models, too.
func Decide(now time.Time, nodes []Node, demand []Demand, rules Rules) []Action {
	c := newCluster(now, nodes, demand, rules)
	for _, s := range c.servers {
		if s.Mode == Off && (s.active() || s.Phase == Sleeping) {
			s.do = Stop
		}
	}
	c.placeOperators()
	c.placeWaiting()
	c.fill()
	for _, s := range c.servers {
		if s.Phase == Running && s.do == "" && s.Mode != On && len(s.models) == 0 &&
			s.Idle > 0 && !s.IdleSince.IsZero() && now.Sub(s.IdleSince) >= s.Idle {
			s.makeRoom()
		}
	}
	return c.actions()
}

// actions returns the decisions.
func (c *cluster) actions() []Action {
	var all []Action
	for _, s := range c.servers {
		if s.do == "" {
			continue
		}
		a := Action{Node: s.node.ID, Server: s.Name, Do: s.do}
		if s.do == Start {
			for _, i := range slices.Sorted(slices.Values(s.slots)) {
				a.GPUs = append(a.GPUs, c.slots[i].gpu)
			}
		}
		all = append(all, a)
	}
	return all
}

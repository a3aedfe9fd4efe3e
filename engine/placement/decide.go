package placement

import "time"

// Decide returns the actions that the present state needs, at most one for each server,
// ordered by node and server. It is called about every second and after each change. An
// action needs time: a server that must make room stops first, and the GPUs are free in a
// later call. All nodes of a cluster get the same actions for the same input.
func Decide(now time.Time, nodes []Node, demand []Demand, rules Rules) []Action {
	c := newCluster(now, nodes, demand, rules)
	c.stopForbidden()
	c.placeOperators()
	c.placeUrgent()
	c.placeOverdue()
	c.fill()
	c.stopIdle()
	return c.actions()
}

// stopIdle stops servers whose models have had no rows for Idle.
func (c *cluster) stopIdle() {
	for _, s := range c.servers {
		if s.Phase == Running && s.do == "" && s.Mode != On && len(s.models) == 0 &&
			s.Idle > 0 && !s.IdleSince.IsZero() && c.now.Sub(s.IdleSince) >= s.Idle {
			s.makeRoom()
		}
	}
}

package placement

import (
	"cmp"
	"slices"
	"time"
)

// Decide returns the actions that the present state needs, at most one for each server,
// ordered by node and server. It is called about every second and after each change. An
// action needs time: a server that must make room stops first, and the GPUs are free in a
// later call. All nodes of a cluster get the same actions for the same input.
func Decide(now time.Time, nodes []Node, demand []Demand, rules Rules) []Action {
	tokens := map[string]float64{}
	for _, d := range demand {
		tokens[d.Model] += d.Tokens
	}
	var actions []Action
	for _, n := range nodes {
		free := slices.Clone(n.GPUs)
		slices.Sort(free)
		for _, s := range n.Servers {
			if s.Phase != Stopped && s.Phase != Sleeping {
				free = slices.DeleteFunc(free, func(g int) bool { return slices.Contains(s.On, g) })
			}
		}
		for _, s := range n.Servers {
			rows := slices.ContainsFunc(s.Models, func(m string) bool { return tokens[m] > 0 })
			switch {
			case s.Phase == Stopped && rows && s.Mode != Off && !now.Before(s.RetryAt) && s.GPUs <= len(free):
				actions = append(actions, Action{Node: n.ID, Server: s.Name, Do: Start, GPUs: slices.Clone(free[:s.GPUs])})
				free = free[s.GPUs:]
			case s.Phase == Running && !rows && s.Mode != On && s.Idle > 0 && !s.IdleSince.IsZero() && now.Sub(s.IdleSince) >= s.Idle:
				actions = append(actions, Action{Node: n.ID, Server: s.Name, Do: Stop})
			}
		}
	}
	slices.SortFunc(actions, func(a, b Action) int {
		return cmp.Or(cmp.Compare(a.Node, b.Node), cmp.Compare(a.Server, b.Server))
	})
	return actions
}

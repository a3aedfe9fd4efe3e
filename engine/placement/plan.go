package placement

import (
	"cmp"
	"slices"
)

// searchWork bounds the search for a plan: the number of simulations × servers². 12
// servers get 400 simulations, which take a few milliseconds.
const searchWork = 400 * 12 * 12

// fill starts servers on the slots that no server with precedence needs: the first step of
// the best plan found.
func (c *cluster) fill() {
	for _, t := range c.plan().tasks {
		if t.first && c.startable(t.server) {
			c.begin(t.server, t.slots, t.moves)
		}
	}
}

// plan tries several orders of the waiting servers. Priority rules give the first orders. Then
// plan moves single servers in the best order.
func (c *cluster) plan() simulation {
	start := c.newSimulation()
	var best simulation
	var order []int
	budget := searchWork / max(len(start.tasks)*len(start.tasks), 1)
	try := func(next []int) bool {
		budget--
		s := start.run(next)
		if order != nil && cmp.Or(cmp.Compare(s.makespan, best.makespan), cmp.Compare(s.sum, best.sum)) >= 0 {
			return false
		}
		best, order = s, next
		return true
	}
	for _, next := range start.orders() {
		if try(next); !best.starts || budget <= 0 {
			return best
		}
	}
	for better := true; better; {
		better = false
		for i := range order {
			for j := range order {
				if i == j {
					continue
				}
				if budget <= 0 {
					return best
				}
				next := slices.Delete(slices.Clone(order), i, i+1)
				better = try(slices.Insert(next, j, order[i])) || better
			}
		}
	}
	return best
}

// orders returns the waiting tasks by two priority rules: the longest first, and the task
// with the most GPU time first.
func (s *simulation) orders() [][]int {
	var waiting []int
	long := make([]float64, len(s.tasks)) // time of the model's work on this and the former tasks
	rates := make([]float64, len(s.left))
	for i, t := range s.tasks {
		if t.state == waits {
			waiting = append(waiting, i)
		}
		for _, m := range t.models {
			rates[m] += t.rate
			long[i] = max(long[i], t.setup+s.left[m]/rates[m])
		}
	}
	by := func(key func(i int) float64) []int {
		return slices.SortedStableFunc(slices.Values(waiting), func(a, b int) int { return cmp.Compare(key(b), key(a)) })
	}
	return [][]int{
		by(func(i int) float64 { return long[i] }),
		by(func(i int) float64 { return long[i] * float64(s.tasks[i].server.GPUs) }),
	}
}

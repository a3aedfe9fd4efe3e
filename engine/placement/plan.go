package placement

import (
	"cmp"
	"math"
	"slices"
)

// A task is a server in a plan.
type task struct {
	server  *server
	models  []int // with rows
	rate    float64
	ready   float64 // earliest time of its start; of a running server: time from which it answers
	setup   float64 // time from the start until it answers
	waits   bool    // it does not run yet
	standby bool    // an operator wants it to run without rows
	wakes   bool    // it sleeps
	wake    float64 // time from asleep until it answers
}

// A plan simulates the rest of the work. All times are in seconds from now. The work of a
// model flows to its servers in proportion to their rates.
type plan struct {
	c      *cluster
	tasks  []task
	tokens []float64 // by model
	free   []float64 // by slot: time when it becomes free; +Inf if a running task or precedence holds it
	enough []bool    // by model: a running server has no rows
	sim    simulation
}

// fill starts servers on the GPUs that no server with precedence needs. It takes the first
// step of the best plan.
func (c *cluster) fill() {
	p := c.newPlan()
	if !p.canStart() {
		return
	}
	p.run(p.search())
	for i, t := range p.tasks {
		if t.waits && p.sim.began[i] {
			c.begin(t.server, p.sim.slots[i], p.sim.moved[i])
		}
	}
}

// begin takes the first step towards a server on the slots.
func (c *cluster) begin(s *server, slots []int, moved bool) {
	free := true
	for _, i := range slots {
		owner := c.slots[i].owner
		free = free && owner == nil
		if owner != nil && owner.active() {
			owner.makeRoom()
		}
	}
	switch {
	case !c.startable(s) || s.Phase == Stopping:
	case moved:
		s.do = Stop
	case !free:
	case s.Phase == Sleeping:
		s.do = Wake
	default:
		s.do, s.slots = Start, slices.Clone(slots)
	}
}

func (c *cluster) newPlan() *plan {
	p := &plan{c: c}
	for _, m := range c.models {
		p.tokens = append(p.tokens, m.Tokens)
		p.enough = append(p.enough, slices.ContainsFunc(m.servers, func(s *server) bool {
			return s.active() && s.Phase == Running && !s.IdleSince.IsZero()
		}))
	}
	for _, s := range c.slots {
		p.free = append(p.free, c.freeIn(s))
	}
	for _, s := range c.servers {
		if len(s.models) == 0 || s.Mode == Off || s.active() && s.idle(c.now) {
			continue
		}
		t := task{server: s, rate: max(s.Rate, 1e-3), setup: s.Load.Seconds(), standby: s.Mode == On}
		for _, m := range s.models {
			t.models = append(t.models, m.index)
		}
		t.wakes, t.wake = s.Phase == Sleeping, s.Wake.Seconds()
		if t.waits = !s.serves(); t.waits {
			t.ready = max(c.endsIn(s), s.RetryAt.Sub(c.now).Seconds(), 0)
		} else {
			t.ready = s.eta.Seconds()
		}
		p.tasks = append(p.tasks, t)
	}
	p.sim = newSimulation(p)
	return p
}

// freeIn returns the time until a slot is free for any server.
func (c *cluster) freeIn(s slot) float64 {
	switch {
	case s.taken:
		return math.Inf(1)
	case s.owner == nil:
		return 0
	case !s.owner.active():
		return c.endsIn(s.owner)
	case s.owner.Mode != On && s.owner.idle(c.now):
		return drain.Seconds()
	}
	return math.Inf(1)
}

// endsIn returns the time until a server that ends is stopped. A server that has been
// late for some time is expected to need the same time again.
func (c *cluster) endsIn(s *server) float64 {
	switch {
	case s.Phase == Stopping:
		return math.Abs((drain - c.now.Sub(s.Since)).Seconds())
	case s.do != "":
		return drain.Seconds()
	}
	return 0
}

// canStart reports whether a waiting task has GPUs now or after a drain.
func (p *plan) canStart() bool {
	p.sim.reset()
	for i := range p.tasks {
		if p.tasks[i].waits && p.tasks[i].ready <= drain.Seconds() && p.sim.needed(i) && p.sim.fit(i) {
			return true
		}
	}
	return false
}

// searchWork bounds the search: the number of orders × tasks². 12 servers get 400 orders.
const searchWork = 400 * 12 * 12

// search returns the order of the waiting tasks with the best schedule found: the best of
// several priority rules, improved by moving single tasks.
func (p *plan) search() []int {
	var best []int
	bestScore := score{math.Inf(1), math.Inf(1)}
	budget := searchWork / max(len(p.tasks)*len(p.tasks), 1)
	try := func(order []int) bool {
		budget--
		s := p.run(order)
		if s.compare(bestScore) >= 0 {
			return false
		}
		best, bestScore = slices.Clone(order), s
		return true
	}
	for _, order := range p.rules() {
		try(order)
	}
	for improved := true; improved && budget > 0; {
		improved = false
		for from := 0; from < len(best) && budget > 0; from++ {
			for to := 0; to < len(best) && budget > 0; to++ {
				if to != from && try(moveTask(best, from, to)) {
					improved = true
				}
			}
		}
	}
	return best
}

func moveTask(order []int, from, to int) []int {
	t := order[from]
	return slices.Insert(slices.Delete(slices.Clone(order), from, from+1), to, t)
}

// rules returns orders of the waiting tasks by common priority rules: the longest first,
// the largest first, the widest first.
func (p *plan) rules() [][]int {
	var waiting []int
	for i, t := range p.tasks {
		if t.waits {
			waiting = append(waiting, i)
		}
	}
	long := p.durations()
	wide := func(i int) float64 { return float64(p.tasks[i].server.GPUs) }
	by := func(key func(i int) float64) []int {
		return slices.SortedStableFunc(slices.Values(waiting), func(a, b int) int {
			return cmp.Or(cmp.Compare(key(b), key(a)), cmp.Compare(long[b], long[a]))
		})
	}
	return [][]int{
		by(func(i int) float64 { return long[i] }),
		by(func(i int) float64 { return long[i] * wide(i) }),
		by(wide),
		by(func(i int) float64 { return -long[i] }),
	}
}

// durations returns for each task how long its model's work takes on this server and the
// more efficient ones of the model.
func (p *plan) durations() []float64 {
	long := make([]float64, len(p.tasks))
	order := make([]int, len(p.tasks))
	for i := range order {
		order[i] = i
	}
	efficiency := func(t task) float64 { return t.rate / float64(max(t.server.GPUs, 1)) }
	slices.SortStableFunc(order, func(a, b int) int {
		ta, tb := p.tasks[a], p.tasks[b]
		if ta.waits != tb.waits {
			return map[bool]int{false: -1, true: 1}[ta.waits]
		}
		return cmp.Compare(efficiency(tb), efficiency(ta))
	})
	rates := make([]float64, len(p.tokens))
	for _, i := range order {
		t := p.tasks[i]
		for _, m := range t.models {
			rates[m] += t.rate / float64(len(t.models))
			long[i] = max(long[i], t.setup+p.tokens[m]/rates[m])
		}
	}
	return long
}

// A score rates a schedule: by its makespan, then by the sum of the ends of all models.
type score struct{ makespan, sum float64 }

func (s score) compare(t score) int {
	return cmp.Or(cmp.Compare(s.makespan, t.makespan), cmp.Compare(s.sum, t.sum))
}

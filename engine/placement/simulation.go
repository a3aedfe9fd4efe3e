package placement

import (
	"math"
	"slices"
)

// A simulation is the state of a plan at one time of its future.
type simulation struct {
	plan  *plan
	time  float64
	left  []float64 // by model: tokens that are not done
	rate  []float64 // by model: sum of the rates of its servers that answer
	all   []float64 // by model: rate, with servers that load
	debt  []float64 // by model: tokens that loading servers would have done until they answer
	free  []float64 // by slot
	state []state   // by task
	ready []float64 // by task
	slots [][]int   // by task
	began []bool    // by task: it is part of the first step
	moved []bool    // by task: it slept, and starts elsewhere
	score score
}

// A state of a task.
type state byte

const (
	waits state = iota
	runs
	ended
)

func newSimulation(p *plan) simulation {
	n, m := len(p.tasks), len(p.tokens)
	return simulation{
		plan: p, left: make([]float64, m), rate: make([]float64, m), all: make([]float64, m), debt: make([]float64, m),
		free:  make([]float64, len(p.free)),
		state: make([]state, n), ready: make([]float64, n), slots: make([][]int, n), began: make([]bool, n), moved: make([]bool, n),
	}
}

func (s *simulation) reset() {
	s.time, s.score = 0, score{}
	copy(s.left, s.plan.tokens)
	copy(s.free, s.plan.free)
	for i := range s.plan.tasks {
		t := &s.plan.tasks[i]
		s.state[i], s.ready[i], s.slots[i], s.began[i], s.moved[i] = waits, t.ready, s.slots[i][:0], false, false
		if !t.waits {
			s.state[i] = runs
			s.slots[i] = append(s.slots[i], t.server.slots...)
		}
	}
	s.sumRates()
}

// run simulates the schedule of an order of the waiting tasks.
func (p *plan) run(order []int) score {
	s := &p.sim
	s.reset()
	for {
		s.start(order)
		next := s.next()
		if math.IsInf(next, 1) {
			return s.score
		}
		s.advance(next)
	}
}

// sumRates sums the rates of the servers of each model.
func (s *simulation) sumRates() {
	clear(s.rate)
	clear(s.all)
	clear(s.debt)
	for i := range s.plan.tasks {
		if s.state[i] == runs {
			s.addRate(i)
		}
	}
}

func (s *simulation) addRate(i int) {
	t, n := &s.plan.tasks[i], 0
	for _, m := range t.models {
		if s.left[m] > 0 {
			n++
		}
	}
	for _, m := range t.models {
		if s.left[m] == 0 {
			continue
		}
		share := t.rate / float64(n)
		s.all[m] += share
		if wait := s.ready[i] - s.time; wait > 0 {
			s.debt[m] += share * wait
		} else {
			s.rate[m] += share
		}
	}
}

// start starts the waiting tasks that fit, in their order.
func (s *simulation) start(order []int) {
	for _, i := range order {
		t := &s.plan.tasks[i]
		if s.state[i] != waits || t.ready > s.time+drain.Seconds() || !s.needed(i) || !s.fit(i) {
			continue
		}
		s.state[i], s.began[i] = runs, s.time == 0
		for _, slot := range s.slots[i] {
			s.free[slot] = math.Inf(1)
		}
		s.addRate(i)
	}
}

// needed reports whether a model of the task has no server, or whether another server
// saves the model more time than its start needs.
func (s *simulation) needed(i int) bool {
	t := &s.plan.tasks[i]
	setup := t.setup
	if t.wakes {
		setup = t.wake
	}
	for _, m := range t.models {
		if s.left[m] == 0 {
			continue
		}
		if s.all[m] == 0 {
			return true
		}
		rate, work := t.rate/float64(len(t.models)), s.left[m]+s.debt[m]
		if !s.plan.enough[m] && work/s.all[m]-(work+rate*setup)/(s.all[m]+rate) > setup {
			return true
		}
	}
	return false
}

// fit looks for GPUs that are free now or after a drain, and sets the slots of the task
// and the time from which it answers.
func (s *simulation) fit(i int) bool {
	t := &s.plan.tasks[i]
	limit := s.time + drain.Seconds()
	if t.wakes {
		begin := max(s.time, t.ready)
		for _, slot := range t.server.slots {
			begin = max(begin, s.free[slot])
		}
		if begin <= limit {
			s.slots[i], s.ready[i] = append(s.slots[i][:0], t.server.slots...), begin+t.wake
			return true
		}
	}
	chosen := s.slots[i][:0]
	begin := max(s.time, t.ready)
	for range t.server.GPUs {
		best := -1
		for slot := t.server.node.first; slot < t.server.node.last; slot++ {
			if s.free[slot] > limit || slices.Contains(chosen, slot) {
				continue
			}
			if best < 0 || s.better(slot, best) {
				best = slot
			}
		}
		if best < 0 {
			return false
		}
		chosen = append(chosen, best)
		begin = max(begin, s.free[best])
	}
	s.slots[i], s.ready[i] = chosen, begin+t.setup
	if t.wakes {
		s.moved[i] = true
		s.ready[i] += drain.Seconds()
	}
	return true
}

// better reports whether slot a is a better choice than b.
func (s *simulation) better(a, b int) bool {
	if fa, fb := max(s.free[a], s.time), max(s.free[b], s.time); fa != fb {
		return fa < fb
	}
	return s.plan.c.slots[a].sleepers < s.plan.c.slots[b].sleepers
}

// next returns the time of the next change; +Inf if all work that has servers is done.
func (s *simulation) next() float64 {
	next := math.Inf(1)
	for m, left := range s.left {
		if left > 0 && s.rate[m] > 0 {
			next = min(next, s.time+left/s.rate[m])
		}
	}
	later := func(at float64) {
		if at > s.time {
			next = min(next, at)
		}
	}
	for i := range s.plan.tasks {
		switch s.state[i] {
		case waits:
			later(s.ready[i] - drain.Seconds())
		case runs:
			later(s.ready[i])
		}
	}
	for _, at := range s.free {
		later(at - drain.Seconds())
	}
	return next
}

// advance moves the time forward, and ends the models and tasks without work.
func (s *simulation) advance(to float64) {
	done := false
	for m, left := range s.left {
		if left == 0 || s.rate[m] == 0 {
			continue
		}
		s.left[m] -= (to - s.time) * s.rate[m]
		if s.left[m] <= 1e-9*s.plan.tokens[m] {
			s.left[m], done = 0, true
			s.score.makespan = to
			s.score.sum += to
		}
	}
	s.time = to
	if done {
		s.endTasks()
	}
	s.sumRates()
}

// endTasks frees the GPUs of the tasks without work.
func (s *simulation) endTasks() {
	for i := range s.plan.tasks {
		t := &s.plan.tasks[i]
		work := slices.ContainsFunc(t.models, func(m int) bool { return s.left[m] > 0 })
		if s.state[i] != runs || work || t.standby {
			continue
		}
		s.state[i] = ended
		for _, slot := range s.slots[i] {
			if !s.plan.c.slots[slot].taken {
				s.free[slot] = s.time + drain.Seconds()
			}
		}
	}
}

package placement

import (
	"cmp"
	"math"
	"slices"
)

// A simulation is the rest of the work at one time. All times are in seconds from now. The
// rows of a model are divided among its servers in proportion to their rates.
type simulation struct {
	c        *cluster
	time     float64
	tasks    []task    // servers with rows, by node and name
	left     []float64 // by model: tokens that are not done
	free     []float64 // by slot: time when it becomes free; +Inf if that is not known yet
	flows    []flow    // by model
	makespan float64   // time when the last model is done
	sum      float64   // of the times when models are done
	starts   bool      // it starts tasks at once, or after a drain
}

// A task is a server in a simulation.
type task struct {
	server      *server
	models      []int
	rate        float64 // tokens per second, for each of its models
	setup, wake float64 // time until it answers after a start, and after a wake
	state       state
	ready       float64 // earliest start while it waits; then the time when it answers
	slots       []int
	first       bool // it belongs to the first step
	moves       bool // it sleeps, and starts elsewhere
}

type state int

const (
	waits state = iota
	runs        // or loads
	ended
)

// A flow is the speed of a model.
type flow struct {
	rate float64 // tokens per second of the servers that answer
	all  float64 // rate, with servers that load
	debt float64 // tokens that loading servers do not do until they answer
}

func (c *cluster) newSimulation() simulation {
	s := simulation{c: c}
	for _, m := range c.models {
		s.left = append(s.left, m.Tokens)
	}
	for _, slot := range c.slots {
		free := 0.0
		switch owner := slot.owner; {
		case slot.taken, owner != nil && owner.active() && !c.idle(owner):
			free = math.Inf(1)
		case owner != nil && owner.active():
			free = drain.Seconds()
		case owner != nil:
			free = c.endsIn(owner).Seconds()
		}
		s.free = append(s.free, free)
	}
	for _, o := range c.servers {
		if len(o.models) == 0 || o.Mode == Off || o.active() && c.idle(o) {
			continue
		}
		t := task{server: o, rate: 1, setup: o.Load.Seconds(), wake: o.Wake.Seconds()}
		if o.Rate > 0 {
			t.rate = o.Rate / float64(len(o.models))
		}
		for _, m := range o.models {
			t.models = append(t.models, m.index)
		}
		if t.ready = max(c.endsIn(o), o.RetryAt.Sub(c.now)).Seconds(); o.serves() {
			t.state, t.ready, t.slots = runs, o.eta.Seconds(), o.slots
		}
		s.tasks = append(s.tasks, t)
	}
	return s
}

// run simulates the waiting tasks in an order: whenever slots are free, the first tasks
// that fit start. It ends at once if no task fits now.
func (s simulation) run(order []int) simulation {
	s.tasks, s.left, s.free = slices.Clone(s.tasks), slices.Clone(s.left), slices.Clone(s.free)
	s.flows = make([]flow, len(s.left))
	for {
		s.sumFlows()
		for _, i := range order {
			if t := &s.tasks[i]; t.state == waits && s.needed(t) && s.fit(t) {
				t.state, t.first = runs, s.time == 0
				s.starts = s.starts || t.first
				for _, slot := range t.slots {
					s.free[slot] = math.Inf(1)
				}
				s.addFlow(t)
			}
		}
		next := s.next()
		if math.IsInf(next, 1) || !s.starts {
			return s
		}
		s.advance(next)
	}
}

func (s *simulation) sumFlows() {
	clear(s.flows)
	for i := range s.tasks {
		if s.tasks[i].state == runs {
			s.addFlow(&s.tasks[i])
		}
	}
}

func (s *simulation) addFlow(t *task) {
	for _, m := range t.models {
		f := &s.flows[m]
		f.all += t.rate
		if t.ready > s.time {
			f.debt += t.rate * (t.ready - s.time)
		} else {
			f.rate += t.rate
		}
	}
}

// needed reports whether a model of the task has no server, or whether one more server
// saves the model more time than its start needs.
func (s *simulation) needed(t *task) bool {
	setup := t.setup
	if t.server.Phase == Sleeping {
		setup = t.wake
	}
	return slices.ContainsFunc(t.models, func(m int) bool {
		f, work := s.flows[m], s.left[m]+s.flows[m].debt
		saves := work/f.all - (work+t.rate*setup)/(f.all+t.rate)
		return s.left[m] > 0 && (f.all == 0 || saves > setup && !s.c.models[m].enough)
	})
}

// fit gives the task slots that are free now or after a drain; false if there are too few.
// A sleeping server moves if its own slots are in use for longer.
func (s *simulation) fit(t *task) bool {
	begin, limit := max(s.time, t.ready), s.time+drain.Seconds()
	if begin > limit {
		return false
	}
	sleeps, setup := t.server.Phase == Sleeping, t.setup
	later := func(i int) bool { return s.free[i] > limit }
	if sleeps && !slices.ContainsFunc(t.server.slots, later) {
		t.slots, setup = t.server.slots, t.wake
	} else {
		n := 0
		for _, i := range t.server.node.slots {
			if !later(i) {
				n++
			}
		}
		if n < t.server.GPUs {
			return false
		}
		free := slices.DeleteFunc(slices.Clone(t.server.node.slots), later)
		slices.SortStableFunc(free, func(a, b int) int {
			return cmp.Or(cmp.Compare(max(s.free[a], s.time), max(s.free[b], s.time)), cmp.Compare(s.c.slots[a].sleepers, s.c.slots[b].sleepers))
		})
		if t.slots, t.moves = free[:t.server.GPUs], sleeps; sleeps {
			setup += drain.Seconds()
		}
	}
	for _, i := range t.slots {
		begin = max(begin, s.free[i])
	}
	t.ready = begin + setup
	return true
}

// next returns the time of the next change; +Inf if all work that servers can do is done.
func (s *simulation) next() float64 {
	next := math.Inf(1)
	at := func(time float64) {
		if time > s.time {
			next = min(next, time)
		}
	}
	for m, f := range s.flows {
		if s.left[m] > 0 && f.rate > 0 {
			next = min(next, s.time+s.left[m]/f.rate)
		}
	}
	for _, t := range s.tasks {
		switch t.state {
		case waits:
			at(t.ready - drain.Seconds())
		case runs:
			at(t.ready)
		}
	}
	for _, free := range s.free {
		at(free - drain.Seconds())
	}
	return next
}

// advance moves the time forward, and ends models and tasks without work.
func (s *simulation) advance(to float64) {
	for m, f := range s.flows {
		if s.left[m] == 0 || f.rate == 0 {
			continue
		}
		if s.time+s.left[m]/f.rate <= to { // as in next: the time advances or a model ends
			s.left[m], s.makespan, s.sum = 0, to, s.sum+to
		} else {
			s.left[m] -= (to - s.time) * f.rate
		}
	}
	s.time = to
	for i := range s.tasks {
		t := &s.tasks[i]
		if t.state != runs || t.server.Mode == On || slices.ContainsFunc(t.models, func(m int) bool { return s.left[m] > 0 }) {
			continue
		}
		t.state = ended
		for _, slot := range t.slots {
			if t.server.placed || !s.c.slots[slot].taken {
				s.free[slot] = to + drain.Seconds()
			}
		}
	}
}

package placement

import (
	"cmp"
	"slices"
	"time"
)

// An evictor says for how long an active server still keeps its GPUs from a server with
// precedence; false if it keeps them until it is idle.
type evictor func(*server) (time.Duration, bool)

// stopForbidden stops servers with mode Off.
func (c *cluster) stopForbidden() {
	for _, s := range c.servers {
		if s.Mode == Off && (s.active() || s.Phase == Sleeping) {
			s.do = Stop
		}
	}
}

// placeOperators places servers with mode On, in the order of their names.
func (c *cluster) placeOperators() {
	on := slices.DeleteFunc(slices.Clone(c.servers), func(s *server) bool { return s.Mode != On })
	slices.SortStableFunc(on, func(a, b *server) int { return cmp.Compare(a.Name, b.Name) })
	for _, s := range on {
		if s.active() {
			c.take(s.slots)
			continue
		}
		c.place([]*server{s}, func(*server) (time.Duration, bool) { return 0, true })
	}
}

// placeUrgent places models with urgent rows. They take GPUs of servers without urgent
// rows at once, and after MaxWait those of all servers.
func (c *cluster) placeUrgent() {
	for _, m := range c.oldest() {
		if !m.Urgent || m.served() {
			continue
		}
		c.place(m.servers, func(v *server) (time.Duration, bool) {
			if v.urgent() {
				return c.held(v), m.overdue && v.Mode != On
			}
			return 0, v.Mode != On
		})
	}
}

// placeOverdue places models without urgent rows that have waited for MaxWait. They take
// GPUs of servers without urgent rows after Hold.
func (c *cluster) placeOverdue() {
	for _, m := range c.oldest() {
		if m.Urgent || !m.overdue || m.served() {
			continue
		}
		c.place(m.servers, func(v *server) (time.Duration, bool) {
			return c.held(v), v.Mode != On && !v.urgent()
		})
	}
}

// oldest returns the models by the time that their rows have waited.
func (c *cluster) oldest() []*model {
	return slices.SortedStableFunc(slices.Values(c.models), func(a, b *model) int { return a.Since.Compare(b.Since) })
}

// held returns the time until Hold of an active server is over.
func (c *cluster) held(s *server) time.Duration {
	switch {
	case s.idle(c.now):
		return 0
	case s.Phase == Loading:
		return s.eta + c.rules.Hold
	}
	return max(c.rules.Hold-c.now.Sub(s.Since), 0)
}

// An option is a way to run a server.
type option struct {
	server *server
	blocks []block
	setup  time.Duration // from free GPUs until it answers
	do     Kind          // action once the GPUs are free
}

// A block is a set of GPUs that become free together.
type block struct {
	slots []int
	owner *server       // nil if the GPUs are free
	late  time.Duration // time until the owner may be stopped
	loss  time.Duration // time that is lost with the owner
}

// ends reports whether the owner of the block ends already.
func (b block) ends() bool { return b.owner != nil && !b.owner.active() }

// compareBlocks orders blocks by preference.
func compareBlocks(a, b block) int {
	rank := func(b block) int {
		switch {
		case b.owner == nil:
			return 0
		case b.ends():
			return 1
		}
		return 2
	}
	return cmp.Or(cmp.Compare(a.late, b.late), cmp.Compare(a.loss, b.loss), cmp.Compare(rank(a), rank(b)))
}

// compare orders options by preference: first by the time until all GPUs may be freed,
// then by loss, then by the time until the server answers.
func (o option) compare(p option) int {
	sum := func(o option) (total block) {
		for _, b := range o.blocks {
			total.late = max(total.late, b.late)
			total.loss += b.loss
			if b.owner != nil {
				total.owner = b.owner
			}
		}
		return total
	}
	return cmp.Or(compareBlocks(sum(o), sum(p)), cmp.Compare(o.setup, p.setup))
}

// place chooses the best option of the candidates and takes the next step: the GPUs are
// reserved, then their owners stop, then the server starts.
func (c *cluster) place(candidates []*server, evict evictor) {
	var options []option
	for _, s := range candidates {
		if c.startable(s) {
			options = append(options, c.options(s, evict)...)
		}
	}
	if len(options) == 0 {
		return
	}
	c.step(slices.MinFunc(options, option.compare))
}

// step takes the next step towards an option.
func (c *cluster) step(o option) {
	s, free, late := o.server, true, time.Duration(0)
	s.placed, s.slots, s.eta = true, nil, o.setup
	for _, b := range o.blocks {
		s.slots = append(s.slots, b.slots...)
		free = free && b.owner == nil
		late = max(late, b.late)
	}
	c.take(s.slots)
	if !free {
		s.eta += late + drain
	}
	if late > 0 || s.Phase == Stopping {
		return
	}
	for _, b := range o.blocks {
		if b.owner != nil && b.owner.active() {
			b.owner.makeRoom()
		}
	}
	if free || o.do == Stop {
		s.do = o.do
	}
}

func (c *cluster) take(slots []int) {
	for _, i := range slots {
		c.slots[i].taken = true
	}
}

// options returns the ways to run a server: a sleeping server wakes where it sleeps, or
// stops and starts elsewhere.
func (c *cluster) options(s *server, evict evictor) []option {
	var all []option
	add := func(blocks []block, size int, setup time.Duration, do Kind) {
		for _, byShare := range []bool{false, true} {
			if chosen := choose(blocks, size, byShare); chosen != nil || size == 0 {
				all = append(all, option{server: s, blocks: chosen, setup: setup, do: do})
			}
		}
	}
	blocks := c.blocks(s.node.first, s.node.last, evict)
	if s.Phase != Sleeping {
		add(blocks, s.GPUs, s.Load, Start)
		return all
	}
	var own []block
	for _, b := range blocks {
		b.slots = slices.DeleteFunc(slices.Clone(b.slots), func(i int) bool { return !slices.Contains(s.slots, i) })
		own = append(own, b)
	}
	own = slices.DeleteFunc(own, func(b block) bool { return len(b.slots) == 0 })
	add(own, len(s.On), s.Wake, Wake)
	add(blocks, s.GPUs, drain+s.Load, Stop)
	return all
}

// blocks returns the GPUs from first to last that a server with precedence may get.
func (c *cluster) blocks(first, last int, evict evictor) []block {
	var all []block
	index := map[*server]int{}
	for i := first; i < last; i++ {
		owner := c.slots[i].owner
		if c.slots[i].taken {
			continue
		}
		if at, known := index[owner]; known && owner != nil {
			all[at].slots = append(all[at].slots, i)
			continue
		}
		b, ok := block{slots: []int{i}, owner: owner}, true
		if owner != nil && owner.active() {
			if b.late, ok = evict(owner); owner.idle(c.now) {
				b.late, ok = 0, owner.Mode != On || ok
			}
			b.loss = c.loss(owner)
		}
		if ok {
			index[owner] = len(all)
			all = append(all, b)
		}
	}
	return all
}

// loss returns the time that is lost when an active server makes room.
func (c *cluster) loss(s *server) time.Duration {
	switch {
	case s.idle(c.now):
		return 0
	case s.Phase == Loading:
		return s.Load - s.eta
	case s.Wake > 0:
		return s.Wake
	}
	return s.Load
}

// choose returns blocks with at least size GPUs, cut to size; nil if there are too few.
// It prefers a small loss of each block, or of each GPU.
func choose(blocks []block, size int, perGPU bool) []block {
	sorted := slices.SortedStableFunc(slices.Values(blocks), func(a, b block) int {
		if perGPU {
			a.loss /= time.Duration(len(a.slots))
			b.loss /= time.Duration(len(b.slots))
		}
		return compareBlocks(a, b)
	})
	total, n := 0, 0
	for ; n < len(sorted) && total < size; n++ {
		total += len(sorted[n].slots)
	}
	if total < size || size == 0 {
		return nil
	}
	sorted = sorted[:n]
	for i := n - 1; i >= 0; i-- { // a large block may make small ones unnecessary
		if rest := total - len(sorted[i].slots); rest >= size {
			sorted, total = slices.Delete(sorted, i, i+1), rest
		}
	}
	last := &sorted[len(sorted)-1]
	last.slots = last.slots[:len(last.slots)-(total-size)]
	return sorted
}

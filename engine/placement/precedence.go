package placement

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// A claim is a way to run a server with precedence.
type claim struct {
	server *server
	slots  []int
	late   time.Duration // time until the owners of all slots may be stopped
	loss   time.Duration // time that is lost with these owners
	setup  time.Duration // time from then until the server answers
	moves  bool          // the server sleeps, and starts elsewhere
}

// placeOperators places servers with mode On, in the order of their names.
func (c *cluster) placeOperators() {
	on := slices.DeleteFunc(slices.Clone(c.servers), func(s *server) bool { return s.Mode != On })
	slices.SortStableFunc(on, func(a, b *server) int { return cmp.Compare(a.Name, b.Name) })
	for _, s := range on {
		if s.active() {
			c.take(s.slots)
		} else {
			c.place([]*server{s}, nil)
		}
	}
}

// placeWaiting places models without a server that have urgent rows or have waited for
// MaxWait: urgent rows first, then the oldest.
func (c *cluster) placeWaiting() {
	models := slices.Clone(c.models)
	slices.SortStableFunc(models, func(a, b *model) int {
		if a.Urgent != b.Urgent {
			return map[bool]int{true: -1, false: 1}[a.Urgent]
		}
		return a.Since.Compare(b.Since)
	})
	for _, m := range models {
		if (m.Urgent || m.overdue) && !slices.ContainsFunc(m.servers, (*server).serves) {
			c.place(m.servers, m)
		}
	}
}

// place takes the next step towards the best claim of one of the servers, for a model or
// for the operator.
func (c *cluster) place(servers []*server, m *model) {
	var claims []claim
	for _, s := range servers {
		if c.startable(s) {
			claims = append(claims, c.claims(s, m)...)
		}
	}
	if len(claims) == 0 {
		return
	}
	best := slices.MinFunc(claims, func(k, l claim) int {
		return cmp.Or(cmp.Compare(k.late, l.late), cmp.Compare(k.loss, l.loss), cmp.Compare(k.setup, l.setup))
	})
	s := best.server
	s.placed, s.slots, s.eta = true, best.slots, best.late+best.setup
	c.take(s.slots)
	if best.late == 0 {
		c.begin(s, best.slots, best.moves)
	}
}

func (c *cluster) take(slots []int) {
	for _, i := range slots {
		c.slots[i].taken = true
	}
}

// claims returns the ways to run a server: a sleeping server wakes where it sleeps, or
// moves. One owner with many slots may be better than several owners, so each is tried as
// the first.
func (c *cluster) claims(s *server, m *model) []claim {
	var all []claim
	add := func(k claim, slots []int, size int, first *server) {
		if c.choose(&k, slots, size, first, m) {
			all = append(all, k)
		}
	}
	elsewhere := claim{server: s, setup: c.endsIn(s) + s.Load}
	if s.Phase == Sleeping {
		elsewhere.setup, elsewhere.moves = drain+s.Load, true
		if len(s.slots) == len(s.On) {
			add(claim{server: s, setup: s.Wake}, s.slots, len(s.On), nil)
		}
	}
	slots := s.node.slots
	add(elsewhere, slots, s.GPUs, nil)
	for _, i := range slots {
		add(elsewhere, slots, s.GPUs, c.slots[i].owner)
	}
	return all
}

// choose adds the best of the slots to the claim; false if there are too few.
func (c *cluster) choose(k *claim, slots []int, size int, first *server, m *model) bool {
	prices := map[int]price{}
	for _, i := range slots {
		if p, ok := c.price(c.slots[i], m); ok {
			if p.owner == first {
				p.order = -1
			}
			prices[i] = p
		}
	}
	if len(prices) < size {
		return false
	}
	k.slots = slices.SortedFunc(maps.Keys(prices), func(i, j int) int {
		a, b := prices[i], prices[j]
		return cmp.Or(cmp.Compare(a.late, b.late), cmp.Compare(a.order, b.order), cmp.Compare(i, j))
	})[:size]
	owners := map[*server]bool{}
	for _, i := range k.slots {
		p := prices[i]
		if k.late = max(k.late, p.late); p.owner != nil && !owners[p.owner] {
			owners[p.owner] = true
			k.loss += p.loss
		}
	}
	if len(owners) > 0 {
		k.setup += drain
	}
	return true
}

// A price is the disadvantage of a slot.
type price struct {
	owner *server
	late  time.Duration // time until the owner may be stopped
	loss  time.Duration // time that is lost with the owner
	order float64       // slots of owners that end are before those with the least loss per slot
}

// price returns the price of a slot for a model; false if it is not available.
func (c *cluster) price(s slot, m *model) (price, bool) {
	p, ok := price{owner: s.owner}, true
	if s.owner != nil && s.owner.active() {
		p.loss = c.loss(s.owner)
		p.order = 1 + p.loss.Seconds()/float64(len(s.owner.slots))
		p.late, ok = c.yields(s.owner, m)
	}
	return p, ok && !s.taken
}

// yields returns for how long an active server keeps its GPUs from a model, or from an
// operator if m is nil; false if it keeps them until it is idle.
func (c *cluster) yields(s *server, m *model) (time.Duration, bool) {
	switch {
	case m == nil, c.idle(s), m.Urgent && !s.urgent():
		return 0, true
	case s.urgent() && !(m.Urgent && m.overdue):
		return 0, false
	case s.Phase == Loading:
		return s.eta + c.rules.Hold, true
	}
	return max(c.rules.Hold-c.now.Sub(s.Since), 0), true
}

// loss returns the time that is lost when an active server makes room: it loads again. The
// loss is smaller for one of several servers of a model.
func (c *cluster) loss(s *server) time.Duration {
	lost := s.Load
	switch {
	case c.idle(s):
		return 0
	case s.Phase == Loading:
		lost = s.Load - s.eta
	case s.Wake > 0:
		lost = s.Wake
	}
	most := time.Duration(0)
	for _, m := range s.models {
		active := slices.DeleteFunc(slices.Clone(m.servers), func(o *server) bool { return !o.active() })
		most = max(most, lost/time.Duration(len(active)))
	}
	return most
}

package placement

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// A cluster is the state during one call of Decide.
type cluster struct {
	now     time.Time
	rules   Rules
	servers []*server // by node and name
	models  []*model  // models with rows, by name
	slots   []slot    // the GPUs of all nodes
}

// A node is a Node with the slots of its GPUs.
type node struct {
	Node
	slots []int
}

// A slot is one GPU.
type slot struct {
	gpu      int
	owner    *server // server that uses the GPU now; nil if it is free
	taken    bool    // a server with precedence uses the GPU, or will
	sleepers int     // number of servers that sleep on the GPU
}

// A model is a Demand with its servers.
type model struct {
	Demand
	index   int       // in cluster.models
	overdue bool      // it has waited for MaxWait
	enough  bool      // a running server has no rows
	servers []*server // by node and name
}

// A server is a Server with the decision about it.
type server struct {
	Server
	node   *node
	models []*model      // models with rows
	slots  []int         // GPUs that it uses, sleeps on, or gets
	placed bool          // it starts with precedence, or waits for its slots
	eta    time.Duration // time until it answers, if it is active or placed
	do     Kind          // action; empty is none
}

func newCluster(now time.Time, nodes []Node, demand []Demand, rules Rules) *cluster {
	c := &cluster{now: now, rules: rules}
	models := map[string]*model{}
	for _, d := range slices.SortedStableFunc(slices.Values(demand), func(a, b Demand) int { return cmp.Compare(a.Model, b.Model) }) {
		if !(d.Tokens > 0) || math.IsInf(d.Tokens, 0) || models[d.Model] != nil {
			continue
		}
		overdue := !d.Since.IsZero() && now.Sub(d.Since) >= rules.MaxWait
		models[d.Model] = &model{Demand: d, index: len(c.models), overdue: overdue}
		c.models = append(c.models, models[d.Model])
	}
	for _, n := range slices.SortedStableFunc(slices.Values(nodes), func(a, b Node) int { return cmp.Compare(a.ID, b.ID) }) {
		c.addNode(n, models)
	}
	return c
}

func (c *cluster) addNode(given Node, models map[string]*model) {
	n := &node{Node: given}
	n.GPUs = slices.Compact(slices.Sorted(slices.Values(given.GPUs)))
	for _, gpu := range n.GPUs {
		n.slots = append(n.slots, len(c.slots))
		c.slots = append(c.slots, slot{gpu: gpu})
	}
	for _, g := range slices.SortedStableFunc(slices.Values(given.Servers), func(a, b Server) int { return cmp.Compare(a.Name, b.Name) }) {
		s := &server{Server: g, node: n}
		s.GPUs = max(s.GPUs, 0)
		for _, name := range g.Models {
			if m := models[name]; m != nil && !slices.Contains(s.models, m) {
				s.models = append(s.models, m)
				m.servers = append(m.servers, s)
				m.enough = m.enough || g.Phase == Running && !g.IdleSince.IsZero()
			}
		}
		if g.Phase == Loading {
			s.eta = max(g.Load-c.now.Sub(g.Since), 0)
		}
		c.servers = append(c.servers, s)
		c.occupy(s)
	}
}

// occupy marks the GPUs that the server uses, or sleeps on.
func (c *cluster) occupy(s *server) {
	if s.Phase == Stopped {
		return
	}
	for _, gpu := range s.On {
		at := slices.Index(s.node.GPUs, gpu)
		if at < 0 {
			continue // the GPU is gone
		}
		i := s.node.slots[at]
		s.slots = append(s.slots, i)
		if s.Phase == Sleeping {
			c.slots[i].sleepers++
		} else if owner := c.slots[i].owner; owner == nil || owner.Phase == Stopping {
			c.slots[i].owner = s
		}
	}
}

// active reports whether the server loads or runs, and goes on.
func (s *server) active() bool {
	return s.do == "" && (s.Phase == Loading || s.Phase == Running)
}

// serves reports whether the server answers, or will without another decision.
func (s *server) serves() bool { return s.placed || s.active() }

func (s *server) urgent() bool {
	return slices.ContainsFunc(s.models, func(m *model) bool { return m.Urgent })
}

// idle reports whether an active server may stop without harm to its models: they have no
// rows, or for a while other servers have run all their rows.
func (c *cluster) idle(s *server) bool {
	if s.Phase == Running && !s.IdleSince.IsZero() && c.now.Sub(s.IdleSince) >= drain {
		return !slices.ContainsFunc(s.models, func(m *model) bool {
			return !slices.ContainsFunc(m.servers, func(o *server) bool {
				return o.active() && o.Phase == Running && o.IdleSince.IsZero()
			})
		})
	}
	return len(s.models) == 0
}

// makeRoom lets an active server free its GPUs.
func (s *server) makeRoom() {
	s.do = Stop
	if s.Phase == Running && s.Wake > 0 {
		s.do = Sleep
	}
}

// startable reports whether the server may start, now or after it has stopped.
func (c *cluster) startable(s *server) bool {
	rests := s.Phase == Stopped || s.Phase == Sleeping || s.Phase == Stopping
	return rests && s.do == "" && !s.placed && s.Mode != Off && !c.now.Before(s.RetryAt)
}

// endsIn returns the time until a server that ends has ended. A server that is late is
// expected to need the same time again.
func (c *cluster) endsIn(s *server) time.Duration {
	switch {
	case s.Phase == Stopping:
		return (drain - c.now.Sub(s.Since)).Abs()
	case s.do != "":
		return drain
	}
	return 0
}

// begin takes the next step towards a server on its slots: their owners stop, or the
// server starts. A sleeping server that moves stops first.
func (c *cluster) begin(s *server, slots []int, moves bool) {
	free := true
	for _, i := range slots {
		owner := c.slots[i].owner
		free = free && owner == nil
		if owner != nil && owner.active() {
			owner.makeRoom()
		}
	}
	switch {
	case !free && !moves || s.Phase == Stopping:
	case moves:
		s.do = Stop
	case s.Phase == Sleeping:
		s.do = Wake
	default:
		s.do, s.slots = Start, slots
	}
}

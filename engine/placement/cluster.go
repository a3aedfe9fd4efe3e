package placement

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// drain is the time that a server is expected to need from Stop or Sleep until its GPUs
// are free. Servers end within 20 s.
const drain = 20 * time.Second

// A cluster is the state during one call of Decide.
type cluster struct {
	now     time.Time
	rules   Rules
	nodes   []*node   // by ID
	servers []*server // by node and name
	models  []*model  // models with rows, by name
	slots   []slot    // the GPUs of all nodes
}

// A node is the range of its GPUs in cluster.slots: first ≤ i < last.
type node struct {
	id          string
	first, last int
}

// A slot is one GPU.
type slot struct {
	gpu      int
	owner    *server // server that uses the GPU now; nil if it is free
	taken    bool    // the GPU belongs to a server with precedence, now or soon
	sleepers int     // number of servers that sleep on the GPU
}

// A model is a Demand with its servers.
type model struct {
	Demand
	index   int // in cluster.models
	overdue bool
	servers []*server // by node and name
}

// A server is a Server with the decision about it.
type server struct {
	Server
	node   *node
	models []*model      // models with rows
	slots  []int         // GPUs that it uses, or will use
	placed bool          // it starts, or waits for its slots
	eta    time.Duration // time until it answers, if it is active or placed
	do     Kind          // action; empty is none
}

func newCluster(now time.Time, nodes []Node, demand []Demand, rules Rules) *cluster {
	c := &cluster{now: now, rules: rules}
	models := map[string]*model{}
	for _, d := range demand {
		if !(d.Tokens > 0) || math.IsInf(d.Tokens, 0) || models[d.Model] != nil {
			continue
		}
		overdue := !d.Since.IsZero() && now.Sub(d.Since) >= rules.MaxWait
		models[d.Model] = &model{Demand: d, overdue: overdue}
		c.models = append(c.models, models[d.Model])
	}
	slices.SortFunc(c.models, func(a, b *model) int { return cmp.Compare(a.Model, b.Model) })
	for i, m := range c.models {
		m.index = i
	}
	nodes = slices.SortedStableFunc(slices.Values(nodes), func(a, b Node) int { return cmp.Compare(a.ID, b.ID) })
	for _, n := range nodes {
		c.addNode(n, models)
	}
	return c
}

func (c *cluster) addNode(given Node, models map[string]*model) {
	n := &node{id: given.ID, first: len(c.slots)}
	slotOf := map[int]int{}
	for _, gpu := range slices.Sorted(slices.Values(given.GPUs)) {
		if _, known := slotOf[gpu]; !known {
			slotOf[gpu] = len(c.slots)
			c.slots = append(c.slots, slot{gpu: gpu})
		}
	}
	n.last = len(c.slots)
	c.nodes = append(c.nodes, n)
	byName := func(a, b Server) int { return cmp.Compare(a.Name, b.Name) }
	for _, g := range slices.SortedStableFunc(slices.Values(given.Servers), byName) {
		s := &server{Server: g, node: n}
		for _, name := range slices.Compact(slices.Sorted(slices.Values(g.Models))) {
			if m := models[name]; m != nil {
				s.models = append(s.models, m)
				m.servers = append(m.servers, s)
			}
		}
		c.servers = append(c.servers, s)
		c.occupy(s, slotOf)
	}
}

// occupy marks the GPUs that the server uses, or sleeps on.
func (c *cluster) occupy(s *server, slotOf map[int]int) {
	if s.Phase == Stopped {
		return
	}
	for _, gpu := range s.On {
		i, known := slotOf[gpu]
		if !known {
			continue // the GPU is gone
		}
		s.slots = append(s.slots, i)
		switch owner := c.slots[i].owner; {
		case s.Phase == Sleeping:
			c.slots[i].sleepers++
		case owner == nil || owner.Phase == Stopping:
			c.slots[i].owner = s
		}
	}
	if s.Phase == Loading {
		s.eta = max(s.Load-c.now.Sub(s.Since), 0)
	}
}

// active reports whether the server uses its GPUs for longer than this call.
func (s *server) active() bool {
	return s.do == "" && (s.Phase == Loading || s.Phase == Running)
}

// serves reports whether the server answers, or will without another decision.
func (s *server) serves() bool { return s.placed || s.active() }

func (s *server) urgent() bool {
	return slices.ContainsFunc(s.models, func(m *model) bool { return m.Urgent })
}

// idle reports whether an active server may stop without harm to its models: they have no rows,
// or other servers have run all their rows for longer than a drain.
func (s *server) idle(now time.Time) bool {
	if len(s.models) == 0 {
		return true
	}
	if s.Phase != Running || s.IdleSince.IsZero() || now.Sub(s.IdleSince) < drain {
		return false
	}
	return !slices.ContainsFunc(s.models, func(m *model) bool { return !m.servedWithout(s) })
}

// servedWithout reports whether a running server other than s has rows of the model.
func (m *model) servedWithout(s *server) bool {
	return slices.ContainsFunc(m.servers, func(o *server) bool {
		return o != s && o.active() && o.Phase == Running && o.IdleSince.IsZero()
	})
}

// makeRoom frees the GPUs of an active server.
func (s *server) makeRoom() {
	s.do = Stop
	if s.Phase == Running && s.Wake > 0 {
		s.do = Sleep
	}
}

// startable reports whether the server may start, now or after it has stopped.
func (c *cluster) startable(s *server) bool {
	waits := s.Phase == Stopped || s.Phase == Sleeping || s.Phase == Stopping
	return waits && s.do == "" && !s.placed && s.Mode != Off && !c.now.Before(s.RetryAt)
}

// served reports whether a server of the model answers, or will without another decision.
func (m *model) served() bool { return slices.ContainsFunc(m.servers, (*server).serves) }

// actions returns the decisions.
func (c *cluster) actions() []Action {
	var all []Action
	for _, s := range c.servers {
		if s.do == "" {
			continue
		}
		a := Action{Node: s.node.id, Server: s.Name, Do: s.do}
		if s.do == Start {
			for _, i := range slices.Sorted(slices.Values(s.slots)) {
				a.GPUs = append(a.GPUs, c.slots[i].gpu)
			}
		}
		all = append(all, a)
	}
	return all
}

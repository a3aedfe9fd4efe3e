package nodes

import (
	"fmt"
	"slices"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/cluster"
)

// A Status is what this node knows about a node of the cluster.
type Status struct {
	ID, Name, API, Peer, Version  string
	Self, Engines, Owns, Draining bool
	Models                        []string  // names of all models of the node's engines, sorted
	Servers                       []Engine  // the node's engines, and servers that it can start
	Demand                        []Demand  // unfinished rows of the node's jobs, by model
	Jobs                          int       // number of jobs that the node owns
	Window, InFlight              int       // rows allowed and rows in flight, over all engines
	Since                         time.Time // start time of the node
}

// StatusOf returns the status of a member with state s.
func StatusOf(m cluster.Member, s State) Status {
	st := Status{
		ID: m.ID, Name: m.Node, API: m.API, Peer: m.Peer, Self: m.Self, Engines: m.Engines, Owns: m.Owns,
		Version: s.Version, Since: s.Since, Draining: s.Draining, Jobs: s.Jobs, Servers: s.Engines, Demand: s.Demand,
	}
	for _, e := range s.Engines {
		st.Window += e.Window
		st.InFlight += e.InFlight
		for _, m := range e.Models {
			if !slices.Contains(st.Models, m.Name) {
				st.Models = append(st.Models, m.Name)
			}
		}
	}
	slices.Sort(st.Models)
	return st
}

// Find returns the node with this id, or the only node with this name. With an empty id
// it returns this node itself. The error is rowmill.ErrNotFound if there is no such
// node, and rowmill.ErrConflict if several nodes have the name.
func Find(list []Status, id string) (Status, error) {
	var named []Status
	for _, n := range list {
		switch {
		case n.ID == id, id == "" && n.Self:
			return n, nil
		case n.Name == id:
			named = append(named, n)
		}
	}
	switch len(named) {
	case 0:
		return Status{}, fmt.Errorf("node %q: %w", id, rowmill.ErrNotFound)
	case 1:
		return named[0], nil
	}
	return Status{}, fmt.Errorf("%d nodes have the name %q; use the id of a node: %w", len(named), id, rowmill.ErrConflict)
}

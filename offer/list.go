package offer

import (
	"maps"
	"slices"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/engine"
)

// An Offered is a model as the list of all shows it.
type Offered struct {
	Model   rowmill.Model // its kind is empty where that is not known; its context is what servers take
	Aliases []string      // of the catalog, sorted
	Servers []Server      // that serve it now, each with what it calls it alone
	Problem string        // why it cannot be used now; empty where it can
}

// List returns the models of the catalog, in its order, and then those that
// servers serve and no entry has, by name.
func (o *Models) List() []Offered { return o.list(o.servers()) }

func (o *Models) list(servers []Server) []Offered {
	aliases := map[string][]string{}
	for alias, target := range o.catalog.Aliases() {
		aliases[target] = append(aliases[target], alias)
	}
	var all []Offered
	listed := map[string]bool{} // what servers call models of the catalog
	for _, m := range o.catalog.All() {
		offered := offer(m, m.ID, servers)
		for _, s := range offered.Servers {
			listed[s.Models[0].Name] = true
		}
		all = append(all, offered)
	}
	others := map[string]bool{}
	for _, server := range servers {
		for _, m := range server.Models {
			if !listed[m.Name] && !o.has(m) {
				others[m.Name] = true
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(others)) {
		m := rowmill.Model{ID: name, Sampling: map[string]any{}, NoPrice: true}
		all = append(all, offer(m, name, servers))
	}
	for i := range all {
		all[i].Aliases = aliases[all[i].Model.ID]
		slices.Sort(all[i].Aliases)
	}
	return all
}

// has reports whether an entry of the catalog is what a server serves: under one
// server's name and the origin it may be several.
func (o *Models) has(m engine.ServedModel) bool {
	return slices.ContainsFunc(m.Names(), func(name string) bool {
		_, id := o.catalog.Find(name)
		return id || len(o.catalog.Called(name)) > 0
	})
}

// offer is a model with who serves it.
func offer(m rowmill.Model, family string, servers []Server) Offered {
	offered := Offered{Model: m}
	var served []engine.ServedModel
	for _, server := range servers {
		if s, ok := (engine.Info{Models: server.Models}).Find(m); ok {
			served = append(served, s)
			server.Models = []engine.ServedModel{s}
			offered.Servers = append(offered.Servers, server)
		}
	}
	whole, err := complete(m, served, family)
	if err != nil {
		offered.Problem = err.Error()
		return offered
	}
	if least := leastContext(served); least > 0 && least < whole.ContextLength {
		whole.ContextLength = least
	}
	offered.Model = whole
	return offered
}

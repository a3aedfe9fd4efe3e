package served

import (
	"maps"
	"slices"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/engine"
)

// A ListedModel is one entry in the list of all models.
type ListedModel struct {
	Model   rowmill.Model // Kind is empty if unknown; ContextLength is not larger than the smallest context length of Servers
	Aliases []string      // the aliases of Model.ID, sorted
	Servers []Server      // the servers that serve the model; the field Models of each Server holds only this model
	Problem string        // reason why the model cannot be used now; empty if it can be used
}

// List returns the models of the catalog, in the order of the catalog, and then the
// served models that are not in the catalog, sorted by name.
func (o *Models) List() []ListedModel { return o.listModels(o.servers()) }

func (o *Models) listModels(servers []Server) []ListedModel {
	aliases := map[string][]string{}
	for alias, target := range o.catalog.Aliases() {
		aliases[target] = append(aliases[target], alias)
	}
	var all []ListedModel
	seen := map[string]bool{} // served models that are in the catalog, by the server's name of the model
	for _, m := range o.catalog.All() {
		entry := newListedModel(m, m.ID, servers)
		for _, s := range entry.Servers {
			seen[s.Models[0].Name] = true
		}
		all = append(all, entry)
	}
	others := map[string]bool{}
	for _, server := range servers {
		for _, m := range server.Models {
			if !seen[m.Name] && !o.isInCatalog(m) {
				others[m.Name] = true
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(others)) {
		m := rowmill.Model{ID: name, Sampling: map[string]any{}, NoPrice: true}
		all = append(all, newListedModel(m, name, servers))
	}
	for i := range all {
		all[i].Aliases = aliases[all[i].Model.ID]
		slices.Sort(all[i].Aliases)
	}
	return all
}

// isInCatalog reports whether an entry of the catalog describes a served model. The
// served model's name and its origin may match different entries.
func (o *Models) isInCatalog(m engine.ServedModel) bool {
	return slices.ContainsFunc(m.Names(), func(name string) bool {
		_, id := o.catalog.Find(name)
		return id || len(o.catalog.FindByEngineName(name)) > 0
	})
}

// newListedModel returns the list entry of a model with the servers that serve it.
func newListedModel(m rowmill.Model, family string, servers []Server) ListedModel {
	entry := ListedModel{Model: m}
	var served []engine.ServedModel
	for _, server := range servers {
		if s, ok := (engine.ServerInfo{Models: server.Models}).FindModel(m); ok {
			served = append(served, s)
			server.Models = []engine.ServedModel{s}
			entry.Servers = append(entry.Servers, server)
		}
	}
	whole, err := fillFromServers(m, served, family)
	if err != nil {
		entry.Problem = err.Error()
		return entry
	}
	if least := minContextLength(served); least > 0 && least < whole.ContextLength {
		whole.ContextLength = least
	}
	entry.Model = whole
	return entry
}

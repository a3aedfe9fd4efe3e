// Package served lists the models that are available: the models of the catalog and the
// models of live servers. It fills gaps in catalog entries with values from servers,
// and the other way round. Models.Find resolves the name of a model; a submission calls
// it once, and the job's record stores the result. Models.List lists all models. The
// package does not know how Rowmill finds the servers, or who may use which model.
package served

import (
	"fmt"
	"slices"
	"strings"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/engine"
	"github.com/rowmill/rowmill/engine/catalog"
	"github.com/rowmill/rowmill/internal/textfmt"
)

// A Server is an inference server, as a node of the cluster describes it.
type Server struct {
	Node   string // name of the node that uses the server
	Name   string // name of the engine, unique on its node
	Kind   string // kind of the server, such as "vllm"
	Counts bool   // the server can count the tokens of a prompt
	// Simulated means that the server makes up its answers.
	Simulated bool
	Stopped   bool // the server does not run; its node starts it for rows
	Models    []engine.ServedModel
}

// Models is the set of models that are available now. It is safe for concurrent use.
type Models struct {
	catalog *catalog.Catalog
	servers func() []Server // returns the servers that are live now
}

// New returns the models of catalog c and of the live servers, which the function
// servers returns. If servers is nil, there are no servers.
func New(c *catalog.Catalog, servers func() []Server) *Models {
	if servers == nil {
		servers = func() []Server { return nil }
	}
	return &Models{c, servers}
}

// UnknownModelError reports that no model has the name Name.
type UnknownModelError struct {
	Name string
	Near string   // most similar name of a model; empty if none is similar
	All  []string // names of all models, served models first
}

// maxListed is the maximum number of model names in the text of an UnknownModelError.
const maxListed = 12

// Error returns the message with the remedy.
func (e *UnknownModelError) Error() string {
	text := fmt.Sprintf("%q is no model of this service", textfmt.Shorten(e.Name, 128))
	return text + e.Hint()
}

// Hint returns the second half of the error text: the most similar name, or the names
// of available models.
func (e *UnknownModelError) Hint() string {
	text := ""
	if e.Near != "" {
		text = fmt.Sprintf("; did you mean %q?", e.Near)
	} else if len(e.All) > 0 {
		text = "; there are"
		for i, name := range e.All[:min(maxListed, len(e.All))] {
			if i > 0 {
				text += ","
			}
			text += " " + textfmt.Shorten(name, 64)
		}
		if more := len(e.All) - maxListed; more > 0 {
			text += fmt.Sprintf(" and %d more", more)
		}
	}
	return text + " (GET /v1/models lists all)"
}

// UnusableModelError reports that the model Name exists but cannot be used now.
type UnusableModelError struct {
	Name   string
	Reason string // why the model cannot be used, and what to do
	Soon   bool   // a retry in a few seconds may succeed
}

// Error returns the message with the remedy.
func (e *UnusableModelError) Error() string {
	return fmt.Sprintf("%q %s", textfmt.Shorten(e.Name, 128), e.Reason)
}

// Find resolves a name to a complete model. It returns an *UnknownModelError if no model has
// the name, and an *UnusableModelError if the model cannot be used now.
func (o *Models) Find(name string) (rowmill.Model, error) {
	servers := o.servers()
	target := o.catalog.ResolveAlias(name)
	if m, found := o.catalog.Find(target); found {
		return fillFromServers(m, findServedModels(servers, m), m.ID)
	}
	m := rowmill.Model{ID: target, Sampling: map[string]any{}, NoPrice: true}
	served := findServedModels(servers, m)
	switch {
	case len(served) > 0, len(o.catalog.FindByEngineName(target)) > 0:
	case target != name:
		return rowmill.Model{}, &UnusableModelError{Name: name, Reason: fmt.Sprintf(
			"is an alias of %q, but no live server serves that model and the catalog has no entry for it; start a server of it, or add an entry", target)}
	default:
		return rowmill.Model{}, o.newUnknownModelError(name, servers)
	}
	if entry, found := o.findCatalogEntry(target, served); found {
		m = entry
		m.ID, m.EngineNames = target, nil
		return fillFromServers(m, served, entry.ID)
	}
	return fillFromServers(m, served, target)
}

// HasModel reports whether a model has this name, even if the model cannot be used now.
func (o *Models) HasModel(name string) bool {
	target := o.catalog.ResolveAlias(name)
	if _, found := o.catalog.Find(target); found || target != name || len(o.catalog.FindByEngineName(target)) > 0 {
		return true
	}
	return target != "" && len(findServedModels(o.servers(), rowmill.Model{ID: target})) > 0
}

// findCatalogEntry returns the catalog entry that lists name, or another name of the served
// model, among its engine names. If several entries do, it returns the first entry with
// the kind that the servers report, otherwise the first entry.
func (o *Models) findCatalogEntry(name string, served []engine.ServedModel) (rowmill.Model, bool) {
	entries := o.catalog.FindByEngineName(name)
	for _, s := range served {
		for _, other := range s.Names() {
			if len(entries) == 0 {
				entries = o.catalog.FindByEngineName(other)
			}
		}
	}
	if len(entries) == 0 {
		return rowmill.Model{}, false
	}
	kind := reportedKind(served)
	for _, m := range entries {
		if m.Kind == kind {
			return m, true
		}
	}
	return entries[0], true
}

// findServedModels returns the description of model m by each server that serves it.
func findServedModels(servers []Server, m rowmill.Model) (served []engine.ServedModel) {
	for _, server := range servers {
		if s, ok := (engine.ServerInfo{Models: server.Models}).FindModel(m); ok {
			served = append(served, s)
		}
	}
	return served
}

// reportedKind returns the kind that the servers report for a model; empty if none reports a
// kind. If one server reports generation and another reports reasoning, the kind is
// reasoning, because the one that reports generation runs without a reasoning parser.
func reportedKind(served []engine.ServedModel) (kind rowmill.Kind) {
	for _, s := range served {
		if s.Kind == rowmill.KindReasoning || kind == "" {
			kind = s.Kind
		}
	}
	return kind
}

// fillFromServers fills the missing fields of m with the values that servers report. family is
// a model name that selects the sampling defaults; if it belongs to no known family,
// the names of the served model are used.
func fillFromServers(m rowmill.Model, served []engine.ServedModel, family string) (rowmill.Model, error) {
	if m.Kind == "" {
		kind := reportedKind(served)
		if kind == "" {
			return rowmill.Model{}, newUnusableModelError(m, served)
		}
		for _, s := range served {
			for _, name := range s.Names() {
				if len(catalog.FamilyDefaults(family, rowmill.KindGeneration)) == 0 {
					family = name
				}
			}
		}
		m = catalog.WithKind(m, kind, family)
	}
	if m.ContextLength == 0 { // if the entry gives a length, the start of the job compares it with the servers' lengths
		m.ContextLength = minContextLength(served)
	}
	for _, s := range served {
		if m.Kind == rowmill.KindEmbedding && m.Dimension == 0 {
			m.Dimension = s.Dimension
		}
	}
	if m.Kind == rowmill.KindEmbedding && m.Dimension == 0 {
		return rowmill.Model{}, newUnusableModelError(m, served)
	}
	return m, nil
}

// minContextLength returns the shortest context length that a server reports for the model,
// in tokens; 0 if none reports a length.
func minContextLength(served []engine.ServedModel) (least int) {
	for _, s := range served {
		if s.ContextLength > 0 && (least == 0 || s.ContextLength < least) {
			least = s.ContextLength
		}
	}
	return least
}

// newUnusableModelError returns the error for a model whose kind or dimension is unknown, with the
// remedy.
func newUnusableModelError(m rowmill.Model, served []engine.ServedModel) error {
	e := &UnusableModelError{Name: m.ID}
	const remedy = "set its kind in an entry of the catalog"
	for _, s := range served {
		if s.Unusable != "" {
			e.Reason = "is served and cannot be used: " + s.Unusable
			return e
		}
	}
	switch {
	case len(served) == 0 && m.Kind == rowmill.KindEmbedding:
		e.Reason = "is in the catalog without its dimension, and no live server reports it; start a server of it, or set its dimension in the catalog"
	case len(served) == 0:
		e.Reason = "is in the catalog without its kind, and no live server reports it; start a server of it, or set its kind in the catalog"
	case m.Kind == rowmill.KindEmbedding:
		e.Soon = true
		e.Reason = "is served, and Rowmill is finding out the dimension of its embeddings; try again in a few seconds, or set its dimension in an entry of the catalog"
	default:
		e.Soon = true
		e.Reason = "is served, and Rowmill is finding out whether it generates, reasons or embeds; try again in a few seconds, or " + remedy
	}
	return e
}

// newUnknownModelError returns the UnknownModelError for a name, with similar and available names.
func (o *Models) newUnknownModelError(name string, servers []Server) error {
	var served, rest []string
	for _, listed := range o.listModels(servers) {
		if len(listed.Servers) > 0 {
			served = append(served, listed.Model.ID)
		} else {
			rest = append(rest, listed.Model.ID)
		}
	}
	e := &UnknownModelError{Name: name, All: append(served, rest...)}
	others := slices.Clone(e.All)
	for alias := range o.catalog.Aliases() {
		others = append(others, alias)
	}
	for _, server := range servers {
		for _, m := range server.Models {
			others = append(others, m.Names()...)
		}
	}
	slices.Sort(others)
	if e.Near = nearest(name, slices.Compact(others)); e.Near == "" && !strings.Contains(name, "/") {
		e.Near = findWithOrganisation(name, others)
	}
	return e
}

// nearest returns the name in names that is most similar to name; empty if none is
// similar.
func nearest(name string, names []string) string {
	return catalog.NearestName(name, slices.DeleteFunc(slices.Clone(names), func(s string) bool { return s == "" }))
}

// findWithOrganisation returns the first of names that has the form organisation/name for
// the given name; empty if there is none.
func findWithOrganisation(name string, names []string) string {
	for _, full := range names {
		if _, own, is := strings.Cut(full, "/"); is && strings.EqualFold(own, name) && name != "" {
			return full
		}
	}
	return ""
}

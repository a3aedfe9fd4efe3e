// Package offer is what a service offers: the models of the catalog, and those
// that live servers serve, each refined by the other. It owns what a name means
// (Models.Find), which a submission asks once and its job's record keeps, and the
// list of all models (Models.List). It refuses to know how it is learned what
// servers serve, and who may use what.
package offer

import (
	"fmt"
	"slices"
	"strings"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/catalog"
	"github.com/rowmill/rowmill/engine"
	"github.com/rowmill/rowmill/spelling"
)

// A Server is an inference server that is up, as its node describes it.
type Server struct {
	Node   string // the name of its node
	Name   string // of the engine, on its node
	Kind   string // such as "vllm"
	Counts bool   // it counts prompts
	// Simulated says that its outputs are made up.
	Simulated bool
	Models    []engine.ServedModel
}

// Models are the models there are now. It is safe for concurrent use.
type Models struct {
	catalog *catalog.Catalog
	servers func() []Server
}

// New returns the models of a catalog and of the servers that a function lists;
// nil for none.
func New(c *catalog.Catalog, servers func() []Server) *Models {
	if servers == nil {
		servers = func() []Server { return nil }
	}
	return &Models{c, servers}
}

// UnknownError says that a name is no model's.
type UnknownError struct {
	Name string
	Near string   // a name that may have been meant; empty for none
	All  []string // names of models, those that are served now first
}

// few is how many names a message lists.
const few = 12

// Error names the remedy.
func (e *UnknownError) Error() string {
	text := fmt.Sprintf("%q is no model of this service", spelling.Shorten(e.Name, 128))
	return text + e.Hint()
}

// Hint says which models there are.
func (e *UnknownError) Hint() string {
	text := ""
	if e.Near != "" {
		text = fmt.Sprintf("; did you mean %q?", e.Near)
	} else if len(e.All) > 0 {
		text = "; there are"
		for i, name := range e.All[:min(few, len(e.All))] {
			if i > 0 {
				text += ","
			}
			text += " " + spelling.Shorten(name, 64)
		}
		if more := len(e.All) - few; more > 0 {
			text += fmt.Sprintf(" and %d more", more)
		}
	}
	return text + " (GET /v1/models lists all)"
}

// UnsettledError says that there is a model of a name, and that it cannot be used.
type UnsettledError struct {
	Name   string
	Reason string // with the remedy
	Soon   bool   // it may be in a moment
}

// Error names the remedy.
func (e *UnsettledError) Error() string {
	return fmt.Sprintf("%q %s", spelling.Shorten(e.Name, 128), e.Reason)
}

// Find returns the whole model that a name means now. It is an *UnknownError where
// there is none, an *UnsettledError where it cannot be used.
func (o *Models) Find(name string) (rowmill.Model, error) {
	servers := o.servers()
	target := o.catalog.Alias(name)
	if m, found := o.catalog.Find(target); found {
		return complete(m, serving(servers, m), m.ID)
	}
	m := rowmill.Model{ID: target, Sampling: map[string]any{}, NoPrice: true}
	served := serving(servers, m)
	switch {
	case len(served) > 0, len(o.catalog.Called(target)) > 0:
	case target != name:
		return rowmill.Model{}, &UnsettledError{Name: name, Reason: fmt.Sprintf(
			"is an alias of %q, which no live server serves and no entry of the catalog describes; start a server of it, or give it an entry", target)}
	default:
		return rowmill.Model{}, o.unknown(name, servers)
	}
	if entry, called := o.called(target, served); called {
		m = entry
		m.ID, m.EngineNames = target, nil
		return complete(m, served, entry.ID)
	}
	return complete(m, served, target)
}

// Known reports whether a name is a model's, usable or not.
func (o *Models) Known(name string) bool {
	target := o.catalog.Alias(name)
	if _, found := o.catalog.Find(target); found || target != name || len(o.catalog.Called(target)) > 0 {
		return true
	}
	return target != "" && len(serving(o.servers(), rowmill.Model{ID: target})) > 0
}

// called returns the entry of a model that servers serve under a name, or that its
// engine names hold: of several the one of the kind that servers show, else the
// first.
func (o *Models) called(name string, served []engine.ServedModel) (rowmill.Model, bool) {
	entries := o.catalog.Called(name)
	for _, s := range served {
		for _, other := range s.Names() {
			if len(entries) == 0 {
				entries = o.catalog.Called(other)
			}
		}
	}
	if len(entries) == 0 {
		return rowmill.Model{}, false
	}
	kind := kindOf(served)
	for _, m := range entries {
		if m.Kind == kind {
			return m, true
		}
	}
	return entries[0], true
}

// serving are the models of servers that are m.
func serving(servers []Server, m rowmill.Model) (served []engine.ServedModel) {
	for _, server := range servers {
		if s, ok := (engine.Info{Models: server.Models}).Find(m); ok {
			served = append(served, s)
		}
	}
	return served
}

// kindOf is what servers show of a model, empty where none does. Where they differ
// one has no parser for reasoning.
func kindOf(served []engine.ServedModel) (kind rowmill.Kind) {
	for _, s := range served {
		if s.Kind == rowmill.KindReasoning || kind == "" {
			kind = s.Kind
		}
	}
	return kind
}

// complete fills in what servers tell of a model. family is the name that sampling
// defaults go by, where that has some.
func complete(m rowmill.Model, served []engine.ServedModel, family string) (rowmill.Model, error) {
	if m.Kind == "" {
		kind := kindOf(served)
		if kind == "" {
			return rowmill.Model{}, unsettled(m, served)
		}
		for _, s := range served {
			for _, name := range s.Names() {
				if len(catalog.FamilyDefaults(family, rowmill.KindGeneration)) == 0 {
					family = name
				}
			}
		}
		m = catalog.OfKind(m, kind, family)
	}
	if m.ContextLength == 0 { // an entry's is held against the servers' when the job starts
		m.ContextLength = leastContext(served)
	}
	for _, s := range served {
		if m.Kind == rowmill.KindEmbedding && m.Dimension == 0 {
			m.Dimension = s.Dimension
		}
	}
	if m.Kind == rowmill.KindEmbedding && m.Dimension == 0 {
		return rowmill.Model{}, unsettled(m, served)
	}
	return m, nil
}

// leastContext is the shortest context of those that servers tell, 0 where none
// does.
func leastContext(served []engine.ServedModel) (least int) {
	for _, s := range served {
		if s.ContextLength > 0 && (least == 0 || s.ContextLength < least) {
			least = s.ContextLength
		}
	}
	return least
}

// unsettled says why it is not known what a model does, and what to do about it.
func unsettled(m rowmill.Model, served []engine.ServedModel) error {
	e := &UnsettledError{Name: m.ID}
	const remedy = "say its kind in an entry of the catalog"
	for _, s := range served {
		if s.Unusable != "" {
			e.Reason = "is served and cannot be used: " + s.Unusable
			return e
		}
	}
	switch {
	case len(served) == 0 && m.Kind == rowmill.KindEmbedding:
		e.Reason = "is in the catalog without its dimension, and no live server says it; start a server of it, or give its dimension"
	case len(served) == 0:
		e.Reason = "is in the catalog without its kind, and no live server says it; start a server of it, or give its kind"
	default:
		e.Soon = true
		e.Reason = "is served, and it is being found out whether it generates, reasons or embeds; try again in a few seconds, or " + remedy
	}
	return e
}

// unknown makes the error of a name that is no model's.
func (o *Models) unknown(name string, servers []Server) error {
	var served, rest []string
	for _, offered := range o.list(servers) {
		if len(offered.Servers) > 0 {
			served = append(served, offered.Model.ID)
		} else {
			rest = append(rest, offered.Model.ID)
		}
	}
	e := &UnknownError{Name: name, All: append(served, rest...)}
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
		e.Near = named(name, others)
	}
	return e
}

// nearest is the name most like another.
func nearest(name string, names []string) string {
	return catalog.Nearest(name, slices.DeleteFunc(slices.Clone(names), func(s string) bool { return s == "" }))
}

// named is the name of an organisation's model that is called name there.
func named(name string, names []string) string {
	for _, full := range names {
		if _, own, is := strings.Cut(full, "/"); is && strings.EqualFold(own, name) && name != "" {
			return full
		}
	}
	return ""
}

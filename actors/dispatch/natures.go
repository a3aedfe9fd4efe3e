package dispatch

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/engine"
	"github.com/rowmill/rowmill/engine/catalog"
)

// The pause before a model is asked about again that could not be asked.
const (
	askAgainAfter = 5 * time.Second
	mostAskPause  = 5 * time.Minute
)

// Natures keeps what rows have shown of the models of a server that says nothing
// of their kind, and decides which is to be asked about next. It is a plain
// struct: its owner serialises the calls and passes the time in.
type Natures struct {
	most  int                           // models that are asked about
	known func(engine.ServedModel) bool // nobody needs to ask about these
	seen  map[string]*nature            // by the server's name
	asks  bool                          // a row is on its way
}

type nature struct {
	engine.Capability
	settled bool // since the server came up
	tries   int
	due     time.Time
}

// NewNatures returns that of a server of which at most so many models are asked
// about. Without known none is.
func NewNatures(most int, known func(engine.ServedModel) bool) Natures {
	return Natures{most: most, known: known, seen: make(map[string]*nature)}
}

// Next reports whether a model is to be asked about, and takes it for asked.
func (n *Natures) Next(info engine.Info, now time.Time) (name string, ok bool) {
	if n.asks || n.known == nil {
		return "", false
	}
	maps.DeleteFunc(n.seen, func(name string, _ *nature) bool {
		return !slices.ContainsFunc(info.Models, func(m engine.ServedModel) bool { return m.Name == name })
	})
	unknown := 0
	for _, m := range info.Models {
		if !n.asked(info, m) {
			continue
		}
		if unknown++; unknown > n.most {
			return "", false
		}
		seen := n.seen[m.Name]
		if seen == nil {
			seen = new(nature)
			n.seen[m.Name] = seen
		}
		if !seen.settled && !now.Before(seen.due) {
			n.asks = true
			return m.Name, true
		}
	}
	return "", false
}

// asked reports whether rows have to show what a model is: neither the server nor
// its base nor the catalog does. One that the catalog knows is asked for those
// that adapt it.
func (n *Natures) asked(info engine.Info, m engine.ServedModel) bool {
	based := slices.ContainsFunc(info.Models, func(other engine.ServedModel) bool { return m.Base != "" && other.Name == m.Base })
	return untold(m) && !based && (!n.known(m) || slices.ContainsFunc(info.Models, func(other engine.ServedModel) bool {
		return other.Base == m.Name && untold(other) && !n.known(other)
	}))
}

// untold reports whether a server leaves open what a model is.
func untold(m engine.ServedModel) bool {
	return m.Kind == "" || m.Kind == rowmill.KindEmbedding && m.Dimension == 0
}

// Answered takes what rows have shown of a model; an error says that they could
// not. It reports whether that is news.
func (n *Natures) Answered(m engine.ServedModel, found engine.Capability, err error, now time.Time) bool {
	n.asks = false
	seen := n.seen[m.Name]
	if seen == nil {
		return false
	}
	if err != nil {
		seen.due = now.Add(min(askAgainAfter<<min(seen.tries, 10), mostAskPause))
		seen.tries++
		return false
	}
	if found.Kind == rowmill.KindGeneration && slices.ContainsFunc(m.Names(), catalog.HasReasoningName) {
		found.Kind = rowmill.KindReasoning // its server has no parser, and its template opens the thought
	}
	before := seen.Capability
	*seen = nature{Capability: found, settled: true}
	return before != found
}

// Renew has every model asked about again: the server may be another. Until it is
// answered each is what it was.
func (n *Natures) Renew() {
	for _, seen := range n.seen {
		seen.settled, seen.tries, seen.due = false, 0, time.Time{}
	}
}

// Interrupted takes the row that is on its way for lost.
func (n *Natures) Interrupted() { n.asks = false }

// Settle returns what a server says of itself with what rows have shown, and why
// they will not. An adapter is what its base is.
func (n *Natures) Settle(said engine.Info) engine.Info {
	info, unknown := said, 0
	info.Models = slices.Clone(said.Models)
	for i, m := range said.Models {
		if n.known == nil || !n.asked(said, m) {
			continue
		}
		unknown++
		to := &info.Models[i]
		switch seen := n.seen[m.Name]; {
		case unknown > n.most:
			to.Unusable = fmt.Sprintf("neither its server nor the catalog says what it does, and no more than %d models of a server are asked (jobs.asked_models); say its kind in an entry of the catalog", max(0, n.most))
		case seen == nil:
		case seen.Kind != "":
			to.Kind, to.Dimension = seen.Kind, seen.Dimension
		case seen.Refusal != "":
			to.Unusable = "its server refuses the rows (" + seen.Refusal + "); start it for chat completions, with a chat template, or for embeddings"
		}
	}
	for i := range info.Models {
		m := &info.Models[i]
		if m.Base == "" || !untold(*m) {
			continue
		}
		for _, base := range info.Models {
			if base.Name == m.Base {
				m.Kind, m.Dimension, m.Unusable = base.Kind, base.Dimension, base.Unusable
			}
		}
	}
	return info
}

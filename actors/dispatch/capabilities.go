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

// The pause before the next test of a model after a failed test.
const (
	askAgainAfter = 5 * time.Second
	mostAskPause  = 5 * time.Minute
)

// Capabilities finds out the kinds of a server's models (such as generation or embedding) that
// the server does not report. It decides which model gets the next test row, and keeps
// the results. It is a plain struct: its owner makes one call at a time and passes the
// time in.
type Capabilities struct {
	most    int                           // maximum number of models to test
	known   func(engine.ServedModel) bool // these models need no test
	seen    map[string]*capability        // by the server's name of the model
	testing bool                          // a test row is running
}

// A capability is the result of a model's last test row.
type capability struct {
	engine.Capability
	settled bool      // tested since the server came up
	tries   int       // number of failed tests in a row
	due     time.Time // no test starts before this time
}

// NewCapabilities returns the Capabilities of a server. At most this many of its models are
// tested, and none if known is nil.
func NewCapabilities(most int, known func(engine.ServedModel) bool) Capabilities {
	return Capabilities{most: most, known: known, seen: make(map[string]*capability)}
}

// Next returns the next model to test, if there is one, and notes that its test has
// started.
func (n *Capabilities) Next(info engine.Info, now time.Time) (name string, ok bool) {
	if n.testing || n.known == nil {
		return "", false
	}
	maps.DeleteFunc(n.seen, func(name string, _ *capability) bool {
		return !slices.ContainsFunc(info.Models, func(m engine.ServedModel) bool { return m.Name == name })
	})
	unknown := 0
	for _, m := range info.Models {
		if !n.needsTest(info, m) {
			continue
		}
		if unknown++; unknown > n.most {
			return "", false
		}
		seen := n.seen[m.Name]
		if seen == nil {
			seen = new(capability)
			n.seen[m.Name] = seen
		}
		if !seen.settled && !now.Before(seen.due) {
			n.testing = true
			return m.Name, true
		}
	}
	return "", false
}

// needsTest reports whether test rows must find out the kind of a model, because the server,
// the model's base and the catalog do not say it. A base that the catalog knows is
// tested too if adapters of unknown kind depend on it.
func (n *Capabilities) needsTest(info engine.Info, m engine.ServedModel) bool {
	based := slices.ContainsFunc(info.Models, func(other engine.ServedModel) bool { return m.Base != "" && other.Name == m.Base })
	return kindUnknown(m) && !based && (!n.known(m) || slices.ContainsFunc(info.Models, func(other engine.ServedModel) bool {
		return other.Base == m.Name && kindUnknown(other) && !n.known(other)
	}))
}

// kindUnknown reports whether the server does not say the kind of a model.
func kindUnknown(m engine.ServedModel) bool {
	return m.Kind == "" || m.Kind == rowmill.KindEmbedding && m.Dimension == 0
}

// Answered takes the result of a test, or an error if there is no result. It reports
// whether the result is new.
func (n *Capabilities) Answered(m engine.ServedModel, found engine.Capability, err error, now time.Time) bool {
	n.testing = false
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
		found.Kind = rowmill.KindReasoning // the server has no parser, and the template opens the reasoning
	}
	before := seen.Capability
	*seen = capability{Capability: found, settled: true}
	return before != found
}

// Renew schedules a new test of every model, because another server may have the
// address now. Until its test each model keeps its last result.
func (n *Capabilities) Renew() {
	for _, seen := range n.seen {
		seen.settled, seen.tries, seen.due = false, 0, time.Time{}
	}
}

// Interrupted notes that the running test row is lost.
func (n *Capabilities) Interrupted() { n.testing = false }

// Settle adds the results of tests to the information from the server, and the reason if
// a model cannot be tested. An adapter gets the kind of its base.
func (n *Capabilities) Settle(said engine.Info) engine.Info {
	info, unknown := said, 0
	info.Models = slices.Clone(said.Models)
	for i, m := range said.Models {
		if n.known == nil || !n.needsTest(said, m) {
			continue
		}
		unknown++
		to := &info.Models[i]
		switch seen := n.seen[m.Name]; {
		case unknown > n.most:
			to.Unusable = fmt.Sprintf("neither its server nor the catalog names its kind, and at most %d models of a server are tested for it (jobs.asked_models); set its kind in an entry of the catalog", max(0, n.most))
		case seen == nil:
		case seen.Kind != "":
			to.Kind, to.Dimension = seen.Kind, seen.Dimension
		case seen.Refusal != "":
			to.Unusable = "its server refuses the rows (" + seen.Refusal + "); start it for chat completions, with a chat template, or for embeddings"
		}
	}
	for i := range info.Models {
		m := &info.Models[i]
		if m.Base == "" || !kindUnknown(*m) {
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

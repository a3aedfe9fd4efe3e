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

// The pause after a failed test of a model. It doubles with each failure, from
// askAgainAfter to mostAskPause.
const (
	askAgainAfter = 5 * time.Second
	mostAskPause  = 5 * time.Minute
)

// Capabilities finds out the kinds of a server's models (such as generation or
// embedding) that the server does not report. It decides which model gets the next test
// row, and stores the results. It is a plain struct without a lock or a clock: only one
// call may run at a time, and the caller passes the time in.
type Capabilities struct {
	most    int                           // maximum number of models to test
	known   func(engine.ServedModel) bool // reports whether a kind is known without a test; nil: no tests
	seen    map[string]*capability        // results of tests, by the server's name of the model
	testing bool                          // a test row is in flight
}

// A capability is the result of the last test row of a model.
type capability struct {
	engine.Capability
	settled bool      // the model was tested since the server came up
	tries   int       // number of consecutive failed tests
	due     time.Time // no test of the model starts before this time
}

// NewCapabilities returns the Capabilities of a server. At most most models of the
// server are tested. known reports whether the kind of a model is known without a test;
// if known is nil, no model is tested.
func NewCapabilities(maxModels int, known func(engine.ServedModel) bool) Capabilities {
	return Capabilities{most: maxModels, known: known, seen: make(map[string]*capability)}
}

// NextToTest returns the name of the next model to test, and records that its test has
// started. ok is false if no test should start now.
func (n *Capabilities) NextToTest(info engine.ServerInfo, now time.Time) (name string, ok bool) {
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

// needsTest reports whether a test row must find out the kind of model m, because the
// server, the base model of m and the catalog do not say it. A base model is tested
// even if the catalog knows its kind, if adapters of unknown kind depend on it.
func (n *Capabilities) needsTest(info engine.ServerInfo, m engine.ServedModel) bool {
	based := slices.ContainsFunc(info.Models, func(other engine.ServedModel) bool { return m.Base != "" && other.Name == m.Base })
	return kindUnknown(m) && !based && (!n.known(m) || slices.ContainsFunc(info.Models, func(other engine.ServedModel) bool {
		return other.Base == m.Name && kindUnknown(other) && !n.known(other)
	}))
}

// kindUnknown reports whether the server does not say the kind of a model.
func kindUnknown(m engine.ServedModel) bool {
	return m.Kind == "" || m.Kind == rowmill.KindEmbedding && m.Dimension == 0
}

// RecordResult records the result of a test of model m, or the error err if the test has no
// result. It returns true if the result differs from the last result.
func (n *Capabilities) RecordResult(m engine.ServedModel, found engine.Capability, err error, now time.Time) bool {
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
		found.Kind = rowmill.KindReasoning // the server does not separate the reasoning from the answer
	}
	before := seen.Capability
	*seen = capability{Capability: found, settled: true}
	return before != found
}

// RetestAll schedules a new test of every model, because another server may now have the
// address. Until the new test, each model keeps its last result.
func (n *Capabilities) RetestAll() {
	for _, seen := range n.seen {
		seen.settled, seen.tries, seen.due = false, 0, time.Time{}
	}
}

// MarkTestLost records that the running test row is lost, so that another test can
// start.
func (n *Capabilities) MarkTestLost() { n.testing = false }

// WithResults returns the server's information with the results of the tests. A model that
// cannot be used gets the reason in Unusable. An adapter gets the kind of its base
// model.
func (n *Capabilities) WithResults(reported engine.ServerInfo) engine.ServerInfo {
	info, unknown := reported, 0
	info.Models = slices.Clone(reported.Models)
	for i, m := range reported.Models {
		if n.known == nil || !n.needsTest(reported, m) {
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

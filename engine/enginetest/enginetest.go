// Package enginetest is the conformance suite for every server behind engine.Engine. It
// checks what the pipeline relies on: answers, seeds, schemas, separated reasoning, log
// probabilities, prompts that are too long, cancelling, embeddings. It checks the form
// of an answer and never its words.
package enginetest

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/engine"
)

// patience is the timeout of each request of the suite; it matters only if a request
// hangs.
const patience = 60 * time.Second

// A Server is the server under test. The suite skips models that are nil; ContextLength
// and Dimension must be the server's real values.
type Server struct {
	Engine     engine.Engine
	Generation *rowmill.Model
	Reasoning  *rowmill.Model
	Embedding  *rowmill.Model

	// Concurrency limits the rows that the suite keeps in flight; default 48. llama.cpp
	// needs a thread for every connection, also for idle connections, and makes further
	// connections wait: set the number of slots and a few more, like the window does.
	Concurrency int

	// Cancels says that the server stops a row after its request was closed, and that
	// the server's gauges then no longer count the row.
	Cancels bool

	// Counts says that the server counts prompts (engine.PromptCounter).
	Counts bool

	// Forms are the rules of structured_outputs that the server supports for
	// Generation: regex, choice, grammar.
	Forms []string

	// Takes are sampling parameters that the server accepts for Generation, all in one
	// request. Refuses are parameters with values that the server refuses; each must
	// fail as a JobFault.
	Takes, Refuses map[string]any

	// Cuts says that the server truncates prompts that are too long and answers them.
	Cuts bool

	// Ignores lists features that the server accepts and ignores: Logprobs, Schemas,
	// Seeds, Limits, Usage.
	Ignores []string

	// Lacks lists features, from the same set, that the server refuses.
	Lacks []string
}

// Features that a server may ignore.
const (
	Logprobs = "log probabilities"
	Schemas  = "schemas"
	Seeds    = "seeds"
	Limits   = "the limit of its context"
	Usage    = "tokens, which it does not count"
)

// needs skips a check if the server ignores or refuses the feature what. The table of
// bench/engines.md uses the same words.
func (s Server) needs(t *testing.T, what string) {
	t.Helper()
	if slices.Contains(s.Ignores, what) {
		t.Skipf("the server ignores %s", what)
	}
	if slices.Contains(s.Lacks, what) {
		t.Skipf("the server refuses %s", what)
	}
}

// Run runs the suite. It calls open once; open must close its resources with t.Cleanup.
func Run(t *testing.T, open func(t *testing.T) Server) {
	t.Helper()
	s := open(t)
	if s.Concurrency == 0 {
		s.Concurrency = 48
	}
	t.Cleanup(s.Engine.Close)

	t.Run("Probe", func(t *testing.T) { probe(t, s) })
	t.Run("Gauges", func(t *testing.T) { gauges(t, s) })
	t.Run("Prepare", func(t *testing.T) { prepare(t, s) })
	t.Run("Counting", func(t *testing.T) { counting(t, s) })
	if s.Generation != nil {
		t.Run("Generation", func(t *testing.T) { generation(t, s) })
	}
	if s.Reasoning != nil {
		t.Run("Reasoning", func(t *testing.T) { reasoning(t, s) })
	}
	if s.Embedding != nil {
		t.Run("Embedding", func(t *testing.T) { embedding(t, s) })
	}
}

// models returns the models under test.
func (s Server) models() []*rowmill.Model {
	var all []*rowmill.Model
	for _, m := range []*rowmill.Model{s.Generation, s.Reasoning, s.Embedding} {
		if m != nil {
			all = append(all, m)
		}
	}
	return all
}

func probe(t *testing.T, s Server) {
	info, err := s.Engine.Probe(within(t))
	if err != nil {
		t.Fatalf("probe: %v", err)
	}
	if info.Kind == "" {
		t.Error("a probe must name a kind of server")
	}
	if s.Engine.Name() == "" {
		t.Error("an engine must have a name")
	}
	for _, m := range s.models() {
		served, ok := info.Find(*m)
		if !ok {
			t.Errorf("%s is not among the served models %v", m.ID, info.Models)
			continue
		}
		if served.ContextLength != 0 && served.ContextLength != m.ContextLength {
			t.Errorf("%s: context length %d, want %d", m.ID, served.ContextLength, m.ContextLength)
		}
	}
}

func gauges(t *testing.T, s Server) {
	g, err := s.Engine.Gauges(within(t))
	if errors.Is(err, engine.ErrNoGauges) {
		if s.Cancels {
			t.Fatal("a server that shows cancelling must have gauges")
		}
		return
	}
	if err != nil {
		t.Fatalf("gauges: %v", err)
	}
	if g.Running < 0 || g.Waiting < 0 || g.KVUse < -1 || g.KVUse > 1 || g.KVTokens < 0 {
		t.Errorf("gauges out of range: %+v", g)
	}
}

func prepare(t *testing.T, s Server) {
	if _, err := s.Engine.Prepare(engine.Params{Model: rowmill.Model{ID: "no-such-model"}}); err == nil {
		t.Error("preparing a model that is not served must be an error")
	}
	m := s.Generation
	if m == nil {
		return
	}
	if _, err := s.Engine.Prepare(engine.Params{Model: *m, Sampling: map[string]any{"temprature": 1.0}}); err == nil {
		t.Error("an unknown sampling parameter must be an error: the server would ignore it")
	}
	if _, err := s.Engine.Prepare(engine.Params{Model: *m, Sampling: map[string]any{"n": int64(2)}}); err == nil {
		t.Error("n other than 1 must be an error")
	}
}

// within returns the context of a request.
func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// call probes the server and prepares a call. It fails the test on an error.
func call(t *testing.T, s Server, p engine.Params) engine.Call {
	t.Helper()
	if _, err := s.Engine.Probe(within(t)); err != nil {
		t.Fatalf("probe: %v", err)
	}
	c, err := s.Engine.Prepare(p)
	if err != nil {
		t.Fatalf("prepare: %v", err)
	}
	return c
}

// ask runs one row and checks the rules for every answer.
func ask(t *testing.T, c engine.Call, text string, seed *int64) engine.Reply {
	t.Helper()
	r, err := c.Generate(within(t), engine.Row{Text: []byte(text), Seed: seed})
	if err != nil {
		t.Fatalf("generate: %v", err)
	}
	check(t, r)
	return r
}

// fault returns the *engine.Error in err.
func fault(t *testing.T, err error) *engine.Error {
	t.Helper()
	var e *engine.Error
	if !errors.As(err, &e) {
		t.Fatalf("error is %v (%T), want an *engine.Error", err, err)
	}
	if e.Message == "" || e.Class == 0 {
		t.Errorf("an error needs a class and a message: %#v", e)
	}
	return e
}

func ptr[T any](v T) *T { return &v }

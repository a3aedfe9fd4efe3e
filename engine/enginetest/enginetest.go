// Package enginetest is the conformance suite for every server that an engine.Engine
// can use. It checks what the pipeline needs: answers, seeds, schemas, reasoning that
// is separate from the answer, log probabilities, prompts that are too long, cancelled
// requests, embeddings. It checks the form of answers and never their words.
package enginetest

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/engine"
)

// patience is the timeout of each request of the suite. It is long, so it ends only a
// request that hangs.
const patience = 60 * time.Second

// A Server describes the server under test. The suite skips a model that is nil. The
// ContextLength and Dimension of each model must be the real values of the server.
type Server struct {
	Engine     engine.Engine
	Generation *rowmill.Model // a model without reasoning, or nil
	Reasoning  *rowmill.Model // a reasoning model, or nil
	Embedding  *rowmill.Model // an embedding model, or nil

	// Concurrency is the maximum number of rows that the suite has in flight; default
	// 48. llama.cpp needs a thread for every connection, also for an idle connection,
	// and makes further connections wait. So for llama.cpp set the number of slots and
	// a few more, like the window does.
	Concurrency int

	// Cancels means that the server stops a row when the connection of its request is
	// closed, and that the server's gauges then no longer count the row.
	Cancels bool

	// Counts means that the server counts the tokens of prompts (engine.PromptCounter).
	Counts bool

	// Forms lists the rules of structured_outputs that the server supports for the
	// model Generation: regex, choice, grammar.
	Forms []string

	// AcceptedParams are sampling parameters that the server accepts for the model Generation,
	// all in one request. RefusedParams are sampling parameters with values that the server
	// refuses; each of them must fail with class JobFault.
	AcceptedParams, RefusedParams map[string]any

	// TruncatesPrompts means that the server truncates a prompt that is too long and answers the
	// rest.
	TruncatesPrompts bool

	// Ignores lists the features that the server accepts but ignores. Possible values:
	// Logprobs, Schemas, Seeds, Limits, Usage.
	Ignores []string

	// Lacks lists the features that the server refuses, with the same possible values
	// as Ignores.
	Lacks []string
}

// Features that a server may ignore or refuse. The text of each follows "the server
// ignores".
const (
	Logprobs = "log probabilities"
	Schemas  = "schemas"
	Seeds    = "seeds"
	Limits   = "the limit of its context"
	Usage    = "tokens, which it does not count"
)

// skipUnlessSupported skips the current test if the server ignores or refuses the feature. The
// table in bench/engines.md uses the same words.
func (s Server) skipUnlessSupported(t *testing.T, feature string) {
	t.Helper()
	if slices.Contains(s.Ignores, feature) {
		t.Skipf("the server ignores %s", feature)
	}
	if slices.Contains(s.Lacks, feature) {
		t.Skipf("the server refuses %s", feature)
	}
}

// Run runs the suite. It calls open once; open must close its resources with t.Cleanup.
func Run(t *testing.T, open func(t *testing.T) Server) {
	t.Helper()
	s := open(t)
	s.Concurrency = cmp.Or(s.Concurrency, 48)
	t.Cleanup(s.Engine.Close)

	t.Run("Probe", func(t *testing.T) { testProbe(t, s) })
	t.Run("Gauges", func(t *testing.T) { testGauges(t, s) })
	t.Run("Prepare", func(t *testing.T) { testPrepare(t, s) })
	t.Run("Counting", func(t *testing.T) { testCounting(t, s) })
	if s.Generation != nil {
		t.Run("Generation", func(t *testing.T) { testGeneration(t, s) })
	}
	if s.Reasoning != nil {
		t.Run("Reasoning", func(t *testing.T) { testReasoning(t, s) })
	}
	if s.Embedding != nil {
		t.Run("Embedding", func(t *testing.T) { testEmbedding(t, s) })
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

// testProbe checks that a probe finds the kind of the server and all models under test.
func testProbe(t *testing.T, s Server) {
	info, err := s.Engine.Probe(requestContext(t))
	if err != nil {
		t.Fatalf("probe: %v", err)
	}
	if info.Kind == "" {
		t.Error("the probe returned no kind of server")
	}
	if s.Engine.Name() == "" {
		t.Error("the engine has an empty name")
	}
	for _, m := range s.models() {
		served, ok := info.FindModel(*m)
		if !ok {
			t.Errorf("%s is not among the served models %v", m.ID, info.Models)
			continue
		}
		if served.ContextLength != 0 && served.ContextLength != m.ContextLength {
			t.Errorf("%s: context length %d, want %d", m.ID, served.ContextLength, m.ContextLength)
		}
	}
}

// testGauges checks that the load metrics are within their ranges.
func testGauges(t *testing.T, s Server) {
	g, err := s.Engine.Gauges(requestContext(t))
	if errors.Is(err, engine.ErrNoGauges) {
		if s.Cancels {
			t.Fatal("Cancels is set, but the server has no gauges: they must show that a row was cancelled")
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

// testPrepare checks that Prepare rejects unknown models and wrong sampling parameters.
func testPrepare(t *testing.T, s Server) {
	if _, err := s.Engine.Prepare(engine.JobParams{Model: rowmill.Model{ID: "no-such-model"}}); err == nil {
		t.Error("Prepare accepted a model that the server does not serve, want an error")
	}
	m := s.Generation
	if m == nil {
		return
	}
	if _, err := s.Engine.Prepare(engine.JobParams{Model: *m, Sampling: map[string]any{"temprature": 1.0}}); err == nil {
		t.Error("Prepare accepted an unknown sampling parameter, want an error: the server would ignore it")
	}
	if _, err := s.Engine.Prepare(engine.JobParams{Model: *m, Sampling: map[string]any{"n": int64(2)}}); err == nil {
		t.Error("Prepare accepted the sampling parameter n = 2, want an error")
	}
}

// requestContext returns a context with the timeout patience, for one request.
func requestContext(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// mustPrepare probes the server and prepares a call. It fails the test on an error.
func mustPrepare(t *testing.T, s Server, p engine.JobParams) engine.PreparedCall {
	t.Helper()
	if _, err := s.Engine.Probe(requestContext(t)); err != nil {
		t.Fatalf("probe: %v", err)
	}
	c, err := s.Engine.Prepare(p)
	if err != nil {
		t.Fatalf("prepare: %v", err)
	}
	return c
}

// mustGenerate runs one row, checks the rules that hold for every answer, and returns the
// answer. It fails the test on an error.
func mustGenerate(t *testing.T, c engine.PreparedCall, text string, seed *int64) engine.Reply {
	t.Helper()
	r, err := c.Generate(requestContext(t), engine.Row{Text: []byte(text), Seed: seed})
	if err != nil {
		t.Fatalf("generate: %v", err)
	}
	checkReply(t, r)
	return r
}

// requireEngineError returns the *engine.Error in err. It fails the test if err contains none.
func requireEngineError(t *testing.T, err error) *engine.Error {
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

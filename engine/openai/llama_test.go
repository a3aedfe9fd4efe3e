package openai_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/engine"
	"github.com/rowmill/rowmill/engine/enginetest"
	"github.com/rowmill/rowmill/engine/openai"
	"github.com/rowmill/rowmill/internal/llama"
)

// llamaEngine starts a real llama-server and an engine in front of it.
func llamaEngine(t *testing.T, kind string) (*openai.Engine, *rowmill.Model) {
	t.Helper()
	server := llama.Start(t, kind, llama.Options{Slots: 4, Context: 8192})
	e, err := openai.New(openai.Config{BaseURL: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	return e, &rowmill.Model{ID: server.Model, ContextLength: 2048}
}

func TestLlamaChat(t *testing.T) {
	t.Parallel()
	enginetest.Run(t, func(t *testing.T) enginetest.Server {
		e, m := llamaEngine(t, llama.Chat)
		m.Kind = rowmill.KindGeneration
		return enginetest.Server{Engine: e, Concurrency: 6, Generation: m}
	})
}

func TestLlamaThink(t *testing.T) {
	t.Parallel()
	enginetest.Run(t, func(t *testing.T) enginetest.Server {
		e, m := llamaEngine(t, llama.Think)
		m.Kind = rowmill.KindReasoning
		return enginetest.Server{Engine: e, Concurrency: 6, Reasoning: m}
	})
}

func TestLlamaEmbed(t *testing.T) {
	t.Parallel()
	enginetest.Run(t, func(t *testing.T) enginetest.Server {
		e, m := llamaEngine(t, llama.Embed)
		m.Kind, m.Dimension = rowmill.KindEmbedding, llama.Dimension
		return enginetest.Server{Engine: e, Embedding: m}
	})
}

// What is peculiar to llama.cpp.
func TestLlamaPeculiarities(t *testing.T) {
	t.Parallel()
	e, m := llamaEngine(t, llama.Chat)
	m.Kind = rowmill.KindGeneration
	info, err := e.Probe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if info.Kind != "llama.cpp" || info.Slots != 4 || info.Version == "" || info.Simulated {
		t.Errorf("probe: %+v", info)
	}
	prepare := func(p engine.Params) engine.Call {
		t.Helper()
		p.Model, p.MaxTokens = *m, 16
		c, err := e.Prepare(p)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}

	t.Run("a schema it cannot compile is the job's fault", func(t *testing.T) {
		c := prepare(engine.Params{Schema: json.RawMessage(`{"type":"nonsense"}`)})
		_, err := c.Generate(t.Context(), engine.Row{Text: []byte("hello")})
		var fault *engine.Error
		if !errors.As(err, &fault) || fault.Class != engine.JobFault || !strings.Contains(fault.Message, "nonsense") {
			t.Errorf("got %v", err)
		}
	})
	t.Run("every default of the catalog is taken", func(t *testing.T) {
		c := prepare(engine.Params{Sampling: map[string]any{
			"temperature": 0.7, "top_p": 0.8, "top_k": 20.0, "max_tokens": 4096.0, "repetition_penalty": 1.05,
		}})
		if len(c.Warnings()) > 0 {
			t.Errorf("warnings: %v", c.Warnings())
		}
		if _, err := c.Generate(t.Context(), engine.Row{Text: []byte("hello")}); err != nil {
			t.Error(err)
		}
	})
	t.Run("it generates no embeddings", func(t *testing.T) {
		wrong := *m
		wrong.Kind = rowmill.KindEmbedding
		c, err := e.Prepare(engine.Params{Model: wrong})
		if err != nil {
			t.Fatal(err)
		}
		_, faults, err := c.Embed(t.Context(), []engine.Row{{Text: []byte("a")}, {Text: []byte("b")}})
		if err == nil && (faults[0] == nil || faults[1] == nil) {
			t.Error("a server without embeddings gave some")
		}
	})
}

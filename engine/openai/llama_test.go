package openai_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/engine"
	"github.com/rowmill/rowmill/engine/enginetest"
	"github.com/rowmill/rowmill/engine/openai"
	"github.com/rowmill/rowmill/internal/llama"
	"github.com/rowmill/rowmill/internal/must"
)

// llamaEngine starts a real llama-server and returns an engine for it.
func llamaEngine(t *testing.T, kind string) (*openai.Engine, *rowmill.Model) {
	t.Helper()
	server := llama.Start(t, kind, llama.Options{Slots: 4, Context: 8192})
	e := must.Get(openai.New(openai.Config{BaseURL: server.URL}))(t)
	t.Cleanup(e.Close)
	return e, &rowmill.Model{ID: server.Model, ContextLength: 2048}
}

func TestLlamaChat(t *testing.T) {
	t.Parallel()
	enginetest.Run(t, func(t *testing.T) enginetest.Server {
		e, m := llamaEngine(t, llama.Chat)
		m.Kind = rowmill.KindGeneration
		return enginetest.Server{Engine: e, Concurrency: 6, Generation: m, Cancels: true, Counts: true, Forms: []string{"choice", "grammar"}, AcceptedParams: acceptedBy("llama.cpp")}
	})
}

func TestLlamaThink(t *testing.T) {
	t.Parallel()
	enginetest.Run(t, func(t *testing.T) enginetest.Server {
		e, m := llamaEngine(t, llama.Think)
		m.Kind = rowmill.KindReasoning
		return enginetest.Server{Engine: e, Concurrency: 6, Reasoning: m, Counts: true}
	})
}

func TestLlamaEmbed(t *testing.T) {
	t.Parallel()
	enginetest.Run(t, func(t *testing.T) enginetest.Server {
		e, m := llamaEngine(t, llama.Embed)
		m.Kind, m.Dimension = rowmill.KindEmbedding, llama.Dimension
		return enginetest.Server{Engine: e, Embedding: m, Counts: true}
	})
}

// A real server does not report the ability of its model; a probe row shows it.
func TestLlamaFindCapability(t *testing.T) {
	t.Parallel()
	for kind, want := range map[string]engine.Capability{
		llama.Chat: {Kind: rowmill.KindGeneration}, llama.Think: {Kind: rowmill.KindReasoning}, llama.Embed: {Kind: rowmill.KindEmbedding, Dimension: llama.Dimension},
	} {
		e, m := llamaEngine(t, kind)
		if info, err := e.Probe(t.Context()); err != nil || len(info.Models) != 1 || info.Models[0].Kind != "" {
			t.Fatalf("%s: the server says %+v, %v", kind, info.Models, err)
		}
		if got, err := engine.ProbeCapability(t.Context(), e, m.ID, time.Minute); got != want || err != nil {
			t.Errorf("%s: %+v, %v", kind, got, err)
		}
	}
}

// Cancelling a running row frees its slot at once, by the gauges and by the slots.
// llama.cpp does that only for streams.
func TestLlamaCancelFreesTheSlot(t *testing.T) {
	t.Parallel()
	server := llama.Start(t, llama.Chat, llama.Options{Slots: 1, Context: 32768})
	e := must.Get(openai.New(openai.Config{BaseURL: server.URL}))(t)
	t.Cleanup(e.Close)
	must.Get(e.Probe(t.Context()))(t)
	// No test waits for the end of this answer: it takes more than a minute.
	c := must.Get(e.Prepare(engine.JobParams{
		Model: rowmill.Model{ID: server.Model, ContextLength: 32768}, MaxTokens: 32000, Sampling: map[string]any{"ignore_eos": true},
	}))(t)
	within := func(limit time.Duration, what string, reached func() bool) {
		t.Helper()
		deadline := time.Now().Add(limit)
		for !reached() {
			if time.Now().After(deadline) {
				t.Fatalf("not %s within %v", what, limit)
			}
			time.Sleep(5 * time.Millisecond)
		}
	}
	running := func() int64 {
		g := must.Get(e.Gauges(t.Context()))(t)
		return g.Running
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		_, err := c.Generate(ctx, engine.Row{Text: []byte("Go on for ever.")})
		ended <- err
	}()
	within(30*time.Second, "running", func() bool { return running() == 1 && busySlots(t, server.URL) == 1 })
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("the cancelled row gave %v", err)
	}
	within(10*time.Second, "free", func() bool { return running() == 0 && busySlots(t, server.URL) == 0 })
}

// busySlots counts the slots that run a row.
func busySlots(t *testing.T, url string) (busy int) {
	t.Helper()
	res, err := http.Get(url + "/slots")
	must.Succeed(t, err)
	defer func() { _ = res.Body.Close() }()
	var slots []struct {
		Busy bool `json:"is_processing"`
	}
	must.Succeed(t, json.NewDecoder(res.Body).Decode(&slots))
	http.DefaultClient.CloseIdleConnections()
	for _, slot := range slots {
		if slot.Busy {
			busy++
		}
	}
	return busy
}

// Slots that share a full KV cache end their rows in the middle of the stream: a
// transient error that makes the window shrink.
func TestLlamaFullCacheEndsTheStream(t *testing.T) {
	t.Parallel()
	server := llama.Start(t, llama.Chat, llama.Options{Slots: 4, Context: 1024, Args: []string{"--kv-unified"}})
	e := must.Get(openai.New(openai.Config{BaseURL: server.URL}))(t)
	t.Cleanup(e.Close)
	must.Get(e.Probe(t.Context()))(t)
	c := must.Get(e.Prepare(engine.JobParams{
		Model: rowmill.Model{ID: server.Model, ContextLength: 1024}, MaxTokens: 900, Sampling: map[string]any{"ignore_eos": true},
	}))(t)
	faults := make(chan error, 4)
	for range cap(faults) {
		go func() {
			_, err := c.Generate(t.Context(), engine.Row{Text: []byte("Go on.")})
			faults <- err
		}()
	}
	cut := 0
	for range cap(faults) {
		err := <-faults
		var fault *engine.Error
		switch {
		case err == nil:
		case errors.As(err, &fault) && fault.Class == engine.Busy && fault.Status == 500 && fault.Overloaded:
			cut++
		default:
			t.Errorf("got %#v", err)
		}
	}
	if cut == 0 {
		t.Error("four rows of 900 tokens fit a cache of 1024")
	}
}

// TestLlamaPeculiarities checks behaviour that only llama.cpp has.
func TestLlamaPeculiarities(t *testing.T) {
	t.Parallel()
	e, m := llamaEngine(t, llama.Chat)
	m.Kind = rowmill.KindGeneration
	info := must.Get(e.Probe(t.Context()))(t)
	if info.Kind != "llama.cpp" || info.Slots != 4 || info.Version == "" || info.Simulated {
		t.Errorf("probe: %+v", info)
	}
	prepare := func(p engine.JobParams) engine.PreparedCall {
		t.Helper()
		p.Model, p.MaxTokens = *m, 16
		c := must.Get(e.Prepare(p))(t)
		return c
	}

	t.Run("a schema that it cannot compile is a JobFault", func(t *testing.T) {
		c := prepare(engine.JobParams{Schema: json.RawMessage(`{"type":"nonsense"}`)})
		_, err := c.Generate(t.Context(), engine.Row{Text: []byte("hello")})
		var fault *engine.Error
		if !errors.As(err, &fault) || fault.Class != engine.JobFault || !strings.Contains(fault.Message, "nonsense") {
			t.Errorf("got %v", err)
		}
	})
	t.Run("every default of the catalog is accepted", func(t *testing.T) {
		c := prepare(engine.JobParams{Sampling: map[string]any{
			"temperature": 0.7, "top_p": 0.8, "top_k": 20.0, "max_tokens": 4096.0, "repetition_penalty": 1.05,
		}})
		if len(c.Warnings()) > 0 {
			t.Errorf("warnings: %v", c.Warnings())
		}
		if _, err := c.Generate(t.Context(), engine.Row{Text: []byte("hello")}); err != nil {
			t.Error(err)
		}
	})
	t.Run("the size of its KV cache", func(t *testing.T) {
		if g, err := e.Gauges(t.Context()); err != nil || g.KVTokens != 8192 {
			t.Errorf("got %+v, %v, want 8192 tokens", g, err)
		}
	})
	t.Run("a prompt that was seen before is cached", func(t *testing.T) {
		c := prepare(engine.JobParams{})
		row := engine.Row{Text: []byte(strings.Repeat("the same words again ", 30))}
		for range 5 { // each slot has its own cache
			reply := must.Get(c.Generate(t.Context(), row))(t)
			if reply.CachedTokens > 0 {
				return
			}
		}
		t.Error("no token of the fifth request with one prompt was cached")
	})
	t.Run("it has no embeddings", func(t *testing.T) {
		wrong := *m
		wrong.Kind = rowmill.KindEmbedding
		c, err := e.Prepare(engine.JobParams{Model: wrong})
		must.Succeed(t, err)
		_, faults, err := c.Embed(t.Context(), []engine.Row{{Text: []byte("a")}, {Text: []byte("b")}})
		if err == nil && (faults[0] == nil || faults[1] == nil) {
			t.Error("a server without embeddings gave some")
		}
	})
}

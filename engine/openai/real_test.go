package openai_test

import (
	"cmp"
	"maps"
	"testing"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/engine"
	"github.com/rowmill/rowmill/engine/enginetest"
	"github.com/rowmill/rowmill/engine/openai"
	"github.com/rowmill/rowmill/internal/llama"
	"github.com/rowmill/rowmill/internal/realserver"
)

// TestReal runs the conformance suite on real servers, for `make engines`, which builds
// the table of bench/engines.md from the results: TestReal/SERVER/MODEL/CHECK.
func TestReal(t *testing.T) {
	realserver.Wanted(t)
	const context = 2048
	for _, c := range []struct {
		server, model string
		is            enginetest.Server
		start         func(t *testing.T, model string) (url, name string)
	}{
		{"llama.cpp", llama.Chat, enginetest.Server{Concurrency: 6, Cancels: true, Counts: true, Forms: []string{"choice", "grammar"}, Takes: acceptedBy("llama.cpp")}, llamaURL},
		{"llama.cpp", llama.Think, enginetest.Server{Concurrency: 6, Counts: true}, llamaURL},
		{"llama.cpp", llama.Embed, enginetest.Server{Counts: true}, llamaURL},
		{"vLLM", llama.Chat, enginetest.Server{Cancels: true, Counts: true, Forms: []string{"regex", "choice", "grammar"}, Takes: acceptedBy("vllm"), Refuses: refusedByVLLM}, started("vllm")},
		{"vLLM", llama.Think, enginetest.Server{Counts: true}, started("vllm")},
		{"vLLM", llama.Embed, enginetest.Server{Counts: true}, started("vllm")},
		{"SGLang", llama.Chat, enginetest.Server{Cancels: true, Counts: true, Forms: []string{"regex", "choice", "grammar"}, Takes: acceptedBy("sglang"), Ignores: []string{enginetest.Seeds}}, started("sglang")},
		{"SGLang", llama.Think, enginetest.Server{Counts: true}, started("sglang")},
		{"SGLang", llama.Embed, enginetest.Server{Counts: true}, started("sglang")},
		{"Ollama", llama.Chat, enginetest.Server{Concurrency: 6, Cuts: true, Takes: acceptedBy("ollama")}, started("ollama")},
		{"Ollama", llama.Embed, enginetest.Server{Cuts: true}, started("ollama")},
		{"transformers", llama.Chat, enginetest.Server{Concurrency: 2, Takes: acceptedBy("openai"), Ignores: ignoredByTransformers}, started("transformers")},
		{"transformers", llama.Think, enginetest.Server{Concurrency: 2, Ignores: ignoredByTransformers}, started("transformers")},
		{"llama-cpp-python", llama.Chat, enginetest.Server{Concurrency: 4, Takes: acceptedBy("openai"), Lacks: []string{enginetest.Schemas}}, started("llama-cpp-python")},
		{"infinity", llama.Embed, enginetest.Server{Cuts: true, Ignores: []string{enginetest.Usage}}, started("infinity")},
	} {
		t.Run(c.server+"/"+c.model, func(t *testing.T) {
			url, name := c.start(t, c.model)
			e, err := openai.New(openai.Config{BaseURL: url})
			if err != nil {
				t.Fatal(err)
			}
			info, err := e.Probe(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("version=%s", cmp.Or(info.Version, realserver.Version(c.server)))
			model := &rowmill.Model{ID: name, ContextLength: context}
			c.is.Engine = e
			switch c.model {
			case llama.Chat:
				model.Kind, c.is.Generation = rowmill.KindGeneration, model
			case llama.Think:
				model.Kind, c.is.Reasoning = rowmill.KindReasoning, model
			case llama.Embed:
				model.Kind, c.is.Embedding = rowmill.KindEmbedding, model
				if model.Dimension = llama.Dimension; c.server == "vLLM" || c.server == "SGLang" || c.server == "infinity" {
					model.Dimension = realserver.Dimension
				}
			}
			if c.server == "Ollama" { // Ollama reports its context once the model is loaded
				load(t, e, *model)
			}
			enginetest.Run(t, func(*testing.T) enginetest.Server { return c.is })
		})
	}
}

// ignoredByTransformers are features that transformers serve 5.19 accepts and ignores.
var ignoredByTransformers = []string{enginetest.Logprobs, enginetest.Schemas, enginetest.Limits}

// refusedByVLLM are values that vLLM 0.32 refuses and others accept.
var refusedByVLLM = map[string]any{
	"temperature": 2.5, "stop": []any{"a1", "b2", "c3", "d4", "e5"}, "allowed_token_ids": []any{int64(1 << 30)}, "logit_bias": map[string]any{"1073741824": 1.0},
}

// acceptedBy returns the sampling parameters that a kind of server accepts, without
// the parameters of structured_outputs.
func acceptedBy(kind string) map[string]any {
	taken := map[string]any{
		"temperature": 0.8, "top_p": 0.9, "presence_penalty": 0.1, "frequency_penalty": 0.1, "stop": []any{"§", "¶"},
	}
	if kind == "ollama" {
		return taken
	}
	if taken["logit_bias"] = map[string]any{"5": 1.0}; kind == "openai" {
		return taken
	}
	maps.Copy(taken, map[string]any{
		"top_k": int64(40), "min_p": 0.01, "repetition_penalty": 1.1, "ignore_eos": false,
	})
	if kind == "llama.cpp" {
		return taken
	}
	if kind == "sglang" {
		maps.Copy(taken, map[string]any{
			"stop_token_ids": []any{int64(7)}, "min_tokens": int64(2), "skip_special_tokens": false, "include_stop_str_in_output": true,
		})
		return taken
	}
	maps.Copy(taken, map[string]any{
		"stop_token_ids": []any{int64(7)}, "min_tokens": int64(2), "bad_words": []any{"zebra"}, "skip_special_tokens": false,
		"spaces_between_special_tokens": false, "include_stop_str_in_output": true, "allowed_token_ids": []any{},
		"repetition_detection": map[string]any{"max_pattern_size": int64(8), "min_count": int64(4)}, "watermarking": false,
		"thinking_token_budget": int64(-1), "extra_args": map[string]any{"a": int64(1), "b": 0.5, "c": []any{"x", int64(2)}},
	})
	return taken
}

// load makes the server load a model, with a row.
func load(t *testing.T, e *openai.Engine, m rowmill.Model) {
	t.Helper()
	c, err := e.Prepare(engine.Params{Model: m, MaxTokens: 1})
	if err != nil {
		t.Fatal(err)
	}
	row := engine.Row{Text: []byte("Hello.")}
	if m.Kind == rowmill.KindEmbedding {
		_, _, err = c.Embed(t.Context(), []engine.Row{row})
	} else {
		_, err = c.Generate(t.Context(), row)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func llamaURL(t *testing.T, model string) (url, name string) {
	s := llama.Start(t, model, llama.Options{Slots: 4, Context: 8192})
	return s.URL, s.Model
}

func started(server string) func(t *testing.T, model string) (url, name string) {
	return func(t *testing.T, model string) (url, name string) {
		s := realserver.Start(t, server, model, realserver.Options{})
		return s.URL, s.Model
	}
}

package openai_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/engine"
	"github.com/rowmill/rowmill/engine/enginetest"
	"github.com/rowmill/rowmill/engine/openai"
	"github.com/rowmill/rowmill/internal/llama"
	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/internal/realserver"
)

// TestReal runs the conformance suite on real servers, for `make engines`, which builds
// the table of bench/engines.md from the results: TestReal/SERVER/MODEL/CHECK.
func TestReal(t *testing.T) {
	realserver.SkipUnlessEnabled(t)
	const context = 2048
	for _, c := range []struct {
		server, model string
		is            enginetest.Server
		start         func(t *testing.T, model string) (url, name string)
	}{
		{"llama.cpp", llama.Chat, enginetest.Server{Concurrency: 6, Cancels: true, Counts: true, Forms: []string{"choice", "grammar"}, AcceptedParams: acceptedBy("llama.cpp")}, llamaURL},
		{"llama.cpp", llama.Think, enginetest.Server{Concurrency: 6, Counts: true}, llamaURL},
		{"llama.cpp", llama.Embed, enginetest.Server{Counts: true}, llamaURL},
		{"vLLM", llama.Chat, enginetest.Server{Cancels: true, Counts: true, Forms: []string{"regex", "choice", "grammar"}, AcceptedParams: acceptedBy("vllm"), RefusedParams: refusedByVLLM}, started("vllm")},
		{"vLLM", llama.Think, enginetest.Server{Counts: true}, started("vllm")},
		{"vLLM", llama.Embed, enginetest.Server{Counts: true}, started("vllm")},
		{"SGLang", llama.Chat, enginetest.Server{Cancels: true, Counts: true, Forms: []string{"regex", "choice", "grammar"}, AcceptedParams: acceptedBy("sglang"), Ignores: []string{enginetest.Seeds}}, started("sglang")},
		{"SGLang", llama.Think, enginetest.Server{Counts: true}, started("sglang")},
		{"SGLang", llama.Embed, enginetest.Server{Counts: true}, started("sglang")},
		{"Ollama", llama.Chat, enginetest.Server{Concurrency: 6, TruncatesPrompts: true, AcceptedParams: acceptedBy("ollama")}, started("ollama")},
		{"Ollama", llama.Embed, enginetest.Server{TruncatesPrompts: true}, started("ollama")},
		{"transformers", llama.Chat, enginetest.Server{Concurrency: 2, AcceptedParams: acceptedBy("openai"), Ignores: ignoredByTransformers}, started("transformers")},
		{"transformers", llama.Think, enginetest.Server{Concurrency: 2, Ignores: ignoredByTransformers}, started("transformers")},
		{"llama-cpp-python", llama.Chat, enginetest.Server{Concurrency: 4, AcceptedParams: acceptedBy("openai"), Lacks: []string{enginetest.Schemas}}, started("llama-cpp-python")},
		{"infinity", llama.Embed, enginetest.Server{TruncatesPrompts: true, Ignores: []string{enginetest.Usage}}, started("infinity")},
	} {
		t.Run(c.server+"/"+c.model, func(t *testing.T) {
			url, name := c.start(t, c.model)
			e := must.Get(openai.New(openai.Config{BaseURL: url}))(t)
			info := must.Get(e.Probe(t.Context()))(t)
			version := cmp.Or(info.Version, realserver.Version(c.server))
			t.Logf("version=%s", version)
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
			if c.model != llama.Embed {
				record(t, c.server, version, url, name, c.model == llama.Think)
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
	c, err := e.Prepare(engine.JobParams{Model: m, MaxTokens: 1})
	must.Succeed(t, err)
	row := engine.Row{Text: []byte("Hello.")}
	if m.Kind == rowmill.KindEmbedding {
		_, _, err = c.Embed(t.Context(), []engine.Row{row})
	} else {
		_, err = c.Generate(t.Context(), row)
	}
	must.Succeed(t, err)
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

// record writes the server's answers into testdata/answers, as SERVER-VERSION-CASE.json,
// if they are not there yet. TestAnswersOfServers reads them. The expected result comes
// from the members that OpenAI's API defines, and is read here without our reader.
func record(t *testing.T, server, version, url, model string, thinks bool) {
	t.Helper()
	cases := map[string]string{
		"cut":      `"max_tokens": 6`,
		"ended":    `"max_tokens": 200, "stop": ["e", "a"]`,
		"logprobs": `"max_tokens": 3, "logprobs": true, "top_logprobs": 1`,
	}
	if thinks {
		cases = map[string]string{"thinking": `"max_tokens": 40`}
	}
	for name, params := range cases {
		path := filepath.Join("testdata", "answers", strings.ToLower(server+"-"+version+"-recorded-"+name+".json"))
		if _, err := os.Stat(path); err == nil {
			continue
		}
		body := answer(t, url, fmt.Sprintf(`{"model": %q, "seed": 7, "messages": [{"role": "user", "content": "How many rows?"}], %s}`, model, params))
		var seen struct {
			Choices []struct {
				Message struct {
					Content          string
					Reasoning        string
					ReasoningContent string `json:"reasoning_content"`
				}
				Finish   string `json:"finish_reason"`
				Logprobs struct{ Content []struct{ Logprob float64 } }
			}
			Usage struct {
				Input  int64 `json:"prompt_tokens"`
				Output int64 `json:"completion_tokens"`
			}
		}
		if err := json.Unmarshal(body, &seen); err != nil || len(seen.Choices) != 1 {
			t.Fatalf("%s: %s, %v", name, body, err)
		}
		choice := seen.Choices[0]
		want := map[string]any{"content": choice.Message.Content, "finish": choice.Finish, "input": seen.Usage.Input, "output": seen.Usage.Output}
		if why := cmp.Or(choice.Message.Reasoning, choice.Message.ReasoningContent); why != "" {
			want["reasoning"] = why
		}
		var sum float64
		for _, token := range choice.Logprobs.Content {
			sum += token.Logprob
		}
		if sum != 0 {
			want["logprob"] = sum
		}
		file := map[string]any{"source": "recorded from " + server + " " + version, "body": json.RawMessage(body), "reasoning_model": thinks, "want": want}
		text := must.Get(json.MarshalIndent(file, "", " "))(t)
		must.Succeed(t, os.WriteFile(path, append(text, '\n'), 0o666))
	}
}

// answer returns the server's answer to a chat request.
func answer(t *testing.T, url, body string) []byte {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/v1/chat/completions", strings.NewReader(body))
	must.Succeed(t, err)
	req.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(req)
	must.Succeed(t, err)
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusOK {
		t.Fatalf("status %d, %v: %s", res.StatusCode, err, text)
	}
	return text
}

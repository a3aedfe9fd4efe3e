package openai

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/engine"
	"github.com/rowmill/rowmill/internal/must"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// good is an accepted answer.
const good = `{"choices":[{"message":{"content":"fine"},"finish_reason":"stop"}],"usage":{"prompt_tokens":3,"completion_tokens":1}}`

var (
	generator = rowmill.Model{ID: "m", Kind: rowmill.KindGeneration, ContextLength: 100}
	embedder  = rowmill.Model{ID: "m", Kind: rowmill.KindEmbedding, Dimension: 2, ContextLength: 100}
)

// serve starts a server that answers rows with answer, and returns a probed engine for
// it. The server's model list has the model m of a vLLM.
func serve(t *testing.T, change func(*Config), answer http.HandlerFunc) *Engine {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/models", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"object":"list","data":[{"id":"m","owned_by":"vllm","max_model_len":100}]}`)
	})
	mux.HandleFunc("GET /version", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"version":"0.29.1"}`)
	})
	mux.HandleFunc("GET /health", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("POST /v1/", answer)
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	cfg := Config{BaseURL: server.URL}
	if change != nil {
		change(&cfg)
	}
	return probed(t, cfg)
}

func probed(t *testing.T, cfg Config) *Engine {
	t.Helper()
	e := must.Get(New(cfg))(t)
	t.Cleanup(e.Close)
	must.Get(e.Probe(t.Context()))(t)
	return e
}

func prepared(t *testing.T, e *Engine, p engine.JobParams) engine.PreparedCall {
	t.Helper()
	c := must.Get(e.Prepare(p))(t)
	return c
}

func generate(t *testing.T, e *Engine, text string) (engine.Reply, error) {
	t.Helper()
	return prepared(t, e, engine.JobParams{Model: generator}).Generate(t.Context(), engine.Row{Text: []byte(text)})
}

func TestRequestBody(t *testing.T) {
	t.Parallel()
	var got []byte
	var header http.Header
	e := serve(t, func(c *Config) { c.APIKey = "secret"; c.BaseURL += "/v1/" }, func(w http.ResponseWriter, r *http.Request) {
		got, _ = io.ReadAll(r.Body)
		header = r.Header
		_, _ = io.WriteString(w, good)
	})
	seed := int64(5)
	m := generator
	m.RequestExtras = map[string]any{"chat_template_kwargs": map[string]any{"enable_thinking": false}, "top_k": 3}
	for name, c := range map[string]struct {
		params engine.JobParams
		row    engine.Row
		want   string
	}{
		"bare": {
			engine.JobParams{Model: generator},
			engine.Row{Text: []byte("a \"b\"\n")},
			`{"model":"m","messages":[{"role":"user","content":"a \"b\"\n"}]}`,
		},
		"everything": {
			engine.JobParams{
				Model: m, System: "be <brief>", Schema: json.RawMessage("{ \"type\": \"object\" }"), Logprobs: true, MaxTokens: 9,
				Sampling: map[string]any{"temperature": 0.5, "top_k": 20.0, "stop": []any{"x"}, "max_tokens": 7.0, "seed": 1.0, "n": 1.0, "min_p": nil},
			},
			engine.Row{Text: []byte("é"), Seed: &seed},
			`{"model":"m","messages":[{"role":"system","content":"be <brief>"},{"role":"user","content":"é"}],
			"stop":["x"],"temperature":0.5,"top_k":20,"max_tokens":9,"chat_template_kwargs":{"enable_thinking":false},
			"logprobs":true,
			"response_format":{"type":"json_schema","json_schema":{"name":"output","strict":true,"schema":{"type":"object"}}},"seed":5}`,
		},
		"the job's seed": {
			engine.JobParams{Model: generator, Sampling: map[string]any{"seed": int64(1) << 33, "max_tokens": 7.0}},
			engine.Row{},
			`{"model":"m","messages":[{"role":"user","content":""}],"max_tokens":7,"seed":0}`,
		},
	} {
		if _, err := prepared(t, e, c.params).Generate(t.Context(), c.row); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		var have, want any
		if err := json.Unmarshal(got, &have); err != nil {
			t.Errorf("%s: sent %s: %v", name, got, err)
		}
		must.Succeed(t, json.Unmarshal([]byte(c.want), &want))
		if diff := cmp.Diff(want, have); diff != "" {
			t.Errorf("%s: wanted (-), sent (+):\n%s", name, diff)
		}
	}
	if header.Get("Authorization") != "Bearer secret" || header.Get("Content-Type") != "application/json" {
		t.Errorf("header %v", header)
	}
}

func TestAnswers(t *testing.T) {
	t.Parallel()
	think := rowmill.Model{ID: "m", Kind: rowmill.KindReasoning}
	token := func(text string, p float64) string { return fmt.Sprintf(`{"token":%q,"logprob":%v}`, text, p) }
	list := func(tokens ...string) string { return `{"content":[` + strings.Join(tokens, ",") + `]}` }
	choice := func(message, logprobs string) string {
		return `{"choices":[{"message":` + message + `,"logprobs":` + logprobs + `,"finish_reason":"stop"}],"usage":{"prompt_tokens":3,"completion_tokens":4}}`
	}
	reply := func(content, reasoning string, sum float64, count int64) engine.Reply {
		return engine.Reply{
			Content: content, Reasoning: reasoning, Finish: rowmill.FinishStop,
			InputTokens: 3, OutputTokens: 4, LogprobSum: sum, LogprobCount: count,
		}
	}
	for name, c := range map[string]struct {
		model rowmill.Model
		body  string
		want  engine.Reply
	}{
		"text": {generator, choice(`{"content":"a"}`, list(token("a", -1), token("b", -2))), reply("a", "", -3, 2)},
		"a tag that means nothing here": {
			generator, choice(`{"content":"a</think>b"}`, list(token("a", -1), token("</think>", -2))), reply("a</think>b", "", -3, 2),
		},
		"reasoning_content": {
			think, choice(`{"content":"yes","reasoning_content":"hm"}`, list(token("hm", -1), token("</think>", -2), token("yes", -0.5))),
			reply("yes", "hm", -0.5, 1),
		},
		"reasoning": {think, choice(`{"content":"yes","reasoning":"hm"}`, "null"), reply("yes", "hm", 0, 0)},
		"no parser": {
			think, choice(`{"content":"hm\n</think>\n\nyes </think> too"}`, list(token("hm", -1), token("</", -2), token("think", -4), token(">\n", -8), token("yes", -0.5))),
			reply("yes </think> too", "hm", -0.5, 1),
		},
		"no parser, both tags":      {think, choice(`{"content":"\n<think>hm</think>yes"}`, "null"), reply("yes", "hm", 0, 0)},
		"no parser, cut off":        {think, choice(`{"content":"<think>\nhm"}`, list(token("<think>", -1), token("hm", -1))), reply("", "hm", 0, 0)},
		"no reasoning at all":       {think, choice(`{"content":"yes"}`, list(token("yes", -1))), reply("yes", "", -1, 1)},
		"tokens of the answer only": {think, choice(`{"content":"yes","reasoning":"quite long"}`, list(token("yes", -1))), reply("yes", "quite long", -1, 1)},
		"tokens of both, no tag": {
			think, choice(`{"content":"yes","reasoning":"quite long"}`, list(token("quite long", -1), token("yes", -1))), reply("yes", "quite long", 0, 0),
		},
		"cut off while thinking": {think, choice(`{"content":"","reasoning":"quite long"}`, list(token("quite long", -1))), reply("", "quite long", 0, 0)},
		"reasoning of a model that should not": {
			generator, choice(`{"content":"yes","reasoning":"hm"}`, list(token("hm", -1), token("yes", -1))), reply("yes", "hm", 0, 0),
		},
		"minus infinity": {generator, choice(`{"content":"a"}`, list(token("a", -9999))), reply("a", "", leastLogprob, 1)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := serve(t, nil, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, c.body) })
			got := must.Get(prepared(t, e, engine.JobParams{Model: c.model}).Generate(t.Context(), engine.Row{Text: []byte("x")}))(t)
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("want (-), got (+):\n%s", diff)
			}
		})
	}
}

// A job warns once if a server names another model in its answers. Some servers add a date
// to the name, or leave a part of it out.
func TestAnswersOfAnotherModel(t *testing.T) {
	t.Parallel()
	for named, warns := range map[string]bool{
		`"` + generator.ID + `"`: false, `"` + generator.ID + `-2026-01-31"`: false, `"org/` + strings.ToUpper(generator.ID) + `"`: false, `""`: false, `null`: false, `["x"]`: false,
		`"another"`: true, `"\ud800\n` + strings.Repeat("x", 4000) + `"`: true,
	} {
		e := serve(t, nil, func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, strings.Replace(good, "{", `{"model":`+named+",", 1))
		})
		c := prepared(t, e, engine.JobParams{Model: generator})
		for range 2 {
			must.Get(c.Generate(t.Context(), engine.Row{Text: []byte("x")}))(t)
		}
		got := slices.DeleteFunc(c.Warnings(), func(w string) bool { return !strings.Contains(w, "asked for the model "+generator.ID) })
		if len(got) == 1 != warns || len(got) > 1 || warns && (len(got[0]) > 500 || !utf8.ValidString(got[0])) {
			t.Errorf("the model %.50s: warnings %.600q", named, got)
		}
	}
}

// A caller that asked for repetition_detection gets the answer that it cut off.
func TestRepetitionIsCutOff(t *testing.T) {
	t.Parallel()
	e := serve(t, nil, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, strings.Replace(good, `"stop"`, `"repetition"`, 1))
	})
	if reply, err := generate(t, e, "x"); err != nil || reply.Finish != rowmill.FinishLength || reply.Content != "fine" {
		t.Errorf("got %+v, %v", reply, err)
	}
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	const secret = "the quick brown fox jumps over the lazy dog"
	schema := json.RawMessage(`{"type":"object"}`)
	openAI := func(message string) string {
		return `{"error":{"message":"` + message + `","type":"some_type","code":400}}`
	}
	for _, c := range []struct {
		name   string
		status int
		body   string
		schema json.RawMessage
		want   engine.Error // Message: a part
	}{
		{"bad request", 400, openAI("bad"), nil, engine.Error{Class: engine.RowFault, Code: "some_type", Message: "bad"}},
		{"too large", 413, ``, nil, engine.Error{Class: engine.RowFault, Code: rowmill.RowTooLong, TooLong: true}},
		{"unprocessable", 422, `{"detail":[{"loc":["body","top_p"],"msg":"must be less","input":"` + secret + `"}]}`, nil, engine.Error{Class: engine.RowFault, Code: "http_422", Message: "body.top_p: must be less"}},
		{"not implemented", 501, openAI("start it with --embeddings"), nil, engine.Error{Class: engine.JobFault, Code: "some_type", Message: "cannot run this model for such requests: start it"}},
		{"no such ability, Ollama", 400, openAI(`\"m\" does not support chat`), nil, engine.Error{Class: engine.JobFault, Code: "some_type", Message: "cannot run this model for such requests"}},
		{"no such ability, llama-cpp-python", 500, `{"error":{"message":"Llama model must be created with embedding=True to call this method","type":"internal_server_error","param":null,"code":null}}`, nil, engine.Error{Class: engine.JobFault, Code: "internal_server_error", Message: "cannot run this model for such requests"}},
		{"schema, llama-cpp-python", 500, openAI(`1 validation error:\n  {'type': 'literal_error', 'loc': ('body', 'response_format', 'type'), 'msg': \"Input should be 'text' or 'json_object'\"}`), schema, engine.Error{Class: engine.JobFault, Code: "some_type", Message: "refuses the json_schema"}},
		{"no such ability, vLLM", 404, openAI("The model does not support Chat Completions API"), schema, engine.Error{Class: engine.JobFault, Code: "some_type", Message: "cannot run this model for such requests"}},
		{"no key", 401, `{"error":"Unauthorized"}`, nil, engine.Error{Class: engine.ServerFault, Code: "http_401", Message: "set the engine's api_key: Unauthorized"}},
		{"forbidden", 403, ``, nil, engine.Error{Class: engine.ServerFault, Code: "http_403"}},
		{"not found", 404, `{"object":"error","message":"no model","type":"NotFoundError","code":404}`, nil, engine.Error{Class: engine.ServerFault, Code: "NotFoundError", Message: "no model"}},
		{"wrong method", 405, ``, nil, engine.Error{Class: engine.ServerFault, Code: "http_405"}},
		{"redirect", 302, ``, nil, engine.Error{Class: engine.ServerFault, Code: "http_302"}},
		{"time out", 408, ``, nil, engine.Error{Class: engine.Busy, Code: "http_408"}},
		{"conflict", 409, ``, nil, engine.Error{Class: engine.Busy, Code: "http_409"}},
		{"too early", 425, ``, nil, engine.Error{Class: engine.Busy, Code: "http_425"}},
		{"too many", 429, `{"error":"Model is overloaded","error_type":"overloaded"}`, nil, engine.Error{Class: engine.Busy, Code: "overloaded", Overloaded: true, Message: "Model is overloaded"}},
		{"broken", 500, openAI("oops"), nil, engine.Error{Class: engine.Transient, Code: "some_type"}},
		{"gateway", 502, `<html>Bad Gateway</html>`, nil, engine.Error{Class: engine.Busy, Code: "http_502"}},
		{"loading", 503, openAI("Loading model"), nil, engine.Error{Class: engine.Busy, Code: "some_type", Overloaded: true}},
		{"gateway time", 504, ``, nil, engine.Error{Class: engine.Busy, Code: "http_504"}},
		{"schema", 400, openAI("JSON schema error at #: unrecognized type foo"), schema, engine.Error{Class: engine.JobFault, Code: "some_type", Message: "foo"}},
		{"schema, but none was sent", 400, openAI("schema"), nil, engine.Error{Class: engine.RowFault, Code: "some_type"}},
		{"overflow, llama.cpp", 400, `{"error":{"code":400,"message":"request (2102 tokens) exceeds it","type":"exceed_context_size_error","n_prompt_tokens":2102,"n_ctx":2048}}`, nil, engine.Error{Class: engine.RowFault, Code: rowmill.RowTooLong, TooLong: true, Prompt: 2102}},
		{"overflow, vLLM", 400, openAI("Your prompt has 200 tokens but the model's context length is only 100."), nil, engine.Error{Class: engine.RowFault, Code: rowmill.RowTooLong, TooLong: true, Context: 100, Prompt: 200}},
		{"overflow, older vLLM", 400, openAI("This model's maximum context length is 100 tokens."), schema, engine.Error{Class: engine.RowFault, Code: rowmill.RowTooLong, TooLong: true, Context: 100}},
		{"overflow, SGLang", 400, openAI("The input (5000 tokens) is longer than the model's context length (4096 tokens)."), nil, engine.Error{Class: engine.RowFault, Code: rowmill.RowTooLong, TooLong: true, Context: 4096, Prompt: 5000}},
		{"overflow, llama-cpp-python", 400, openAI("This model's maximum context length is 2048 tokens. However, you requested 10020 tokens (10015 in the messages, 5 in the completion)."), nil, engine.Error{Class: engine.RowFault, Code: rowmill.RowTooLong, TooLong: true, Context: 2048, Prompt: 10020}},
		{"overflow, more than any context", 400, openAI("the model's context length is 9999999999"), nil, engine.Error{Class: engine.RowFault, Code: rowmill.RowTooLong, TooLong: true}},
		{"overflow, embeddings", 500, openAI("input (600 tokens) is too large to process. increase the physical batch size"), nil, engine.Error{Class: engine.RowFault, Code: rowmill.RowTooLong, TooLong: true, Prompt: 600}},
		{"a message that quotes the prompt", 400, openAI("cannot parse: " + secret), nil, engine.Error{Class: engine.RowFault, Code: "some_type", Message: "left out"}},
		{"a code that quotes the prompt", 400, `{"error":{"message":"no","code":"` + secret + `"}}`, nil, engine.Error{Class: engine.RowFault, Code: "http_400"}},
		{"a long message", 400, openAI(strings.Repeat("é", 5000)), nil, engine.Error{Class: engine.RowFault, Code: "some_type", Message: "…"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			e := serve(t, nil, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Retry-After", "7")
				w.WriteHeader(c.status)
				_, _ = io.WriteString(w, c.body)
			})
			call := prepared(t, e, engine.JobParams{Model: generator, Schema: c.schema, System: secret})
			_, err := call.Generate(t.Context(), engine.Row{Text: []byte("say: " + secret)})
			var got *engine.Error
			if !errors.As(err, &got) {
				t.Fatalf("got %v", err)
			}
			if !strings.Contains(got.Message, c.want.Message) || got.Message == "" || len(got.Message) > 400 {
				t.Errorf("message %q, want a part %q", got.Message, c.want.Message)
			}
			if strings.Contains(fmt.Sprintf("%+v", *got), "brown fox") {
				t.Error("the error quotes the prompt")
			}
			have := *got
			have.Message, c.want.Message = "", ""
			c.want.Status, c.want.RetryAfter = c.status, 7*time.Second
			if diff := cmp.Diff(c.want, have); diff != "" {
				t.Errorf("want (-), got (+):\n%s", diff)
			}
		})
	}
}

func TestUnacceptableReplies(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ body, code, raw string }{
		"no choices":        {`{"choices":[]}`, "no_choices", ""},
		"no object":         {`[]`, "malformed_reply", ""},
		"not JSON":          {`<html>`, "malformed_reply", ""},
		"empty":             {``, "malformed_reply", ""},
		"cut off":           {good[:40], "malformed_reply", ""},
		"text behind":       {good + "x", "malformed_reply", ""},
		"aborted":           {strings.Replace(good, `"stop"`, `"abort"`, 1), "unfinished", "fine"},
		"too long an text":  {strings.Replace(good, `fine`, strings.Repeat("x", 2000), 1), "reply_too_large", ""},
		"too large a body":  {strings.Replace(good, `{`, `{"x":"`+strings.Repeat("x", 70000)+`",`, 1), "reply_too_large", ""},
		"an error in a 200": {`{"error":{"message":"The request queue is full.","code":"queue_full"}}`, "queue_full", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := serve(t, func(c *Config) { c.MaxAnswerBytes, c.MaxBodyBytes = 1000, 64<<10 },
				func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, c.body) })
			_, err := generate(t, e, "x")
			var got *engine.Error
			class := engine.Transient
			if c.code == "queue_full" {
				class = engine.Busy
			}
			if !errors.As(err, &got) || got.Class != class || got.Code != c.code || got.Raw != c.raw ||
				(got.Status == 200) != (c.code != "connection_broken") {
				t.Errorf("got %#v, want a Transient with code %s", err, c.code)
			}
		})
	}
}

func TestEmbedHalvesTheGroup(t *testing.T) {
	t.Parallel()
	var groups []string
	e := serve(t, nil, func(w http.ResponseWriter, r *http.Request) {
		var req struct {
			Input    []string `json:"input"`
			Encoding string   `json:"encoding_format"`
		}
		if err := json.NewDecoder(r.Body).Decode(&req); err != nil || req.Encoding != "base64" {
			t.Errorf("request: %v, %q", err, req.Encoding)
		}
		group := strings.Join(req.Input, "")
		groups = append(groups, group)
		if strings.ContainsAny(group, "XY") {
			w.WriteHeader(400)
			_, _ = io.WriteString(w, `{"error":{"message":"bad text"}}`)
			return
		}
		var items []string
		for i := range req.Input {
			items = append([]string{fmt.Sprintf(`{"index":%d,"embedding":[%d,0]}`, i, req.Input[i][0])}, items...)
		}
		_, _ = fmt.Fprintf(w, `{"data":[%s],"usage":{"prompt_tokens":%d}}`, strings.Join(items, ","), len(items))
	})
	var rows []engine.Row
	for _, c := range "abXcdefY" {
		rows = append(rows, engine.Row{Text: []byte(string(c))})
	}
	replies, faults, err := prepared(t, e, engine.JobParams{Model: embedder}).Embed(t.Context(), rows)
	must.Succeed(t, err)
	for i, row := range rows {
		bad := i == 2 || i == 7
		if bad != (faults[i] != nil) || !bad && (replies[i].Embedding[0] != float32(row.Text[0]) || replies[i].InputTokens != 1) {
			t.Errorf("row %s: %+v, %v", row.Text, replies[i], faults[i])
		}
	}
	if want := []string{"abXcdefY", "abXc", "ab", "Xc", "X", "c", "defY", "de", "fY", "f", "Y"}; !cmp.Equal(groups, want) {
		t.Errorf("groups %v, want %v", groups, want)
	}
}

// Infinity, as 0.0.78 was seen to answer: it truncates long texts, and its usage counts
// characters.
func TestInfinity(t *testing.T) {
	t.Parallel()
	f := &fake{server: "uvicorn", pages: map[string]string{
		"/v1/models": `{"data":[{"id":"m","stats":{"queue_fraction":0.0,"queue_absolute":0,"results_pending":0,"batch_size":32},` +
			`"object":"model","owned_by":"infinity","created":1760000000,"backend":"torch","capabilities":["embed"]}],"object":"list"}`,
		"/health": `{"unix":1760000000.297296}`, "/metrics": "http_requests_total{handler=\"/v1/models\",method=\"GET\",status=\"2xx\"} 1.0\n",
	}, chat: func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"object":"list","data":[{"object":"embedding","embedding":"AACAPwAAAAA=","index":0}],"model":"m",`+
			`"usage":{"prompt_tokens":14,"total_tokens":14},"id":"infinity-1","created":1760000000}`)
	}}
	e := f.start(t, nil)
	info, err := e.Probe(t.Context())
	if err != nil || info.Kind != "infinity" || len(info.Models) != 1 || info.Models[0].Name != "m" {
		t.Fatalf("%+v, %v", info, err)
	}
	if _, err := e.Gauges(t.Context()); !errors.Is(err, engine.ErrNoGauges) {
		t.Errorf("gauges: %v", err)
	}
	c := prepared(t, e, engine.JobParams{Model: embedder})
	if warned := strings.Join(c.Warnings(), " "); !strings.Contains(warned, "Infinity cuts") {
		t.Errorf("warnings %q", warned)
	}
	row := engine.Row{Text: []byte("word word word")}
	replies, faults, err := c.Embed(t.Context(), []engine.Row{row})
	if err != nil || faults[0] != nil || replies[0].InputTokens != 0 || len(replies[0].Embedding) != 2 {
		t.Errorf("%+v, %v, %v, want an embedding and no tokens", replies, faults, err)
	}
	if _, err := c.(engine.PromptCounter).CountPrompt(t.Context(), row); !errors.Is(err, engine.ErrCutsPrompts) {
		t.Errorf("counting: %v", err)
	}
}

// Text Embeddings Inference, by its published source: it has no list of models,
// describes its model in /info, and refuses a text that is too long with 413.
func TestTEI(t *testing.T) {
	t.Parallel()
	info := `{"model_id":"acme/embed-small","model_sha":"fedcba9876543210fedcba9876543210fedcba98","model_dtype":"float32","model_type":{"embedding":{"pooling":"cls"}},` +
		`"max_concurrent_requests":512,"max_input_length":100,"max_batch_tokens":16384,"max_batch_requests":null,"max_client_batch_size":32,` +
		`"auto_truncate":false,"tokenization_workers":4,"version":"1.8.0","sha":null,"docker_label":null}`
	f := &fake{pages: map[string]string{"/info": info, "/health": ""}, chat: func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if strings.Contains(string(body), "too long") {
			w.WriteHeader(http.StatusRequestEntityTooLarge)
			_, _ = io.WriteString(w, "{\"message\":\"Input validation error: `inputs` must have less than 100 tokens. Given: 107\",\"code\":413,\"type\":\"Validation\"}")
			return
		}
		_, _ = io.WriteString(w, `{"object":"list","data":[{"object":"embedding","embedding":[1,0],"index":0}],"model":"acme/embed-small","usage":{"prompt_tokens":3,"total_tokens":3}}`)
	}}
	e := f.start(t, nil)
	got, err := e.Probe(t.Context())
	if served := got.Models; err == nil && got.Describe(served[0]) != "tei 1.8.0, model acme/embed-small, revision fedcba987654" {
		t.Errorf("described as %s", got.Describe(served[0]))
	}
	if err != nil || got.Kind != "tei" || got.Version != "1.8.0" || len(got.Models) != 1 || got.Models[0].ContextLength != 100 || got.Models[0].Kind != rowmill.KindEmbedding {
		t.Fatalf("%+v, %v", got, err)
	}
	m := embedder
	m.ID = "acme/embed-small"
	c := prepared(t, e, engine.JobParams{Model: m})
	if warned := c.Warnings(); len(warned) != 0 {
		t.Errorf("warnings %q", warned)
	}
	replies, faults, err := c.Embed(t.Context(), []engine.Row{{Text: []byte("a word")}})
	if err != nil || faults[0] != nil || replies[0].InputTokens != 3 || len(replies[0].Embedding) != 2 {
		t.Errorf("%+v, %v, %v", replies, faults, err)
	}
	if _, faults, err := c.Embed(t.Context(), []engine.Row{{Text: []byte("too long")}}); err != nil || faults[0] == nil || !faults[0].TooLong {
		t.Errorf("a text that is too long: %+v, %v", faults[0], err)
	}
	f.pages["/info"] = strings.Replace(info, `"auto_truncate":false`, `"auto_truncate":true`, 1)
	must.Get(e.Probe(t.Context()))(t)
	if warned := strings.Join(prepared(t, e, engine.JobParams{Model: m}).Warnings(), " "); !strings.Contains(warned, "--auto-truncate") {
		t.Errorf("warnings %q", warned)
	}
	f.pages["/info"] = strings.Replace(info, `{"embedding":{"pooling":"cls"}}`, `{"reranker":{"id2label":{}}}`, 1)
	if _, err := e.Probe(t.Context()); err == nil || !strings.Contains(err.Error(), "is not an embedding model") {
		t.Errorf("a reranker: %v", err)
	}
}

func TestEmbedNotImplementedIsAskedOnce(t *testing.T) {
	t.Parallel()
	var asked atomic.Int32
	e := serve(t, nil, func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		w.WriteHeader(501)
	})
	_, _, err := prepared(t, e, engine.JobParams{Model: embedder}).Embed(t.Context(), make([]engine.Row, 64))
	var fault *engine.Error
	if !errors.As(err, &fault) || fault.Class != engine.JobFault || asked.Load() != 1 {
		t.Errorf("%d requests, %v, want a JobFault after one request", asked.Load(), err)
	}
}

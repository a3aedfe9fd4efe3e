package openai

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/engine"
)

// A fake is a server that answers like a kind of server, by its documentation.
type fake struct {
	server string            // header Server
	pages  map[string]string // by path; any other path is 404
	chat   http.HandlerFunc  // nil: rows get 404 too
	calls  atomic.Int32      // requests for pages that only identify the server
}

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if f.server != "" {
		w.Header().Set("Server", f.server)
	}
	page, ok := f.pages[r.URL.Path]
	if r.URL.Path == "/api/show" {
		var asked struct{ Model string }
		if json.NewDecoder(r.Body).Decode(&asked) != nil || r.Method != http.MethodPost {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		page, ok = f.pages["/api/show "+asked.Model]
	}
	switch {
	case strings.HasPrefix(r.URL.Path, "/v1/") && r.Method == http.MethodPost && f.chat != nil:
		f.chat(w, r)
	case !ok:
		http.NotFound(w, r)
	default:
		if r.URL.Path == "/server_info" || r.URL.Path == "/get_server_info" || r.URL.Path == "/api/show" {
			f.calls.Add(1)
		}
		_, _ = io.WriteString(w, page)
	}
}

func (f *fake) start(t *testing.T, change func(*Config)) *Engine {
	t.Helper()
	server := httptest.NewServer(f)
	t.Cleanup(server.Close)
	cfg := Config{BaseURL: server.URL}
	if change != nil {
		change(&cfg)
	}
	return probed(t, cfg)
}

// Pages of each kind, from its documentation and sources.
var (
	vllmOld = map[string]string{
		"/v1/models": `{"object":"list","data":[{"id":"m","object":"model","created":1760000000,"owned_by":"vllm","root":"meta/m","parent":null,"max_model_len":4096,"permission":[]}]}`,
		"/version":   `{"version":"0.11.0"}`, "/health": "",
		"/metrics": "vllm:num_requests_running{engine=\"0\",model_name=\"m\"} 3.0\nvllm:num_requests_waiting{engine=\"0\",model_name=\"m\"} 1.0\n" +
			"vllm:gpu_cache_usage_perc{engine=\"0\",model_name=\"m\"} 0.25\nvllm:num_preemptions_total{engine=\"0\",model_name=\"m\"} 2.0\n" +
			"vllm:cache_config_info{block_size=\"16\",cache_dtype=\"auto\",engine=\"0\",num_gpu_blocks=\"1000\"} 1.0\n",
	}
	vllmNew = map[string]string{
		"/v1/models": vllmOld["/v1/models"], "/version": `{"version":"0.29.1"}`, "/health": "",
		"/metrics": "vllm:num_requests_running{engine=\"0\",model_name=\"m\"} 3.0\nvllm:num_requests_waiting{engine=\"0\",model_name=\"m\"} 1.0\n" +
			"vllm:kv_cache_usage_perc{engine=\"0\",model_name=\"m\"} 0.25\nvllm:num_preemptions_total{engine=\"0\",model_name=\"m\"} 2.0\n" +
			"vllm:cache_config_info{block_size=\"16\",cache_dtype=\"auto\",engine=\"0\",kv_cache_size_tokens=\"15000\",num_gpu_blocks=\"1000\"} 1.0\n",
	}
	sglang = map[string]string{
		"/v1/models":   `{"object":"list","data":[{"id":"m","object":"model","created":1760000000,"owned_by":"sglang","root":"m","parent":null,"max_model_len":4096}]}`,
		"/server_info": `{"model_path":"m","api_key":null,"dp_size":2,"reasoning_parser":"qwen3","max_total_num_tokens":8000,"internal_states":[{"effective_max_running_requests_per_dp":64}],"version":"0.5.18"}`,
		"/model_info":  `{"model_path":"m","is_generation":true}`, "/health": "",
		"/metrics": "sglang:num_running_reqs{model_name=\"m\"} 3.0\nsglang:num_queue_reqs{model_name=\"m\"} 1.0\nsglang:token_usage{model_name=\"m\"} 0.25\n" +
			"sglang:num_retracted_requests_total{model_name=\"m\"} 2.0\n",
	}
	ollama = map[string]string{
		"/v1/models":   `{"object":"list","data":[{"id":"m","object":"model","created":1760000000,"owned_by":"library"}]}`,
		"/":            "Ollama is running",
		"/api/ps":      `{"models":[{"name":"m","model":"m","context_length":4096}]}`,
		"/api/show m":  `{"parameters":"num_ctx                        8192\nstop \"<|im_end|>\"","capabilities":["completion","tools","thinking"],"model_info":{"general.architecture":"qwen3","qwen3.context_length":40960,"qwen3.block_count":36}}`,
		"/api/version": `{"version":"0.14.2"}`,
	}
	llamaCpp = map[string]string{
		"/v1/models": `{"object":"list","data":[{"id":"m","object":"model","created":1760000000,"owned_by":"llamacpp","meta":{"n_ctx":4096,"n_ctx_train":32768,"n_embd":64}}]}`,
		"/props":     `{"default_generation_settings":{"n_ctx":4096},"total_slots":4,"build_info":"b11669"}`, "/health": `{"status":"ok"}`,
		"/metrics": "llamacpp:requests_processing 3\nllamacpp:requests_deferred 1\n",
	}
)

// TestKinds checks each kind of server, by its documentation: its description, gauges,
// answers and refusals.
func TestKinds(t *testing.T) {
	t.Parallel()
	thinker := rowmill.Model{ID: "m", Kind: rowmill.KindReasoning, ContextLength: 4096}
	message := func(reasoning string) string {
		return `{"choices":[{"index":0,"message":{"role":"assistant",` + reasoning + `"content":"yes"},"finish_reason":"stop","logprobs":null}],` +
			`"usage":{"prompt_tokens":30,"completion_tokens":4,"total_tokens":34,"prompt_tokens_details":{"cached_tokens":16}}}`
	}
	for name, c := range map[string]struct {
		fake     *fake
		info     engine.ServerInfo  // without Models
		model    engine.ServedModel // without name and context
		gauges   engine.Gauges
		answer   string
		cached   int64
		overflow string // with its status
		refusal  string // the refusal of a wrong body, with its status
		code     string // the code of that refusal
		silent   bool   // it has no gauges
		cuts     bool   // it truncates prompts and never refuses one
	}{
		"vLLM 0.11": {
			fake: &fake{server: "uvicorn", pages: vllmOld}, info: engine.ServerInfo{Kind: "vllm", Version: "0.11.0"}, model: engine.ServedModel{Origin: "meta/m"},
			gauges: engine.Gauges{Running: 3, Waiting: 1, KVUse: 0.25, Preemptions: 2, KVTokens: 16000},
			answer: message(`"reasoning_content":"hm",`), cached: 16,
			overflow: `400 {"error":{"message":"This model's maximum context length is 4096 tokens. However, your request has 5000 input tokens. Please reduce the length of the input messages.","type":"BadRequestError","param":null,"code":400}}`,
			refusal:  `400 {"error":{"message":"top_p must be in (0, 1], got 2.0.","type":"BadRequestError","param":null,"code":400}}`, code: "BadRequestError",
		},
		"vLLM 0.29": {
			fake: &fake{server: "uvicorn", pages: vllmNew}, info: engine.ServerInfo{Kind: "vllm", Version: "0.29.1"}, model: engine.ServedModel{Origin: "meta/m"},
			gauges: engine.Gauges{Running: 3, Waiting: 1, KVUse: 0.25, Preemptions: 2, KVTokens: 15000},
			answer: message(`"reasoning":"hm",`), cached: 16,
			overflow: `400 {"error":{"message":"Your prompt has 5000 tokens, but the model's context length is only 4096.","type":"BadRequestError","param":"input_tokens","code":400}}`,
			refusal:  `503 {"error":{"message":"The request queue is full","type":"ServiceUnavailableError","param":null,"code":503}}`, code: "ServiceUnavailableError",
		},
		"SGLang": {
			fake: &fake{server: "uvicorn", pages: sglang}, info: engine.ServerInfo{Kind: "sglang", Version: "0.5.18", Slots: 128},
			gauges: engine.Gauges{Running: 3, Waiting: 1, KVUse: 0.25, Preemptions: 2, KVTokens: 16000},
			answer: message(`"reasoning_content":"hm",`), cached: 16,
			overflow: `400 {"object":"error","message":"The input (5000 tokens) is longer than the model's context length (4096 tokens).","type":"BadRequestError","param":null,"code":400}`,
			refusal:  `503 {"object":"error","message":"The request queue is full.","type":"ServiceUnavailable","param":null,"code":503}`, code: "ServiceUnavailable",
		},
		"Ollama": {
			fake: &fake{pages: ollama}, info: engine.ServerInfo{Kind: "ollama", Version: "0.14.2"}, model: engine.ServedModel{Kind: rowmill.KindReasoning},
			answer:  `{"choices":[{"index":0,"message":{"role":"assistant","content":"yes","reasoning":"hm"},"finish_reason":"stop"}],"usage":{"prompt_tokens":30,"completion_tokens":4,"total_tokens":34}}`,
			refusal: `503 {"error":{"message":"server busy, please try again.  maximum pending requests exceeded","type":"api_error","param":null,"code":null}}`, code: "api_error",
			silent: true, cuts: true,
		},
		"llama.cpp": {
			fake: &fake{server: "llama.cpp", pages: llamaCpp}, info: engine.ServerInfo{Kind: "llama.cpp", Version: "b11669", Slots: 4},
			gauges: engine.Gauges{Running: 3, Waiting: 1, KVUse: -1, KVTokens: 16384},
			answer: message(`"reasoning_content":"hm",`), cached: 16,
			overflow: `400 {"error":{"code":400,"message":"request (5000 tokens) exceeds the available context size (4096 tokens), try increasing it","type":"exceed_context_size_error","n_prompt_tokens":5000,"n_ctx":4096}}`,
			refusal:  `503 {"error":{"code":503,"message":"Loading model","type":"unavailable_error"}}`, code: "unavailable_error",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var next string
			c.fake.chat = func(w http.ResponseWriter, _ *http.Request) {
				status, body, isError := strings.Cut(next, " {")
				if !isError || len(status) != 3 {
					_, _ = io.WriteString(w, next)
					return
				}
				w.WriteHeader(map[string]int{"400": 400, "503": 503}[status])
				_, _ = io.WriteString(w, "{"+body)
			}
			e := c.fake.start(t, nil)
			info, err := e.Probe(t.Context())
			c.model.Name, c.model.ContextLength = "m", 4096
			c.info.Models = []engine.ServedModel{c.model}
			if diff := cmp.Diff(c.info, info); err != nil || diff != "" {
				t.Errorf("probe: %v, want (-), got (+):\n%s", err, diff)
			}
			if c.fake.calls.Load() > 1 {
				t.Errorf("pages that never change were fetched %d times", c.fake.calls.Load())
			}
			gauges, err := e.Gauges(t.Context())
			if c.silent != errors.Is(err, engine.ErrNoGauges) || !c.silent && (err != nil || gauges != c.gauges) {
				t.Errorf("gauges: %+v, %v, want %+v", gauges, err, c.gauges)
			}

			call := prepared(t, e, engine.JobParams{Model: thinker, Schema: json.RawMessage(`{}`)})
			row := engine.Row{Text: []byte("a prompt")}
			next = c.answer
			reply, err := call.Generate(t.Context(), row)
			want := engine.Reply{Content: "yes", Reasoning: "hm", Finish: rowmill.FinishStop, InputTokens: 30, CachedTokens: c.cached, OutputTokens: 4}
			if diff := cmp.Diff(want, reply); err != nil || diff != "" {
				t.Errorf("answer: %v, want (-), got (+):\n%s", err, diff)
			}
			var fault *engine.Error
			next = c.refusal
			if _, err := call.Generate(t.Context(), row); !errors.As(err, &fault) || fault.Code != c.code || fault.TooLong ||
				fault.Overloaded != strings.HasPrefix(next, "503") {
				t.Errorf("refusal: %#v", err)
			}
			next = c.overflow
			if _, err := call.Generate(t.Context(), row); !c.cuts && (!errors.As(err, &fault) || fault.Class != engine.RowFault || !fault.TooLong || fault.Code != rowmill.RowTooLong) {
				t.Errorf("overflow: %#v", err)
			}
			if warned := strings.Contains(strings.Join(call.Warnings(), " "), "its context of 4096 tokens without saying so"); warned != c.cuts {
				t.Errorf("warnings %q", call.Warnings())
			}
		})
	}
}

// with returns pages with changes; an empty page is removed.
func with(pages, changes map[string]string) map[string]string {
	out := map[string]string{}
	for path, page := range pages {
		out[path] = page
	}
	for path, page := range changes {
		if out[path] = page; page == "" {
			delete(out, path)
		}
	}
	return out
}

func TestOllamaContext(t *testing.T) {
	t.Parallel()
	show := "/api/show m"
	for name, c := range map[string]struct {
		pages map[string]string
		want  int
	}{
		"context of the loaded model": {ollama, 4096},
		"context of the model file":   {with(ollama, map[string]string{"/api/ps": `{"models":[]}`}), 8192},
		"maximum of the model":        {with(ollama, map[string]string{"/api/ps": "", show: `{"model_info":{"llama.context_length":131072,"llama.context_length.x":1}}`}), 131072},
		"no context reported":         {with(ollama, map[string]string{"/api/ps": "", show: `{}`}), 0},
		"nonsense":                    {with(ollama, map[string]string{"/api/ps": `[]`, show: `{"parameters":"num_ctx x","model_info":{"a.context_length":"b"}}`}), 0},
		"requests fail":               {with(ollama, map[string]string{"/api/ps": "", show: ""}), 0},
		"loaded, no details":          {with(ollama, map[string]string{show: ""}), 4096},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			info, err := (&fake{pages: c.pages}).start(t, nil).Probe(t.Context())
			if err != nil || info.Kind != "ollama" || info.Models[0].ContextLength != c.want {
				t.Errorf("got %+v, %v, want a context of %d", info, err, c.want)
			}
		})
	}

	t.Run("a model that was unloaded", func(t *testing.T) {
		t.Parallel()
		f := &fake{pages: with(ollama, nil)}
		e := f.start(t, nil)
		f.pages["/api/ps"] = `{"models":[]}`
		if info, err := e.Probe(t.Context()); err != nil || info.Models[0].ContextLength != 4096 {
			t.Errorf("got %+v, %v, want the context it had", info, err)
		}
	})
}

func TestSGLangIsAskedAgainAfterAFailure(t *testing.T) {
	t.Parallel()
	f := &fake{pages: with(sglang, map[string]string{"/server_info": "", "/model_info": "", "/get_server_info": sglang["/server_info"], "/get_model_info": `{"is_generation":false}`})}
	e := f.start(t, nil)
	if _, err := e.Prepare(engine.JobParams{Model: generator}); err == nil || !strings.Contains(err.Error(), "generates no text") {
		t.Errorf("text of an embedding model: %v", err)
	}
	models := f.pages["/v1/models"]
	f.pages["/v1/models"] = "<html>"
	if _, err := e.Probe(t.Context()); err == nil {
		t.Error("a probe of a page of HTML succeeded")
	}
	f.pages["/v1/models"], f.pages["/get_server_info"] = models, `{"version":"0.6.0"}`
	info, err := e.Probe(t.Context())
	if err != nil || info.Version != "0.6.0" || f.calls.Load() != 2 {
		t.Errorf("got %+v, %v after %d questions", info, err, f.calls.Load())
	}
	checkWarnings(t, prepared(t, e, engine.JobParams{Model: rowmill.Model{ID: "m", Kind: rowmill.KindEmbedding}}), nil)
}

// The settings of SGLang show if it ignores seeds (seen: 0.5.23).
func TestSGLangIgnoresSeeds(t *testing.T) {
	t.Parallel()
	seeded := engine.JobParams{Model: generator, Sampling: map[string]any{"seed": int64(7)}}
	for said, want := range map[string][]string{
		`"enable_deterministic_inference":false`: {"the server ignores seeds"},
		`"enable_deterministic_inference":true`:  nil,
		`"dp_size":1`:                            nil, // an old release
	} {
		f := &fake{pages: with(sglang, map[string]string{"/server_info": `{"version":"0.5.23","reasoning_parser":"qwen3",` + said + `}`})}
		e := f.start(t, nil)
		checkWarnings(t, prepared(t, e, seeded), want)
		checkWarnings(t, prepared(t, e, engine.JobParams{Model: generator, RowSeeds: true}), want)
		checkWarnings(t, prepared(t, e, engine.JobParams{Model: generator}), nil)
	}
}

// The first answer shows that a server has no reasoning parser.
func TestMissingParserIsNoticed(t *testing.T) {
	t.Parallel()
	content := `hm</think>yes`
	f := &fake{pages: vllmNew, chat: func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, strings.Replace(good, "fine", content, 1))
	}}
	e := f.start(t, nil)
	params := engine.JobParams{Model: rowmill.Model{ID: "m", Kind: rowmill.KindReasoning}}
	call := prepared(t, e, params)
	checkWarnings(t, call, nil)
	for range 2 {
		if reply, err := call.Generate(t.Context(), engine.Row{Text: []byte("x")}); err != nil || reply.Content != "yes" || reply.Reasoning != "hm" {
			t.Fatalf("got %+v, %v", reply, err)
		}
	}
	checkWarnings(t, prepared(t, e, params), []string{"start it with --reasoning-parser"})
}

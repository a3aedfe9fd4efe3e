package openai

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/engine"
	"github.com/rowmill/rowmill/internal/must"
)

// A countingServer is a server of a kind with additional pages that count prompts.
type countingServer struct {
	kind   map[string]string // pages that identify it
	counts map[string]string // replies by path: a status of 3 digits, a space, a body
	server string            // header Server

	mu   sync.Mutex
	got  []string // requested counting paths
	body any      // body of the last request
}

func (s *countingServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if reply, ok := s.counts[r.URL.Path]; ok && r.Method == http.MethodPost {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.got = append(s.got, r.URL.Path)
		s.body = nil
		_ = json.NewDecoder(r.Body).Decode(&s.body)
		if reply == hangs {
			s.mu.Unlock()
			<-r.Context().Done()
			s.mu.Lock()
			return
		}
		status, err := strconv.Atoi(reply[:3])
		if err != nil {
			panic(err)
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, reply[4:])
		return
	}
	(&fake{server: s.server, pages: s.kind}).ServeHTTP(w, r)
}

// hangs is a reply that never comes.
const hangs = "hangs"

func TestCountPrompt(t *testing.T) {
	t.Parallel()
	const (
		render, tokenize = "/v1/chat/completions/render", "/tokenize"
		tokens           = `200 {"count":5,"max_model_len":4096,"tokens":[1,2,3,4,5],"token_strs":null}`
		gate             = `403 {"error":{"message":"Scale-out endpoints are disabled.","type":"Forbidden","code":403}}`
		long             = `400 {"error":{"message":"This model's maximum context length is 4096 tokens.","type":"BadRequestError","code":400}}`
		messages         = `"messages":[{"role":"system","content":"be"},{"role":"user","content":"a \"b\""}]`
	)
	chat := engine.JobParams{
		Model: rowmill.Model{
			ID: "m", Kind: rowmill.KindGeneration,
			RequestExtras: map[string]any{"chat_template_kwargs": map[string]any{"enable_thinking": false}, "reasoning_effort": "low"},
		},
		System: "be", MaxTokens: 7,
	}
	harmonic := chat
	harmonic.Model.Template = "harmony"
	kwargs := `"chat_template_kwargs":{"enable_thinking":false,"reasoning_effort":"low"}`
	request := `{"model":"m",` + messages + `,"max_tokens":7,"chat_template_kwargs":{"enable_thinking":false},"reasoning_effort":"low"}`
	for name, c := range map[string]struct {
		server *countingServer
		params engine.JobParams
		want   int
		err    string   // of the last row
		asked  []string // for two rows
		body   string   // last body sent
	}{
		"vLLM": {
			server: &countingServer{kind: vllmNew, counts: map[string]string{tokenize: tokens, render: gate}},
			params: chat, want: 5, asked: []string{tokenize, tokenize}, body: `{"model":"m",` + messages + `,"add_generation_prompt":true,` + kwargs + `}`,
		},
		"vLLM renders gpt-oss": {
			server: &countingServer{kind: vllmNew, counts: map[string]string{tokenize: tokens, render: `200 {"request_id":"x","token_ids":[7,7,7],"sampling_params":{"n":1},"features":null}`}},
			params: harmonic, want: 3, asked: []string{render, render}, body: request,
		},
		"vLLM gates rendering": {
			server: &countingServer{kind: vllmNew, counts: map[string]string{tokenize: tokens, render: gate}},
			params: harmonic, want: 5, asked: []string{render, tokenize, tokenize},
		},
		"vLLM without rendering": {
			server: &countingServer{kind: vllmOld, counts: map[string]string{tokenize: tokens, render: `404 {"detail":"Not Found"}`}},
			params: harmonic, want: 5, asked: []string{render, tokenize, tokenize},
		},
		"vLLM renders in another form": {
			server: &countingServer{kind: vllmOld, counts: map[string]string{tokenize: tokens, render: `200 [[{"role":"user"}],[{"prompt_token_ids":[1]}]]`}},
			params: harmonic, want: 5, asked: []string{render, tokenize, tokenize},
		},
		"vLLM does not render a long prompt": {
			server: &countingServer{kind: vllmNew, counts: map[string]string{tokenize: tokens, render: long}},
			params: harmonic, want: 5, asked: []string{render, tokenize, render, tokenize},
		},
		"vLLM refuses a long prompt": {
			server: &countingServer{kind: vllmNew, counts: map[string]string{tokenize: gate, render: long}},
			params: chat, err: "maximum context length", asked: []string{tokenize, render, render},
		},
		"vLLM counts nothing": {
			server: &countingServer{kind: vllmNew, counts: map[string]string{tokenize: gate, render: gate}},
			params: chat, err: engine.ErrNoCounting.Error(), asked: []string{tokenize, render},
		},
		"a path that hangs": {
			server: &countingServer{kind: vllmNew, counts: map[string]string{tokenize: hangs, render: `200 {"token_ids":[7,7]}`}},
			params: chat, want: 2, asked: []string{tokenize, render, render},
		},
		"all paths hang": {
			server: &countingServer{kind: sglang, counts: map[string]string{tokenize: hangs}},
			params: chat, err: "does not count prompts now", asked: []string{tokenize},
		},
		"a path that breaks": {
			server: &countingServer{kind: vllmNew, counts: map[string]string{tokenize: `500 {}`, render: `200 {"token_ids":[7,7]}`}},
			params: chat, want: 2, asked: []string{tokenize, render, render},
		},
		"vLLM embeds": {
			server: &countingServer{kind: vllmNew, counts: map[string]string{tokenize: tokens}},
			params: engine.JobParams{Model: rowmill.Model{ID: "m", Kind: rowmill.KindEmbedding}},
			want:   5, asked: []string{tokenize, tokenize}, body: `{"model":"m","prompt":"a \"b\""}`,
		},
		"SGLang": {
			server: &countingServer{kind: sglang, counts: map[string]string{tokenize: tokens}},
			params: chat, want: 5, asked: []string{tokenize, tokenize}, body: `{"model":"m",` + messages + `,"add_generation_prompt":true,` + kwargs + `}`,
		},
		"SGLang that takes texts only": {
			server: &countingServer{kind: sglang, counts: map[string]string{tokenize: `400 {"object":"error","message":"body.prompt: Field required","type":"BadRequestError","code":400}`}},
			params: chat, err: engine.ErrNoCounting.Error(), asked: []string{tokenize},
		},
		"llama.cpp": {
			server: &countingServer{kind: llamaCpp, server: "llama.cpp", counts: map[string]string{"/v1/chat/completions/input_tokens": `200 {"input_tokens":9,"object":"response.input_tokens"}`}},
			params: engine.JobParams{Model: generator}, want: 9, asked: []string{"/v1/chat/completions/input_tokens", "/v1/chat/completions/input_tokens"},
		},
		"Ollama": {server: &countingServer{kind: ollama}, params: engine.JobParams{Model: generator}, err: engine.ErrNoCounting.Error()},
		"a server without counts": {
			server: &countingServer{kind: vllmNew, counts: map[string]string{render: `200 {}`, tokenize: `405 {}`}},
			params: chat, err: engine.ErrNoCounting.Error(), asked: []string{tokenize, render},
		},
		"a server in trouble": {
			server: &countingServer{kind: sglang, counts: map[string]string{tokenize: `503 {}`}},
			params: chat, err: "could not answer now", asked: []string{tokenize, tokenize},
		},
		"nonsense": {
			server: &countingServer{kind: sglang, counts: map[string]string{tokenize: `200 {"count":`}},
			params: chat, err: "ends inside its JSON", asked: []string{tokenize, tokenize},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(c.server)
			t.Cleanup(server.Close)
			patience := 30 * time.Second
			for _, reply := range c.server.counts {
				if reply == hangs {
					patience = 3 * time.Second
				}
			}
			counter := prepared(t, probed(t, Config{BaseURL: server.URL, ProbeTimeout: patience}), c.params).(engine.PromptCounter)
			var n int
			var err error
			for range 2 {
				n, err = counter.CountPrompt(t.Context(), engine.Row{Text: []byte(`a "b"`)})
			}
			switch {
			case c.err == "" && (err != nil || n != c.want):
				t.Errorf("counted %d, %v, want %d", n, err, c.want)
			case c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)):
				t.Errorf("error %v, want one containing %q", err, c.err)
			case c.err == engine.ErrNoCounting.Error() && !errors.Is(err, engine.ErrNoCounting):
				t.Errorf("error %#v is not ErrNoCounting", err)
			}
			c.server.mu.Lock() // a handler may still hang
			asked, body := c.server.got, c.server.body
			c.server.mu.Unlock()
			if diff := cmp.Diff(c.asked, asked); diff != "" {
				t.Errorf("asked (-want +got):\n%s", diff)
			}
			if c.body != "" {
				var want any
				must.Succeed(t, json.Unmarshal([]byte(c.body), &want))
				if diff := cmp.Diff(want, body); diff != "" {
					t.Errorf("sent (-want +got):\n%s", diff)
				}
			}
		})
	}
}

package openai

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/engine"
	"github.com/rowmill/rowmill/internal/must"
)

// pages serves fixed bodies by path; any other path is 404. A body that begins with a
// number and a space has that status.
func pages(t *testing.T, server string, bodies map[string]string) *Engine {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if server != "" {
			w.Header().Set("Server", server)
		}
		body, ok := bodies[r.URL.Path]
		switch {
		case !ok:
			w.WriteHeader(http.StatusNotFound)
		case strings.HasPrefix(body, "503 "):
			w.WriteHeader(http.StatusServiceUnavailable)
		case strings.HasPrefix(body, "401 "):
			w.WriteHeader(http.StatusUnauthorized)
		}
		_, _ = io.WriteString(w, body)
	}))
	t.Cleanup(s.Close)
	e := must.Get(New(Config{BaseURL: s.URL, Name: "here", ModelMap: map[string]string{"catalog-id": "m", "absent": "x"}}))(t)
	t.Cleanup(e.Close)
	return e
}

// Bytes that a server sends beyond the announced length do not become the answer to the
// next request.
func TestPageIgnoresExtraBytes(t *testing.T) {
	t.Parallel()
	const list = `{"data":[{"id":"m","owned_by":"vllm","max_model_len":4096}]}`
	var late atomic.Bool
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v1/models" || !late.CompareAndSwap(true, false) {
			_, _ = io.WriteString(w, list)
			return
		}
		c, stream, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer func() { _ = c.Close() }()
		half := len(list) / 2
		_, _ = fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", half, list[:half])
		if _, err := stream.Peek(1); err == nil { // the next request
			_, _ = io.WriteString(c, list[half:])
		}
	}))
	t.Cleanup(s.Close)
	e := probed(t, Config{BaseURL: s.URL})
	late.Store(true)
	if _, err := e.Probe(t.Context()); err == nil {
		t.Error("half a list was accepted")
	}
	if _, err := e.Probe(t.Context()); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

func TestProbe(t *testing.T) {
	t.Parallel()
	models := func(context int) []engine.ServedModel {
		return []engine.ServedModel{{Name: "m", ContextLength: context}, {Name: "catalog-id", ContextLength: context}}
	}
	vllm := `{"data":[{"id":"m","owned_by":"vllm","max_model_len":4096}]}`
	for name, c := range map[string]struct {
		server string
		pages  map[string]string
		want   engine.ServerInfo
		err    string
	}{
		"vLLM": {pages: map[string]string{"/v1/models": vllm, "/version": `{"version":"0.29"}`, "/health": ""}, want: engine.ServerInfo{Kind: "vllm", Version: "0.29", Models: models(4096)}},
		"vLLM under another owner": {
			pages: map[string]string{"/v1/models": strings.Replace(vllm, `"vllm"`, `"us"`, 1), "/version": `{"version":"0.29"}`},
			want:  engine.ServerInfo{Kind: "vllm", Version: "0.29", Models: models(4096)},
		},
		"SGLang": {pages: map[string]string{"/v1/models": strings.Replace(vllm, `"vllm"`, `"sglang"`, 1)}, want: engine.ServerInfo{Kind: "sglang", Models: models(4096)}},
		"llama.cpp": {
			server: "llama.cpp",
			pages: map[string]string{
				"/v1/models": `{"data":[{"id":"m","meta":{"n_ctx":8192}}]}`, "/health": "{}",
				"/props": `{"total_slots":4,"build_info":"b1","default_generation_settings":{"n_ctx":2048}}`,
			},
			want: engine.ServerInfo{Kind: "llama.cpp", Version: "b1", Slots: 4, Models: models(2048)},
		},
		"llama.cpp without properties": {
			server: "llama.cpp", pages: map[string]string{"/v1/models": `{"data":[{"id":"m","meta":{"n_ctx":8192}}]}`},
			want: engine.ServerInfo{Kind: "llama.cpp", Models: models(8192)},
		},
		"Ollama": {
			pages: map[string]string{"/v1/models": `{"data":[{"id":"m","owned_by":"library"}]}`, "/": "Ollama is running", "/api/version": `{"version":"0.14"}`},
			want:  engine.ServerInfo{Kind: "ollama", Version: "0.14", Models: models(0)},
		},
		"ours": {
			server: "rowmill-sim",
			pages:  map[string]string{"/v1/models": `{"simulated":true,"slots":256,"data":[{"id":"m","max_model_len":100}]}`, "/version": `{"version":"1"}`},
			want:   engine.ServerInfo{Kind: "rowmill-sim", Version: "1", Simulated: true, Slots: 256, Models: models(100)},
		},
		"a simulated model": {
			pages: map[string]string{"/v1/models": `{"data":[{"id":"m","simulated":true}]}`},
			want:  engine.ServerInfo{Kind: "openai", Simulated: true, Models: models(0)},
		},
		"something else": {pages: map[string]string{"/v1/models": `{"data":[{"id":"m"}]}`}, want: engine.ServerInfo{Kind: "openai", Models: models(0)}},
		"numbers with a point": { // transformers serve 5.19
			pages: map[string]string{"/v1/models": `{"object":"list","data":[{"id":"m","object":"model","created":1795432100.2034,"owned_by":"us"}]}`},
			want:  engine.ServerInfo{Kind: "openai", Models: models(0)},
		},
		"nulls and missing members": {
			pages: map[string]string{"/v1/models": `{"object":null,"slots":null,"data":[{"id":"m","created":null,"owned_by":null,"max_model_len":null,"meta":null},{"object":"model"},{"id":null},null]}`},
			want:  engine.ServerInfo{Kind: "openai", Models: models(0)},
		},
		"members of other types": {
			pages: map[string]string{"/v1/models": `{"simulated":"no","slots":"8","data":[{"id":"m","created":"today","owned_by":["us"],"max_model_len":4096.0,"meta":[1]},{"id":7},"m",[]]}`},
			want:  engine.ServerInfo{Kind: "openai", Models: models(4096)},
		},
		"no models yet": {pages: map[string]string{"/v1/models": `{"data":[]}`}, want: engine.ServerInfo{Kind: "openai"}},
		"not ready":     {pages: map[string]string{"/v1/models": vllm, "/health": "503 dead"}, err: "probe here: the server is not ready"},
		"no key":        {pages: map[string]string{"/v1/models": "401 no"}, err: "refuses our API key (HTTP 401)"},
		"no JSON":       {pages: map[string]string{"/v1/models": "<html>"}, err: "is this an OpenAI-compatible server?"},
		"nothing there": {err: "/v1/models answered HTTP 404"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := pages(t, c.server, c.pages)
			got, err := e.Probe(t.Context())
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Errorf("got %v, want %q", err, c.err)
				}
				if _, err := e.Prepare(engine.JobParams{Model: generator}); err == nil || !strings.Contains(err.Error(), "has not been probed") {
					t.Errorf("prepare after a failed probe: %v", err)
				}
				return
			}
			must.Succeed(t, err)
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("want (-), got (+):\n%s", diff)
			}
		})
	}
}

func TestRequestExtras(t *testing.T) {
	t.Parallel()
	off := map[string]any{"chat_template_kwargs": map[string]any{"enable_thinking": false}}
	for _, c := range []struct {
		kind   string
		extras map[string]any
		want   string
	}{
		{"vllm", off, `,"chat_template_kwargs":{"enable_thinking":false}`},
		{"ollama", off, `,"reasoning_effort":"none"`},
		{"ollama", map[string]any{"chat_template_kwargs": map[string]any{"enable_thinking": true}}, ``},
		{"vllm", map[string]any{"stream": true}, "error: must not set stream"},
		{"llama.cpp", map[string]any{"stream_options": map[string]any{}}, "error: must not set stream_options"},
		{"vllm", map[string]any{"x": make(chan int)}, "error: field x cannot be written"},
	} {
		e := unprobed(t, Config{BaseURL: "http://127.0.0.1:1"})
		e.storeProbe(engine.ServerInfo{Kind: c.kind, Models: []engine.ServedModel{{Name: "m"}}}, probeFacts{})
		m := generator
		m.RequestExtras = c.extras
		got, err := e.Prepare(engine.JobParams{Model: m})
		if want, isError := strings.CutPrefix(c.want, "error: "); isError {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s %v: %v", c.kind, c.extras, err)
			}
		} else if err != nil || string(got.(*preparedCall).trailer.Load().middle) != `"}]`+c.want {
			t.Errorf("%s %v: %v", c.kind, c.extras, err)
		}
	}
}

func TestPrepareKinds(t *testing.T) {
	t.Parallel()
	e := unprobed(t, Config{BaseURL: "http://127.0.0.1:1", ModelMap: map[string]string{"catalog": "m", "gone": "x"}})
	if _, err := e.Prepare(engine.JobParams{Model: embedder, System: "x"}); err == nil {
		t.Error("an embedding model took a system prompt")
	}
	c := prepared(t, e, engine.JobParams{Model: embedder, Sampling: map[string]any{"top_p": 1.0, "temperature": 0.5}})
	if want := []string{
		"temperature is ignored: an embedding model generates no text", "top_p is ignored: an embedding model generates no text",
	}; !cmp.Equal(c.Warnings(), want) {
		t.Errorf("warnings %v", c.Warnings())
	}
	var fault *engine.Error
	if _, err := c.Generate(t.Context(), engine.Row{}); !errors.As(err, &fault) || fault.Class != engine.JobFault {
		t.Errorf("text from an embedding model: %v", err)
	}
	if _, _, err := prepared(t, e, engine.JobParams{Model: rowmill.Model{ID: "catalog"}}).Embed(t.Context(), nil); !errors.As(err, &fault) || fault.Class != engine.JobFault {
		t.Errorf("embeddings of a text model: %v", err)
	}
	for _, id := range []string{"other", "gone"} {
		if _, err := e.Prepare(engine.JobParams{Model: rowmill.Model{ID: id}}); err == nil || !strings.Contains(err.Error(), "does not serve "+id) {
			t.Errorf("%s, which is not served: %v", id, err)
		}
	}
}

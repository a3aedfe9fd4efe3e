package discover_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/rowmill/rowmill/engine"
	"github.com/rowmill/rowmill/engine/discover"
	"github.com/rowmill/rowmill/engine/openai"
	"github.com/rowmill/rowmill/internal/must"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// open returns a real adapter without a key, as Open requires.
func open(baseURL string) (engine.Engine, error) {
	return openai.New(openai.Config{BaseURL: baseURL})
}

// waitTimeout is how long a test waits for a server that answers: longer than a machine
// may pause.
const waitTimeout = 30 * time.Second

// pages answers each path with a text; every other path is 404.
type pages map[string]string

// hangs reports whether a server leaves some request without an answer.
func hangs(h http.Handler) bool {
	p, _ := h.(pages)
	return slices.Contains(slices.Collect(maps.Values(p)), "hang")
}

func (p pages) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	text, known := p[r.URL.Path]
	if !known {
		http.NotFound(w, r)
		return
	}
	if text == "hang" {
		<-r.Context().Done()
		return
	}
	_, _ = io.WriteString(w, text)
}

// always gives the same answer to every request.
func always(text string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, text) })
}

// named sets the header Server.
func named(name string, h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Server", name)
		h.ServeHTTP(w, r)
	})
}

var (
	vllm = pages{
		"/v1/models": `{"object":"list","data":[{"id":"Qwen/Qwen3-8B","object":"model","owned_by":"vllm","max_model_len":32768}]}`,
		"/version":   `{"version":"0.11.0"}`, "/health": "",
	}
	sglang = pages{
		"/v1/models": `{"object":"list","data":[{"id":"google/gemma-3-12b-it","object":"model","owned_by":"sglang","max_model_len":8192}]}`,
		"/health":    "",
	}
	llama = named("llama.cpp", pages{
		"/v1/models": `{"object":"list","data":[{"id":"llama-3.1-8b","owned_by":"llamacpp","meta":{"n_ctx":4096}}]}`,
		"/props":     `{"total_slots":4,"build_info":"b6500-abc","default_generation_settings":{"n_ctx":4096}}`,
		"/health":    `{"status":"ok"}`,
	})
	ollama = pages{
		"/":            "Ollama is running",
		"/v1/models":   `{"object":"list","data":[{"id":"gemma3:12b","object":"model","owned_by":"library"}]}`,
		"/api/version": `{"version":"0.12.3"}`,
	}
	simulated = named("rowmill-sim", pages{
		"/v1/models": `{"object":"list","simulated":true,"slots":8,"data":[{"id":"llama-3.1-8b","owned_by":"rowmill-sim","max_model_len":8192}]}`,
		"/version":   `{"version":"1"}`, "/health": "",
	})
)

func TestLook(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		server http.Handler
		kind   string // empty if it is not an inference server
		model  string
		logs   string
	}{
		{"vLLM", vllm, "vllm", "Qwen/Qwen3-8B", ""},
		{"SGLang", sglang, "sglang", "google/gemma-3-12b-it", ""},
		{"llama.cpp", llama, "llama.cpp", "llama-3.1-8b", ""},
		{"Ollama", ollama, "ollama", "gemma3:12b", ""},
		{"simulated", simulated, "rowmill-sim", "llama-3.1-8b", ""},
		{"Ollama without a model", pages{"/": "Ollama is running", "/v1/models": `{"object":"list","data":null}`}, "", "", "serves no model yet"},
		{"vLLM whose engine has died", pages{"/v1/models": vllm["/v1/models"], "/health": "hang"}, "", "", ""},
		{"web server with a page for everything", always("<!doctype html><title>It works!</title>"), "", "", ""},
		{"web server with JSON for everything", always(`{}`), "", "", ""},
		{"list for everything", always(`{"data":[{"id":"golf"},{"id":"polo"}]}`), "", "", "name it with --engine"},
		{"words for everything", always(`"ok"`), "", "", ""},
		{"nothing but 404", http.NotFoundHandler(), "", "", ""},
		{"wants a password", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) }), "", "", ""},
		{"redirects", http.RedirectHandler("http://example.invalid/", http.StatusFound), "", "", ""},
		{"hangs", pages{"/v1/models": "hang"}, "", "", ""},
		{
			// If a node listed its models, it would look like vLLM.
			"Rowmill",
			pages{
				"/v1/models": `{"object":"list","data":[{"id":"llama-3.1-8b","owned_by":"rowmill","max_model_len":8192}]}`,
				"/version":   `{"version":"1.2.3","commit":"","built":"","go":"go1.26.8"}`, "/health": "",
			},
			"", "", "is a Rowmill node",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			var mu sync.Mutex
			var keys []string
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				mu.Lock()
				keys = append(keys, r.Header["Authorization"]...)
				mu.Unlock()
				test.server.ServeHTTP(w, r)
			}))
			defer server.Close()
			address := strings.TrimPrefix(server.URL, "http://")
			var logs bytes.Buffer
			timeout := waitTimeout
			if hangs(test.server) {
				timeout = 500 * time.Millisecond
			}
			f := must.Get(discover.New(discover.Config{
				Addresses: []string{address}, Timeout: timeout, Open: open,
				Logger: slog.New(slog.NewTextHandler(&logs, nil)),
			}))(t)
			defer f.Close()
			found := f.ProbePending(t.Context())
			again := f.ProbePending(t.Context())
			if len(again) > 0 {
				t.Errorf("found a second time: %+v", again)
			}
			if strings.Count(logs.String(), "\n") > 1 || !strings.Contains(logs.String(), test.logs) {
				t.Errorf("logged, want %q once:\n%s", test.logs, logs.String())
			}
			mu.Lock()
			if len(keys) > 0 {
				t.Errorf("a key was sent: %q", keys)
			}
			mu.Unlock()
			if test.kind == "" {
				if len(found) > 0 || !slices.Equal(f.PendingAddresses(), []string{address}) {
					t.Errorf("found %+v, waiting for %v", found, f.PendingAddresses())
				}
				return
			}
			if len(found) != 1 || len(f.PendingAddresses()) > 0 {
				t.Fatalf("found %+v, waiting for %v", found, f.PendingAddresses())
			}
			defer found[0].Engine.Close()
			info := found[0].Info
			if found[0].Address != address || found[0].Engine.Name() != address || info.Kind != test.kind || info.Models[0].Name != test.model {
				t.Errorf("found %+v, want %s with %s", found[0], test.kind, test.model)
			}
		})
	}
}

// ProbePending asks all servers at once: none of these servers answers before all were
// asked. The result has the order of the addresses.
func TestLookAsksAllAtOnce(t *testing.T) {
	t.Parallel()
	handlers := []http.Handler{always("<html>"), ollama, http.NotFoundHandler(), vllm}
	var wg atomic.Int32
	all := make(chan struct{})
	var addresses []string
	for _, h := range handlers {
		var first sync.Once
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			first.Do(func() {
				if wg.Add(1) == int32(len(handlers)) {
					close(all)
				}
			})
			select {
			case <-all:
				h.ServeHTTP(w, r)
			case <-r.Context().Done():
			}
		}))
		defer server.Close()
		addresses = append(addresses, server.Listener.Addr().String())
	}
	f := must.Get(discover.New(discover.Config{Addresses: addresses, Timeout: waitTimeout, Open: open}))(t)
	defer f.Close()
	var kinds []string
	for _, found := range f.ProbePending(t.Context()) {
		kinds = append(kinds, found.Info.Kind)
		found.Engine.Close()
	}
	if want := []string{"ollama", "vllm"}; !slices.Equal(kinds, want) {
		t.Errorf("found %v, want %v", kinds, want)
	}
}

// After a server vanished, another one may use its address. Then the engine's Probe
// decides: another model is accepted; simulated outputs in place of real ones, or a web
// server, are errors.
func TestAnotherServerAtTheSameAddress(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var now http.Handler = vllm
	become := func(h http.Handler) {
		mu.Lock()
		defer mu.Unlock()
		now = h
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		h := now
		mu.Unlock()
		h.ServeHTTP(w, r)
	}))
	defer server.Close()
	f := must.Get(discover.New(discover.Config{Addresses: []string{server.Listener.Addr().String()}, Open: open}))(t)
	found := f.ProbePending(t.Context())
	if len(found) != 1 {
		t.Fatalf("found %+v", found)
	}
	e := found[0].Engine
	defer e.Close()
	for _, step := range []struct {
		server http.Handler
		kind   string
		err    string
	}{
		{always("<html>"), "", "not the JSON expected"},
		{sglang, "sglang", ""},
		{simulated, "", "is a simulated server now"},
		{llama, "llama.cpp", ""},
	} {
		become(step.server)
		info, err := e.Probe(t.Context())
		if info.Kind != step.kind || step.err == "" && err != nil || step.err != "" && (err == nil || !strings.Contains(err.Error(), step.err)) {
			t.Errorf("%+v, error %v, want %q, %q", info, err, step.kind, step.err)
		}
		if again := f.ProbePending(t.Context()); len(again) > 0 {
			t.Errorf("found a second time: %+v", again)
		}
	}
}

// A fake is an engine with a server that starts at a given time.
type fake struct {
	engine.Engine
	name   string
	up     time.Time // zero for never
	hang   bool
	mu     sync.Mutex
	probes []time.Duration // since the beginning
	from   time.Time
}

func (e *fake) Name() string { return e.name }
func (e *fake) Close()       {}

func (e *fake) Probe(ctx context.Context) (engine.ServerInfo, error) {
	e.mu.Lock()
	e.probes = append(e.probes, time.Since(e.from))
	e.mu.Unlock()
	if e.hang {
		<-ctx.Done()
		return engine.ServerInfo{}, ctx.Err()
	}
	if e.up.IsZero() || time.Now().Before(e.up) {
		return engine.ServerInfo{}, errors.New("connection refused")
	}
	return engine.ServerInfo{Kind: "vllm", Models: []engine.ServedModel{{Name: "m"}}}, nil
}

// notNode answers like a server without the page /version.
type notNode struct{}

func (notNode) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusNotFound, Body: http.NoBody}, nil
}

// Run probes in intervals, reports each server once, does not probe a found server
// again, and does not let one address delay another.
func TestRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		fakes := map[string]*fake{
			"http://here:1":  {name: "here", up: began},
			"http://later:2": {name: "later", up: began.Add(12 * time.Second)},
			"http://never:3": {name: "never"},
			"http://hangs:4": {name: "hangs", hang: true},
		}
		f := must.Get(discover.New(discover.Config{
			Addresses: []string{"here:1", "later:2", "never:3", "hangs:4"},
			Transport: notNode{},
			Open: func(baseURL string) (engine.Engine, error) {
				fakes[baseURL].from = began
				return fakes[baseURL], nil
			},
		}))(t)
		defer f.Close()
		ctx, cancel := context.WithTimeout(t.Context(), 31*time.Second)
		defer cancel()
		var got []string
		f.Run(ctx, func(found discover.FoundServer) {
			got = append(got, fmt.Sprint(found.Engine.Name(), " ", time.Since(began)))
		})
		// A probe of the address that hangs takes 1 s.
		if want := []string{"here 6s", "later 16s"}; !slices.Equal(got, want) {
			t.Errorf("found %v, want %v", got, want)
		}
		for url, want := range map[string]int{"http://here:1": 1, "http://later:2": 3, "http://never:3": 6, "http://hangs:4": 6} {
			if probes := fakes[url].probes; len(probes) != want {
				t.Errorf("%s was asked %d times, want %d: %v", url, len(probes), want, probes)
			}
		}
		if time.Since(began) != 31*time.Second {
			t.Errorf("Run returned after %v", time.Since(began))
		}
	})
}

func TestRunEndsWhenAllAreFound(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := &fake{name: "here", up: time.Now()}
		f := must.Get(discover.New(discover.Config{
			Addresses: []string{"here:1"}, Transport: notNode{},
			Open: func(string) (engine.Engine, error) { return e, nil },
		}))(t)
		count := 0
		f.Run(t.Context(), func(discover.FoundServer) { count++ })
		if count != 1 {
			t.Errorf("found %d times", count)
		}
	})
}

func TestConfig(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		cfg  discover.Config
		want string
	}{
		{discover.Config{}, "Open is missing"},
		{discover.Config{Open: open}, ""},
		{discover.Config{Open: open, Addresses: []string{"127.0.0.1"}}, `Addresses[0] must be HOST:PORT, is "127.0.0.1"`},
		{discover.Config{Open: open, Addresses: []string{"a:1", "a:1"}}, "Addresses[1]: a:1 is listed twice"},
		{discover.Config{Open: open, Interval: -1}, "Interval"},
		{discover.Config{Open: open, Addresses: []string{"a:b"}}, "discover: a:b:"},
	} {
		_, err := discover.New(test.cfg)
		if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%+v: error %v, want %q", test.cfg, err, test.want)
		}
	}
	for _, address := range discover.DefaultAddresses() {
		if host, _, err := net.SplitHostPort(address); err != nil || host != "127.0.0.1" {
			t.Errorf("default address %s is not on this machine", address)
		}
	}
}

package sim

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/internal/must"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// testModels are one model of each kind.
func testModels() []rowmill.Model {
	return []rowmill.Model{
		{ID: "plain", Kind: rowmill.KindGeneration, ContextLength: 4096, EngineNames: []string{"org/Plain-8B"}},
		{ID: "thinker", Kind: rowmill.KindReasoning, ContextLength: 4096},
		{ID: "embedder", Kind: rowmill.KindEmbedding, ContextLength: 512, Dimension: 64},
	}
}

// client talks to a simulator.
type client struct {
	t    testing.TB
	base string
	http *http.Client
	sim  *Server
}

func newSim(t testing.TB, c Config) *Server {
	t.Helper()
	if c.Models == nil {
		c.Models = testModels()
	}
	if c.Profile == (LatencyProfile{}) {
		c.Profile = InstantProfile()
	}
	s := must.Get(New(c))(t)
	return s
}

// start serves a simulator through Start.
func start(t testing.TB, c Config) *client {
	t.Helper()
	s := newSim(t, c)
	must.Succeed(t, s.Start(context.Background(), "127.0.0.1:0"))
	return connect(t, s, s.URL())
}

func connect(t testing.TB, s *Server, base string) *client {
	transport := &http.Transport{}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := s.Stop(ctx); err != nil {
			t.Error(err)
		}
	})
	return &client{t: t, base: base, http: &http.Client{Transport: transport}, sim: s}
}

// reply is a whole HTTP answer.
type reply struct {
	status int
	header http.Header
	body   []byte
	err    error // of reading the body
}

// traceparent is that of all requests.
const traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

func (c *client) send(ctx context.Context, method, path, body string) (reply, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, strings.NewReader(body))
	must.Succeed(c.t, err)
	req.Header.Set("Traceparent", traceparent)
	res, err := c.http.Do(req)
	if err != nil {
		return reply{}, err
	}
	defer func() { _ = res.Body.Close() }()
	data, err := io.ReadAll(res.Body)
	return reply{res.StatusCode, res.Header, data, err}, nil
}

// background sends a chat completion while the test goes on. The channel gets the reply.
func (c *client) background(ctx context.Context, body string) <-chan reply {
	ended := make(chan reply, 1)
	go func() {
		r, err := c.send(ctx, "POST", chatPath, body)
		r.err = errors.Join(r.err, err)
		ended <- r
	}()
	return ended
}

// stop stops the simulator.
func (c *client) stop() {
	c.t.Helper()
	if err := c.sim.Stop(context.Background()); err != nil {
		c.t.Error(err)
	}
}

func (c *client) must(method, path, body string) reply {
	c.t.Helper()
	r := must.Get(c.send(context.Background(), method, path, body))(c.t)
	if r.err != nil {
		c.t.Fatal(r.err)
	}
	return r
}

// completion is what tests read of an answer.
type completion struct {
	ID        string `json:"id"`
	Model     string `json:"model"`
	Simulated bool   `json:"simulated"`
	Choices   []struct {
		Message struct {
			Role      string  `json:"role"`
			Content   *string `json:"content"`
			Reasoning string  `json:"reasoning_content"`
		} `json:"message"`
		Delta struct {
			Role      string `json:"role"`
			Content   string `json:"content"`
			Reasoning string `json:"reasoning_content"`
		} `json:"delta"`
		Logprobs *struct {
			Content []entry `json:"content"`
		} `json:"logprobs"`
		Finish     *string `json:"finish_reason"`
		StopReason any     `json:"stop_reason"`
	} `json:"choices"`
	Usage *struct {
		Prompt     int `json:"prompt_tokens"`
		Completion int `json:"completion_tokens"`
		Total      int `json:"total_tokens"`
		Details    struct {
			Reasoning int `json:"reasoning_tokens"`
		} `json:"completion_tokens_details"`
		PromptDetails struct {
			Cached int `json:"cached_tokens"`
		} `json:"prompt_tokens_details"`
	} `json:"usage"`
}

type entry struct {
	Token   string  `json:"token"`
	Logprob float64 `json:"logprob"`
	Bytes   []int   `json:"bytes"`
	Top     []entry `json:"top_logprobs"`
}

func (c completion) content() string {
	if c.Choices[0].Message.Content == nil {
		return ""
	}
	return *c.Choices[0].Message.Content
}

func (c completion) finish() string {
	if c.Choices[0].Finish == nil {
		return ""
	}
	return *c.Choices[0].Finish
}

// body builds a request with a user message and further fields.
func body(model, prompt string, fields ...any) string {
	m := map[string]any{"model": model, "messages": []any{map[string]any{"role": "user", "content": prompt}}}
	for i := 0; i < len(fields); i += 2 {
		m[fields[i].(string)] = fields[i+1]
	}
	data, err := json.Marshal(m)
	if err != nil {
		panic(err)
	}
	return string(data)
}

const chatPath = "/v1/chat/completions"

func (c *client) complete(body string) completion {
	c.t.Helper()
	r := c.must("POST", chatPath, body)
	if r.status != http.StatusOK {
		c.t.Fatalf("status %d: %s", r.status, r.body)
	}
	return decode[completion](c.t, r.body)
}

func decode[T any](t testing.TB, data []byte) T {
	t.Helper()
	var value T
	if err := json.Unmarshal(data, &value); err != nil {
		t.Fatalf("%v in %s", err, data)
	}
	return value
}

// problem is an error body.
type problem struct {
	Error struct {
		Message string  `json:"message"`
		Type    string  `json:"type"`
		Param   *string `json:"param"`
		Code    int     `json:"code"`
	} `json:"error"`
}

// refused sends a body that must be refused.
func (c *client) refused(path, body string, status int) problem {
	c.t.Helper()
	r := c.must("POST", path, body)
	if r.status != status {
		c.t.Fatalf("status %d, want %d: %s", r.status, status, r.body)
	}
	p := decode[problem](c.t, r.body)
	if p.Error.Code != status || p.Error.Message == "" || p.Error.Type == "" {
		c.t.Errorf("error body %s", r.body)
	}
	return p
}

// count asks /tokenize for the length of a text.
func (c *client) count(text string) int {
	c.t.Helper()
	data, _ := json.Marshal(map[string]string{"model": "plain", "prompt": text})
	r := c.must("POST", "/tokenize", string(data))
	return decode[struct{ Count int }](c.t, r.body).Count
}

// events splits a stream into its data lines.
func events(t testing.TB, stream []byte) (chunks []completion, done bool) {
	t.Helper()
	for event := range bytes.SplitSeq(stream, []byte("\n\n")) {
		data, ok := bytes.CutPrefix(event, []byte("data: "))
		switch {
		case !ok && len(event) > 0:
			t.Fatalf("event %q", event)
		case string(data) == "[DONE]":
			done = true
		case ok:
			chunks = append(chunks, decode[completion](t, data))
		}
	}
	return chunks, done
}

// eventually polls for what another goroutine does soon.
func eventually(t testing.TB, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !condition(); {
		if time.Now().After(deadline) {
			t.Fatalf("never happened: %s", what)
		}
		time.Sleep(time.Millisecond)
	}
}

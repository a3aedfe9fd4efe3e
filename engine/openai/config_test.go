package openai

import (
	"net"
	"strings"
	"testing"
	"time"

	"github.com/rowmill/rowmill/internal/must"
)

func TestConfig(t *testing.T) {
	t.Parallel()
	for want, cfg := range map[string]Config{
		"BaseURL must begin with http":  {BaseURL: "localhost:80"},
		"BaseURL is not a URL":          {BaseURL: "http://a b"},
		"BaseURL has no host":           {BaseURL: "http://"},
		"BaseURL must not have a query": {BaseURL: "http://a?b"},
		"use APIKey":                    {BaseURL: "http://a:b@c"},
		"APIKey contains a line break":  {BaseURL: "http://a", APIKey: "k\n"},
		"TokenTime must be a positive":  {BaseURL: "http://a", TokenTime: -1},
		"MaxIdleConns must be at least": {BaseURL: "http://a", MaxIdleConns: -1},
		"MaxHeaderBytes must be at":     {BaseURL: "http://a", MaxHeaderBytes: 10},
	} {
		if _, err := New(cfg); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "a:b@c") {
			t.Errorf("%v, want %q", err, want)
		}
	}
	for url, want := range map[string]string{
		"http://127.0.0.1:8000":       "POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:8000\r\n",
		"http://127.0.0.1:8000/v1/":   "POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:8000\r\n",
		"https://gpu.example/team/v1": "POST /team/v1/chat/completions HTTP/1.1\r\nHost: gpu.example\r\n",
	} {
		e := must.Get(New(Config{BaseURL: url}))(t)
		if !strings.HasPrefix(string(e.chatHead), want) {
			t.Errorf("%s: %q", url, e.chatHead)
		}
	}
}

func TestRetryAfter(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 21, 8, 0, 0, 0, time.UTC)
	for value, want := range map[string]time.Duration{
		"": 0, "7": 7 * time.Second, " 0.5 ": 500 * time.Millisecond, "-1": 0, "NaN": 0, "soon": 0, "1e30": time.Minute,
		"Sat, 21 Nov 2026 08:00:30 GMT": 30 * time.Second, "Sat, 21 Nov 2026 07:00:00 GMT": 0, "Sun, 21 Nov 2027 08:00:30 GMT": time.Minute,
	} {
		if got := parseRetryAfter(value, now); got != want {
			t.Errorf("%q: %v, want %v", value, got, want)
		}
	}
}

// The pool respects its limits on the number and the age of connections.
func TestPool(t *testing.T) {
	t.Parallel()
	cfg := Config{BaseURL: "http://127.0.0.1:1", IdleTimeout: time.Minute, MaxIdleConns: 2}
	e := must.Get(New(cfg))(t)
	t.Cleanup(e.Close)
	var conns []*pipe
	for range 3 {
		p := &pipe{}
		conns = append(conns, p)
		e.pool.put(&conn{Conn: p})
	}
	if !conns[2].closed || conns[0].closed || conns[1].closed {
		t.Error("the third of two connections was kept")
	}
	if c := e.pool.get(); c.Conn != conns[1] {
		t.Error("the connection used last is not the next one")
	}
	e.pool.mu.Lock()
	e.pool.idle[0].idleSince = time.Now().Add(-time.Hour)
	e.pool.mu.Unlock()
	e.pool.reap()
	if !conns[0].closed || e.pool.get() != nil {
		t.Error("an old connection was kept")
	}
	e.Close()
	late := &pipe{}
	e.pool.put(&conn{Conn: late})
	if !late.closed {
		t.Error("a connection came back after Close and was kept")
	}
}

// TestShown checks that redactedMessage returns a message unless it repeats private text.
func TestShown(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		message, private string
		left             bool
	}{
		{"top_p must be below 1", "tell me about top_p", false},
		{"cannot parse: tell me about the secret plan", "please tell me about the secret plan of mine", true},
		{"bad word: hunter2", "hunter2", true},
		{"no", "no", false},
		{"cannot parse: my name\nis John\nI live\nin Rome", "my name\nis John\nI live\nin Rome", true},
		{"cannot parse: my name is John I live in Rome", "my name\n\tis John\nI live\nin Rome", true},
		{`input_value='my name\nis John\nI live\nin Rome'`, "my name\nis John\nI live\nin Rome", true},
		{"anything", "", false},
	} {
		got := serverFault{message: c.message}.redactedMessage([]byte(c.private))
		if left := got == "its message repeats the prompt and is left out"; left != c.left {
			t.Errorf("%q with prompt %q: shown as %q", c.message, c.private, got)
		}
	}
}

// pipe is a connection that records its close.
type pipe struct {
	net.Conn
	closed bool
}

func (p *pipe) Close() error {
	p.closed = true
	return nil
}

package peer_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/rowmill/rowmill/cluster/peer"
	"github.com/rowmill/rowmill/internal/wait"
)

func TestAsk(t *testing.T) {
	t.Parallel()
	var got peer.Envelope
	_, addr := listen(t, peer.Config{}, func(_ context.Context, e peer.Envelope) (any, error) {
		got = e
		return map[string]int{"rows": 7}, nil
	})
	var reply struct{ Rows int }
	sent := peer.Envelope{From: "node-1", Kind: "adopt_shard", Job: "job-9", Epoch: 3, Body: json.RawMessage(`{"shard":2}`)}
	if err := ask(t, newClient(t, peer.Config{}), addr, sent, &reply); err != nil {
		t.Fatal(err)
	}
	if reply.Rows != 7 {
		t.Errorf("reply %+v, want 7 rows", reply)
	}
	if got.Protocol != peer.Protocol || got.From != "node-1" || got.Kind != "adopt_shard" || got.Job != "job-9" || got.Epoch != 3 || string(got.Body) != `{"shard":2}` {
		t.Errorf("the handler got %+v, %s", got, got.Body)
	}
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	cfg := peer.Config{MaxBody: 2000, Logger: slog.New(slog.NewTextHandler(&log, nil))}
	server, addr := listen(t, cfg, nil)
	client := newClient(t, peer.Config{MaxBody: 4000})
	wantCode(t, ask(t, client, addr, peer.Envelope{Kind: "hello"}, nil), peer.CodeStarting)

	server.Serve(func(_ context.Context, e peer.Envelope) (any, error) {
		switch e.Kind {
		case "stale":
			return nil, fmt.Errorf("adopt: %w", &peer.Refusal{Code: "stale_epoch", Message: "epoch 4 is known"})
		case "fails":
			return nil, errors.New("disk on fire")
		case "panics":
			panic("nil map")
		case "talks":
			return strings.Repeat("x", 2000), nil
		case "unreadable":
			return func() {}, nil
		}
		return nil, &peer.Refusal{Code: peer.CodeUnknownKind, Message: e.Kind}
	})
	for _, test := range []struct{ kind, code string }{
		{"stale", "stale_epoch"},
		{"fails", peer.CodeInternal},
		{"panics", peer.CodeInternal},
		{"talks", peer.CodeInternal},
		{"unreadable", peer.CodeInternal},
		{"never_heard_of", peer.CodeUnknownKind},
		{"No Kind", peer.CodeInvalid},
		{"", peer.CodeInvalid},
	} {
		err := ask(t, client, addr, peer.Envelope{Kind: test.kind}, nil)
		wantCode(t, err, test.code)
		if strings.Contains(err.Error(), "on fire") {
			t.Errorf("%s: the inner error travels: %v", test.kind, err)
		}
	}
	wantCode(t, ask(t, client, addr, peer.Envelope{Kind: "fails", Body: json.RawMessage(`"` + strings.Repeat("x", 3000) + `"`)}, nil), peer.CodeTooLarge)
	wantCode(t, ask(t, client, addr, peer.Envelope{Kind: "fails", Body: json.RawMessage(`"` + strings.Repeat("x", 5000) + `"`)}, nil), peer.CodeTooLarge)

	if err := server.Close(t.Context()); err != nil { // the log is read below
		t.Fatal(err)
	}
	for _, want := range []string{"disk on fire", "nil map", "peer_test.go"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log lacks %q:\n%s", want, log.String())
		}
	}
}

// TestForeignRequests sends what no client of ours would.
func TestForeignRequests(t *testing.T) {
	t.Parallel()
	_, addr := listen(t, peer.Config{}, echo)
	for _, test := range []struct{ name, body, code string }{
		{"other protocol", `{"protocol":2,"kind":"hello","news":true}`, peer.CodeProtocol},
		{"no protocol", `{"kind":"hello"}`, peer.CodeProtocol},
		{"no JSON", `hello`, peer.CodeInvalid},
		{"two documents", `{"protocol":1,"kind":"a"}{"protocol":1,"kind":"b"}`, peer.CodeInvalid},
		{"wrong type", `{"protocol":1,"kind":"hello","epoch":"3"}`, peer.CodeInvalid},
	} {
		t.Run(test.name, func(t *testing.T) {
			res, err := http.Post("http://"+addr+"/peer", "application/json", strings.NewReader(test.body))
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = res.Body.Close() }()
			var a struct{ Refusal *peer.Refusal }
			if err := json.NewDecoder(res.Body).Decode(&a); err != nil {
				t.Fatal(err)
			}
			if a.Refusal == nil || a.Refusal.Code != test.code {
				t.Errorf("refusal %+v, want code %s", a.Refusal, test.code)
			}
		})
	}
	res, err := http.Get("http://" + addr + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	if res.StatusCode != http.StatusNotFound {
		t.Errorf("another path: status %d, want 404", res.StatusCode)
	}
	http.DefaultClient.CloseIdleConnections()
}

func TestNobodyListens(t *testing.T) {
	t.Parallel()
	server, addr := listen(t, peer.Config{}, echo)
	client := newClient(t, peer.Config{})
	if err := ask(t, client, addr, peer.Envelope{Kind: "hello"}, nil); err != nil {
		t.Fatal(err)
	}
	if err := server.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	// The first request may still find the old connection, whose end has not
	// been noticed yet: that one cannot be told from a lost request.
	err := ask(t, client, addr, peer.Envelope{Kind: "hello"}, nil)
	if errors.Is(err, peer.ErrUnreachable) {
		err = ask(t, client, addr, peer.Envelope{Kind: "hello"}, nil)
	}
	if !errors.Is(err, peer.ErrRefused) || errors.Is(err, peer.ErrUnreachable) {
		t.Errorf("error %v, want ErrRefused alone", err)
	}
}

func TestSomebodyElseListens(t *testing.T) {
	t.Parallel()
	other := httptest.NewServer(http.RedirectHandler("http://127.0.0.1:1/elsewhere", http.StatusTemporaryRedirect))
	defer other.Close()
	err := ask(t, newClient(t, peer.Config{}), other.Listener.Addr().String(), peer.Envelope{Kind: "hello"}, nil)
	if !errors.Is(err, peer.ErrUnreachable) || !strings.Contains(err.Error(), "307") {
		t.Errorf("error %v, want ErrUnreachable with the status: no redirect is followed", err)
	}
}

// stuck is a listener that accepts, or lets the kernel accept, and never
// answers, as a stopped process does. It can be told to go on.
type stuck struct {
	net.Listener
	mu       sync.Mutex
	goOn     chan struct{}
	accepted int
}

func (s *stuck) Accept() (net.Conn, error) {
	<-s.goOn
	conn, err := s.Listener.Accept()
	if err == nil {
		s.mu.Lock()
		s.accepted++
		s.mu.Unlock()
	}
	return conn, err
}

func TestStuckPeer(t *testing.T) {
	t.Parallel()
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := inner.Addr().String()
	hang := &stuck{Listener: inner, goOn: make(chan struct{})}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/vnd.rowmill.peer+json")
		_, _ = io.WriteString(w, `{"reply":"awake"}`)
	})}
	served := make(chan struct{})
	go func() { defer close(served); _ = server.Serve(hang) }()
	defer func() { _ = server.Close(); <-served }()

	reg := prometheus.NewRegistry()
	client := newClient(t, peer.Config{MaxConns: 2, MaxWaiting: 3, Metrics: reg})
	const patience = 2 * time.Second
	began := time.Now()
	failed := make(chan error, 5)
	hello := func(patience time.Duration) {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		failed <- client.Ask(ctx, addr, peer.Envelope{Kind: "hello"}, nil)
	}
	for range 2 {
		go hello(patience)
	}
	wait.For(t, "two requests in flight", func() bool { return gauge(t, reg, "rowmill_peer_requests_inflight") == 2 })
	for range 3 { // they give up before the two that they wait for
		go hello(patience / 2)
	}
	wait.For(t, "three that wait", func() bool { return gauge(t, reg, "rowmill_peer_queue_depth") == 3 })
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := client.Ask(ctx, addr, peer.Envelope{Kind: "hello"}, nil); !errors.Is(err, peer.ErrBusy) || !errors.Is(err, peer.ErrUnreachable) {
		t.Errorf("the sixth request: %v, want ErrBusy", err)
	}
	if ctx.Err() != nil {
		t.Error("the sixth request waited")
	}
	for range 5 {
		err := <-failed
		if !errors.Is(err, peer.ErrUnreachable) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v, want ErrUnreachable for want of time", err)
		}
	}
	if took := time.Since(began); took > 10*patience {
		t.Errorf("a stuck peer cost %v, want the deadline of %v", took, patience)
	}

	// It wakes up: the client is at work at once, over new connections.
	close(hang.goOn)
	var reply string
	if err := ask(t, client, addr, peer.Envelope{Kind: "hello"}, &reply); err != nil || reply != "awake" {
		t.Errorf("after waking: %q, %v", reply, err)
	}
	hang.mu.Lock()
	defer hang.mu.Unlock()
	if hang.accepted > 3 {
		t.Errorf("%d connections for two at a time and one later", hang.accepted)
	}
}

func TestCancelledAsker(t *testing.T) {
	t.Parallel()
	inside, ended := make(chan struct{}), make(chan struct{})
	_, addr := listen(t, peer.Config{}, func(ctx context.Context, _ peer.Envelope) (any, error) {
		close(inside)
		<-ctx.Done()
		close(ended)
		return nil, ctx.Err()
	})
	client := newClient(t, peer.Config{})
	ctx, cancel := context.WithCancel(t.Context())
	failed := make(chan error)
	go func() { failed <- client.Ask(ctx, addr, peer.Envelope{Kind: "hello"}, nil) }()
	<-inside
	cancel()
	if err := <-failed; !errors.Is(err, context.Canceled) || errors.Is(err, peer.ErrUnreachable) {
		t.Errorf("error %v, want the caller's own", err)
	}
	<-ended // the handler learns of it
}

func TestLongHandler(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	cfg := peer.Config{ReadTimeout: 100 * time.Millisecond, HandleTimeout: 400 * time.Millisecond, Metrics: reg}
	_, addr := listen(t, cfg, func(ctx context.Context, e peer.Envelope) (any, error) {
		limit := time.Hour
		if e.Kind == "long" {
			limit = 300 * time.Millisecond
		}
		select {
		case <-ctx.Done():
			return nil, &peer.Refusal{Code: "cut", Message: "by the context"}
		case <-time.After(limit):
			return "done", nil
		}
	})
	client := newClient(t, peer.Config{Metrics: reg})
	if err := ask(t, client, addr, peer.Envelope{Kind: "long"}, nil); err != nil {
		t.Errorf("longer than the time for reading: %v", err)
	}
	wantCode(t, ask(t, client, addr, peer.Envelope{Kind: "endless"}, nil), "cut")
	for _, direction := range []string{"in", "out"} {
		labels := prometheus.Labels{"direction": direction, "kind": "endless", "outcome": "cut"}
		if n := counter(t, reg, "rowmill_peer_requests_total", labels); n != 1 {
			t.Errorf("%v: counted %v times, want once", labels, n)
		}
	}
	if n := counter(t, reg, "rowmill_peer_bytes_total", prometheus.Labels{"direction": "in", "part": "request"}); n == 0 {
		t.Error("no bytes were counted")
	}
	if problems, err := testutil.GatherAndLint(reg); err != nil || len(problems) > 0 {
		t.Errorf("metrics: %v, %v", problems, err)
	}
}

func TestBusyServer(t *testing.T) {
	t.Parallel()
	inside, release := make(chan struct{}), make(chan struct{})
	_, addr := listen(t, peer.Config{MaxInFlight: 1}, func(context.Context, peer.Envelope) (any, error) {
		inside <- struct{}{}
		<-release
		return nil, nil
	})
	client := newClient(t, peer.Config{})
	first := make(chan error)
	go func() { first <- ask(t, client, addr, peer.Envelope{Kind: "hello"}, nil) }()
	<-inside
	wantCode(t, ask(t, client, addr, peer.Envelope{Kind: "hello"}, nil), peer.CodeBusy)
	close(release)
	if err := <-first; err != nil {
		t.Errorf("the request that was under way: %v", err)
	}
}

// TestClose lets a request finish, and cuts one that does not.
func TestClose(t *testing.T) {
	t.Parallel()
	inside, release := make(chan struct{}), make(chan struct{})
	server, addr := listen(t, peer.Config{}, func(ctx context.Context, e peer.Envelope) (any, error) {
		inside <- struct{}{}
		if e.Kind == "endless" {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		<-release
		return "done", nil
	})
	client := newClient(t, peer.Config{})
	answered, cut := make(chan error, 1), make(chan error, 1)
	go func() { answered <- ask(t, client, addr, peer.Envelope{Kind: "short"}, nil) }()
	go func() { cut <- ask(t, client, addr, peer.Envelope{Kind: "endless"}, nil) }()
	<-inside
	<-inside
	ctx, cancel := context.WithCancel(t.Context())
	closed := make(chan error)
	go func() { closed <- server.Close(ctx) }()
	close(release)
	if err := <-answered; err != nil {
		t.Errorf("request under way at Close: %v", err)
	}
	cancel()
	if err := <-closed; !errors.Is(err, context.Canceled) {
		t.Errorf("Close: %v, want that it did not wait", err)
	}
	if err := <-cut; err == nil {
		t.Error("a request was answered by a closed server")
	}
}

// gauge reads a gauge of a registry.
func gauge(t *testing.T, reg *prometheus.Registry, name string) float64 {
	t.Helper()
	return read(t, reg, name, nil)
}

func counter(t *testing.T, reg *prometheus.Registry, name string, labels prometheus.Labels) float64 {
	t.Helper()
	return read(t, reg, name, labels)
}

// read adds up the series of a name that have all those labels.
func read(t *testing.T, reg *prometheus.Registry, name string, labels prometheus.Labels) (sum float64) {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			matching := 0
			for _, label := range metric.GetLabel() {
				if labels[label.GetName()] == label.GetValue() {
					matching++
				}
			}
			if family.GetName() == name && matching == len(labels) {
				sum += metric.GetGauge().GetValue() + metric.GetCounter().GetValue()
			}
		}
	}
	return sum
}

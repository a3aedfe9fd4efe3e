package peer_test

import (
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

	"connectrpc.com/connect"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.opentelemetry.io/otel/trace"

	"github.com/rowmill/rowmill/cluster/peer"
	"github.com/rowmill/rowmill/cluster/peer/peerv1"
	"github.com/rowmill/rowmill/cluster/peer/peerv1/peerv1connect"
	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/internal/wait"
)

func TestAsk(t *testing.T) {
	t.Parallel()
	_, addr := listen(t, peer.Config{}, func(_ context.Context, said string) (string, error) { return said + " 7 rows", nil })
	if reply, err := ask(t, newClient(t, peer.Config{}), addr, "counted"); err != nil || reply != "counted 7 rows" {
		t.Errorf("%q, %v", reply, err)
	}
}

// locating answers with a text that cannot be encoded.
type locating struct {
	service
}

func (locating) LocateRows(context.Context, *peerv1.LocateRowsRequest) (*peerv1.LocateRowsResponse, error) {
	return &peerv1.LocateRowsResponse{Nodes: []*peerv1.NodeRows{{Node: "\xff"}}}, nil
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	log := &journal{}
	reg := prometheus.NewRegistry()
	cfg := peer.Config{MaxBody: 2000, Logger: slog.New(slog.NewTextHandler(log, nil)), Metrics: reg}
	server, addr := listen(t, cfg, nil)
	client := newClient(t, peer.Config{Node: "asker-1", MaxBody: 4000})
	wantCode(t, hello(t, client, addr), peer.CodeStarting)

	server.SetHandler(locating{service{handler: func(_ context.Context, said string) (string, error) {
		switch said {
		case "stale":
			return "", fmt.Errorf("adopt: %w", &peer.Refusal{Code: "stale", Message: "epoch 4 is known"})
		case "fails":
			return "", errors.New("disk on fire")
		case "panics":
			panic("nil map")
		case "talks":
			return strings.Repeat("x", 2000), nil
		}
		return "", &peer.Refusal{Code: peer.CodeUnknownKind, Message: said}
	}}})
	for _, test := range []struct{ said, code string }{
		{"stale", "stale"},
		{"fails", peer.CodeInternal},
		{"panics", peer.CodeInternal},
		{"talks", peer.CodeInternal},
		{"never_heard_of", peer.CodeUnknownKind},
	} {
		_, err := ask(t, client, addr, test.said)
		wantCode(t, err, test.code)
		if strings.Contains(err.Error(), "on fire") {
			t.Errorf("%s: the inner error travels: %v", test.said, err)
		}
	}
	_, err := client.Node(addr).LocateRows(t.Context(), &peerv1.LocateRowsRequest{})
	wantCode(t, err, peer.CodeInternal)
	for _, size := range []int{1999, 3000, 5000} { // the longest is not sent
		_, err := ask(t, client, addr, strings.Repeat("x", size))
		wantCode(t, err, peer.CodeTooLarge)
	}
	for code, want := range map[string]float64{peer.CodeTooLarge: 2, "stale": 1, peer.CodeInternal: 4} {
		if n := counter(t, reg, "rowmill_peer_requests_total", prometheus.Labels{"outcome": code}); n != want {
			t.Errorf("%s was counted %v times, want %v", code, n, want)
		}
	}
	for _, want := range []string{"disk on fire", "nil map", "peer_test.go", "asker-1", "encoding the reply to a node failed"} {
		if !log.contains(want) {
			t.Errorf("the log lacks %q", want)
		}
	}
}

// TestCodesAreReasons checks that the contract knows every code of this program, and
// that each reason of the contract has a code.
func TestCodesAreReasons(t *testing.T) {
	t.Parallel()
	for number, reason := range peerv1.RefusalReason_name {
		if number == 0 {
			continue
		}
		code := strings.ToLower(strings.TrimPrefix(reason, "REFUSAL_REASON_"))
		_, addr := listen(t, peer.Config{}, func(context.Context, string) (string, error) {
			return "", &peer.Refusal{Code: code, Message: "no"}
		})
		wantCode(t, hello(t, newClient(t, peer.Config{}), addr), code)
	}
}

// TestForeignRequests sends requests that our client never sends.
func TestForeignRequests(t *testing.T) {
	t.Parallel()
	_, addr := listen(t, peer.Config{MaxBody: 2000}, echo)
	const figures = peerv1connect.NodeServiceGetFiguresProcedure
	for _, test := range []struct {
		name, path, typ, body string
		status                int
		code                  string
	}{
		{"as a person would", figures, "application/json", `{"what":"hello"}`, http.StatusOK, ""},
		{"no message", figures, "application/proto", "hello", http.StatusBadRequest, "invalid_argument"},
		{"no JSON", figures, "application/json", "hello", http.StatusBadRequest, "invalid_argument"},
		{"too large", figures, "application/json", `{"what":"` + strings.Repeat("x", 1<<20) + `"}`, http.StatusTooManyRequests, "resource_exhausted"},
		{"another form", figures, "text/plain", "hello", http.StatusUnsupportedMediaType, ""},
		{"compressed", figures, "application/json; encoding=gzip", "hello", http.StatusUnsupportedMediaType, ""},
		{"another method", peerv1connect.NodeServiceName + "/Dance", "application/json", `{}`, http.StatusNotImplemented, "unimplemented"},
		{"another path", "/metrics", "application/json", `{}`, http.StatusNotFound, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			res, err := http.Post("http://"+addr+"/"+strings.TrimPrefix(test.path, "/"), test.typ, strings.NewReader(test.body))
			must.Succeed(t, err)
			defer func() { _ = res.Body.Close() }()
			text, _ := io.ReadAll(res.Body)
			var a struct{ Code string }
			_ = json.Unmarshal(text, &a)
			if res.StatusCode != test.status || a.Code != test.code {
				t.Errorf("status %d, %s, want %d and code %q", res.StatusCode, text, test.status, test.code)
			}
		})
	}
	http.DefaultClient.CloseIdleConnections()
}

// TestDeadlineTravels checks that a handler has no more time than its caller.
func TestDeadlineTravels(t *testing.T) {
	t.Parallel()
	left := make(chan time.Duration, 1)
	_, addr := listen(t, peer.Config{}, func(ctx context.Context, _ string) (string, error) {
		deadline, _ := ctx.Deadline()
		left <- time.Until(deadline)
		return "", nil
	})
	client := newClient(t, peer.Config{HandleTimeout: time.Hour})
	for given, most := range map[time.Duration]time.Duration{5 * time.Second: 5 * time.Second, 10 * time.Minute: 30 * time.Second} {
		ctx, cancel := context.WithTimeout(t.Context(), given)
		if _, err := say(ctx, client, addr, "hello"); err != nil {
			t.Error(err)
		}
		cancel()
		if has := <-left; has <= 0 || has > most {
			t.Errorf("of %v the handler has %v, want %v at most", given, has, most)
		}
	}
}

// TestTraceIsPassedOn checks that a handler gets the trace of its caller, or none when the
// caller has none.
func TestTraceIsPassedOn(t *testing.T) {
	t.Parallel()
	heard := make(chan trace.SpanContext, 1)
	_, addr := listen(t, peer.Config{}, func(ctx context.Context, _ string) (string, error) {
		heard <- trace.SpanContextFromContext(ctx)
		return "", nil
	})
	client := newClient(t, peer.Config{})
	span := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}, TraceFlags: trace.FlagsSampled})
	for _, span := range []trace.SpanContext{span, {}} {
		must.Get(say(trace.ContextWithSpanContext(t.Context(), span), client, addr, "hello"))(t)
		if got := <-heard; got.TraceID() != span.TraceID() || got.SpanID() != span.SpanID() || got.IsSampled() != span.IsSampled() || got.IsRemote() != span.IsValid() {
			t.Errorf("the handler is in %+v, its asker in %+v", got, span)
		}
	}
}

// TestInterceptors checks the order of the interceptors.
func TestInterceptors(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	seen := map[bool]error{} // true: by the client
	note := connect.UnaryInterceptorFunc(func(next connect.UnaryFunc) connect.UnaryFunc {
		return func(ctx context.Context, r connect.AnyRequest) (connect.AnyResponse, error) {
			res, err := next(ctx, r)
			mu.Lock()
			defer mu.Unlock()
			seen[r.Spec().IsClient] = err
			return res, err
		}
	})
	cfg := peer.Config{Interceptors: []connect.Interceptor{note}}
	_, addr := listen(t, cfg, func(context.Context, string) (string, error) { panic("no") })
	wantCode(t, hello(t, newClient(t, cfg), addr), peer.CodeInternal)
	mu.Lock()
	defer mu.Unlock()
	if len(seen) != 2 {
		t.Fatalf("seen: %v, want both sides", seen)
	}
	wantCode(t, seen[true], peer.CodeInternal)
	if connect.CodeOf(seen[false]) != connect.CodeInternal {
		t.Errorf("at the server: %v", seen[false])
	}
}

func TestNoListener(t *testing.T) {
	t.Parallel()
	server, addr := listen(t, peer.Config{}, echo)
	client := newClient(t, peer.Config{})
	must.Succeed(t, hello(t, client, addr))
	must.Succeed(t, server.Close(t.Context()))
	// The first request may still use the old connection before its end is noticed.
	// This looks like a lost request.
	err := hello(t, client, addr)
	if errors.Is(err, peer.ErrUnreachable) {
		err = hello(t, client, addr)
	}
	if !errors.Is(err, peer.ErrRefused) || errors.Is(err, peer.ErrUnreachable) {
		t.Errorf("error %v, want ErrRefused alone", err)
	}
}

func TestForeignServer(t *testing.T) {
	t.Parallel()
	other := httptest.NewServer(http.RedirectHandler("http://127.0.0.1:1/elsewhere", http.StatusTemporaryRedirect))
	defer other.Close()
	err := hello(t, newClient(t, peer.Config{}), other.Listener.Addr().String())
	if !errors.Is(err, peer.ErrUnreachable) || !strings.Contains(err.Error(), "307") {
		t.Errorf("error %v, want ErrUnreachable with the status: no redirect is followed", err)
	}
}

// stuck is a listener that accepts connections, or lets the kernel accept them, and
// never answers, like a stopped process. A test can let it continue.
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

// An expiring is a context whose deadline passes when a test decides.
type expiring struct {
	context.Context
	over chan struct{}
}

func (e *expiring) expire()               { close(e.over) }
func (e *expiring) Done() <-chan struct{} { return e.over }
func (e *expiring) Err() error {
	select {
	case <-e.over:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

func TestStuckPeer(t *testing.T) {
	t.Parallel()
	inner := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	addr := inner.Addr().String()
	hang := &stuck{Listener: inner, goOn: make(chan struct{})}
	awake := peer.NewResponder(peer.Config{})
	awake.SetHandler(service{handler: func(context.Context, string) (string, error) { return "awake", nil }})
	server := &http.Server{Handler: awake}
	served := make(chan struct{})
	go func() { defer close(served); _ = server.Serve(hang) }()
	defer func() { _ = server.Close(); <-served }()

	reg := prometheus.NewRegistry()
	client := newClient(t, peer.Config{MaxConns: 2, MaxWaiting: 3, Metrics: reg})
	failed := make(chan error, 5)
	greet := func(ctx context.Context) {
		_, err := say(ctx, client, addr, "hello")
		failed <- err
	}
	inFlight := &expiring{Context: t.Context(), over: make(chan struct{})}
	for range 2 {
		go greet(inFlight)
	}
	wait.For(t, "two requests in flight", func() bool { return gauge(t, reg, "rowmill_peer_requests_inflight") == 2 })
	waiting := &expiring{Context: t.Context(), over: make(chan struct{})}
	for range 3 {
		go greet(waiting)
	}
	wait.For(t, "three that wait", func() bool { return gauge(t, reg, "rowmill_peer_queue_depth") == 3 })
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := say(ctx, client, addr, "hello"); !errors.Is(err, peer.ErrBusy) || !errors.Is(err, peer.ErrUnreachable) {
		t.Errorf("the sixth request: %v, want ErrBusy at once", err)
	}
	for _, c := range []struct {
		ctx  *expiring
		many int
	}{{waiting, 3}, {inFlight, 2}} { // waiting requests may give up before the request that they wait for
		c.ctx.expire()
		for range c.many {
			err := <-failed
			if !errors.Is(err, peer.ErrUnreachable) || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("error %v, want ErrUnreachable for want of time", err)
			}
		}
	}

	// It wakes up: the client works again at once, over new connections.
	close(hang.goOn)
	if reply, err := ask(t, client, addr, "hello"); err != nil || reply != "awake" {
		t.Errorf("after waking: %q, %v", reply, err)
	}
	hang.mu.Lock()
	defer hang.mu.Unlock()
	if hang.accepted > 3 {
		t.Errorf("%d connections for two at a time and one later", hang.accepted)
	}
}

func TestCancelledCaller(t *testing.T) {
	t.Parallel()
	inside, ended := make(chan struct{}), make(chan struct{})
	_, addr := listen(t, peer.Config{}, func(ctx context.Context, _ string) (string, error) {
		close(inside)
		<-ctx.Done()
		close(ended)
		return "", ctx.Err()
	})
	client := newClient(t, peer.Config{})
	ctx, cancel := context.WithCancel(t.Context())
	failed := make(chan error)
	go func() {
		_, err := say(ctx, client, addr, "hello")
		failed <- err
	}()
	<-inside
	cancel()
	if err := <-failed; !errors.Is(err, context.Canceled) || errors.Is(err, peer.ErrUnreachable) {
		t.Errorf("error %v, want the caller's own", err)
	}
	<-ended // the context of the handler has ended
}

func TestLongHandler(t *testing.T) {
	t.Parallel()
	const reading = 3 * time.Second // longer than a pause of a slow machine
	_, addr := listen(t, peer.Config{ReadTimeout: reading, HandleTimeout: time.Minute}, func(context.Context, string) (string, error) {
		time.Sleep(reading + 100*time.Millisecond)
		return "done", nil
	})
	if _, err := ask(t, newClient(t, peer.Config{}), addr, "long"); err != nil {
		t.Errorf("longer than the time for reading: %v", err)
	}

	reg := prometheus.NewRegistry()
	_, addr = listen(t, peer.Config{HandleTimeout: 20 * time.Millisecond, Metrics: reg}, func(ctx context.Context, _ string) (string, error) {
		<-ctx.Done()
		return "", &peer.Refusal{Code: "draining", Message: "by the context"}
	})
	_, err := ask(t, newClient(t, peer.Config{Metrics: reg}), addr, "endless")
	wantCode(t, err, "draining")
	for _, direction := range []string{"in", "out"} {
		labels := prometheus.Labels{"direction": direction, "kind": kind, "outcome": "draining"}
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
	_, addr := listen(t, peer.Config{MaxInFlight: 1}, func(context.Context, string) (string, error) {
		inside <- struct{}{}
		<-release
		return "", nil
	})
	client := newClient(t, peer.Config{})
	first := make(chan error)
	go func() { first <- hello(t, client, addr) }()
	<-inside
	wantCode(t, hello(t, client, addr), peer.CodeBusy)
	close(release)
	if err := <-first; err != nil {
		t.Errorf("the request that was under way: %v", err)
	}
}

// TestClose lets one request finish, and cuts one that does not.
func TestClose(t *testing.T) {
	t.Parallel()
	inside, release := make(chan struct{}), make(chan struct{})
	server, addr := listen(t, peer.Config{}, func(ctx context.Context, said string) (string, error) {
		inside <- struct{}{}
		if said == "endless" {
			<-ctx.Done()
			return "", ctx.Err()
		}
		<-release
		return "done", nil
	})
	client := newClient(t, peer.Config{})
	answered, cut := make(chan error, 1), make(chan error, 1)
	for said, ended := range map[string]chan error{"short": answered, "endless": cut} {
		go func() {
			_, err := ask(t, client, addr, said)
			ended <- err
		}()
	}
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

// read adds up the series of a metric that have all these labels.
func read(t *testing.T, reg *prometheus.Registry, name string, labels prometheus.Labels) (sum float64) {
	t.Helper()
	families := must.Get(reg.Gather())(t)
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

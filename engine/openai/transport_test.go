package openai

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rowmill/rowmill/engine"
	"github.com/rowmill/rowmill/internal/must"
)

func TestCancelClosesTheConnection(t *testing.T) {
	t.Parallel()
	arrived, closed := make(chan struct{}), make(chan struct{})
	e := serve(t, nil, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		close(arrived)
		<-r.Context().Done() // net/http notices the closed connection
		close(closed)
	})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-arrived
		cancel()
	}()
	_, err := prepared(t, e, engine.JobParams{Model: generator}).Generate(ctx, engine.Row{Text: []byte("x")})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	<-closed
}

// A connection stays open after the contexts of its former rows end, and closes when
// the context of its current row ends.
func TestAConnectionOutlivesTheRowsOnIt(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	seen := map[string]int{}
	stuck := make(chan struct{}, 1)
	e := serve(t, nil, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		mu.Lock()
		seen[r.RemoteAddr]++
		mu.Unlock()
		if strings.Contains(string(body), "stuck") {
			stuck <- struct{}{}
			<-r.Context().Done()
			return
		}
		_, _ = io.WriteString(w, good)
	})
	call := prepared(t, e, engine.JobParams{Model: generator})
	run := func(ctx context.Context, text string) error {
		_, err := call.Generate(ctx, engine.Row{Text: []byte(text)})
		return err
	}
	const jobs, rows = 100, 3
	for range jobs {
		ctx, cancel := context.WithCancel(t.Context())
		for range rows {
			must.Succeed(t, run(ctx, "x"))
		}
		cancel()
	}
	if len(seen) != 1 {
		t.Fatalf("%d connections for rows one after another", len(seen))
	}
	first, cancelFirst := context.WithCancel(t.Context())
	must.Succeed(t, run(first, "x"))
	second, cancelSecond := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- run(second, "stuck") }()
	<-stuck
	cancelFirst()
	select {
	case err := <-done:
		t.Fatalf("another row's context ended this one: %v", err)
	default:
	}
	cancelSecond()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("error = %v, want context.Canceled", err)
	}
	if err := run(t.Context(), "x"); err != nil || len(seen) != 2 {
		t.Errorf("%v, %d connections; want a second one", err, len(seen))
	}
}

func TestDeadlineOfARow(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	e := serve(t, func(c *Config) { c.QueueAllowance, c.TokenTime = 20*time.Millisecond, time.Nanosecond },
		func(http.ResponseWriter, *http.Request) { <-release })
	defer close(release)
	_, err := generate(t, e, "x")
	var got *engine.Error
	if !errors.As(err, &got) || got.Class != engine.Transient || got.Code != "timeout" {
		t.Errorf("got %v", err)
	}
}

// A row's own timeout replaces the engine's, for texts and for groups.
func TestTimeoutOfARow(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	e := serve(t, nil, func(http.ResponseWriter, *http.Request) { <-release })
	defer close(release)
	timedOut := func(what string, err error) {
		t.Helper()
		var got *engine.Error
		if !errors.As(err, &got) || got.Class != engine.Transient || got.Code != "timeout" || got.Status != 0 || !strings.Contains(got.Message, "within 30ms") {
			t.Errorf("%s: %#v", what, err)
		}
	}
	impatient := engine.Row{Text: []byte("x"), Timeout: 30 * time.Millisecond}
	_, err := prepared(t, e, engine.JobParams{Model: generator}).Generate(t.Context(), impatient)
	timedOut("text", err)
	_, _, err = prepared(t, e, engine.JobParams{Model: embedder}).Embed(t.Context(), []engine.Row{{Timeout: time.Microsecond}, impatient})
	timedOut("group", err)

	// The timeout includes the time to connect.
	impatient.Timeout = time.Nanosecond
	_, err = prepared(t, e, engine.JobParams{Model: generator}).Generate(t.Context(), impatient)
	var got *engine.Error
	if !errors.As(err, &got) || got.Code != "timeout" {
		t.Errorf("while dialling: %v", err)
	}
}

// deadlines records the deadlines that are set on a connection.
type deadlines struct {
	net.Conn
	set []time.Time
}

func (d *deadlines) SetDeadline(at time.Time) error {
	d.set = append(d.set, at)
	return nil
}

// Successive rows on a connection share deadlines. No deadline ends a row too early or
// much too late.
func TestRowsShareDeadlines(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		set := new(deadlines)
		c := &conn{Conn: set}
		row := func(whole time.Duration) {
			t.Helper()
			p := newCallTimeout(whole)
			must.Succeed(t, c.applyTimeout(p))
			if late := set.set[len(set.set)-1].Sub(p.until); late < 0 || late > whole/lateShare {
				t.Fatalf("a row of %v is ended %v late", whole, late)
			}
		}
		for range lateShare * 10 {
			row(time.Minute)
			time.Sleep(100 * time.Millisecond)
		}
		if n := len(set.set); n < lateShare || n > lateShare+10 {
			t.Errorf("%d deadlines were set in a minute for rows of a minute", n)
		}
		c.body.done = true
		if c.drain(); time.Until(set.set[len(set.set)-1]) != drainTimeout {
			t.Error("the deadline for the end of a stream is too short")
		}
		row(time.Minute)
		before := len(set.set)
		for _, whole := range []time.Duration{time.Second, time.Hour, 10 * time.Minute} {
			row(whole)
		}
		if n := len(set.set) - before; n != 3 {
			t.Errorf("%d deadlines for rows of three patiences", n)
		}
	})
}

// The timeout of a group is the longest of its rows, or the engine's if one row has
// none.
func TestTimeoutOfAGroup(t *testing.T) {
	t.Parallel()
	c := &preparedCall{allowance: time.Hour}
	for _, test := range []struct {
		rows []engine.Row
		want time.Duration
	}{
		{nil, 0},
		{[]engine.Row{{}}, time.Hour},
		{[]engine.Row{{Timeout: time.Second}, {Timeout: time.Minute}, {Timeout: time.Second}}, time.Minute},
		{[]engine.Row{{Timeout: time.Second}, {}}, time.Hour},
	} {
		if got := c.timeoutFor(test.rows...).length; got != test.want {
			t.Errorf("%v: %v, want %v", test.rows, got, test.want)
		}
	}
}

func TestConnectionsAreReused(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]http.HandlerFunc{
		"by length": func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, good) },
		"by chunks": func(w http.ResponseWriter, _ *http.Request) {
			for _, c := range good {
				_, _ = io.WriteString(w, string(c))
				w.(http.Flusher).Flush()
			}
		},
		"after an error": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(429) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var mu sync.Mutex
			seen := map[string]bool{}
			e := serve(t, nil, func(w http.ResponseWriter, r *http.Request) {
				mu.Lock()
				seen[r.RemoteAddr] = true
				mu.Unlock()
				_, _ = io.Copy(io.Discard, r.Body)
				answer(w, r)
			})
			for range 5 {
				_, err := generate(t, e, "x")
				if name != "after an error" && err != nil {
					t.Fatal(err)
				}
			}
			if len(seen) != 1 {
				t.Errorf("5 rows used %d connections", len(seen))
			}
		})
	}
}

// raw starts a server of raw bytes: handle gets each connection.
func raw(t *testing.T, handle func(n int, c net.Conn)) Config {
	t.Helper()
	listener := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	var wg sync.WaitGroup
	wg.Go(func() {
		for n := 0; ; n++ {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer func() { _ = c.Close() }()
				handle(n, c)
			})
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		wg.Wait()
	})
	return Config{BaseURL: "http://" + listener.Addr().String()}
}

// unprobed returns an engine for a raw server, in the state after a probe.
func unprobed(t *testing.T, cfg Config) *Engine {
	t.Helper()
	e := must.Get(New(cfg))(t)
	t.Cleanup(e.Close)
	e.storeProbe(engine.ServerInfo{Kind: kindOther, Models: []engine.ServedModel{{Name: "m"}}}, probeFacts{})
	return e
}

// readRequest reads one request from c.
func readRequest(c net.Conn) bool {
	buf := make([]byte, 64<<10)
	n, err := c.Read(buf)
	return err == nil && n > 0
}

func TestRawReplies(t *testing.T) {
	t.Parallel()
	size := fmt.Sprint(len(good))
	for name, c := range map[string]struct {
		reply string
		code  string // of the error; empty: accepted
	}{
		"by length":            {"HTTP/1.1 200 OK\r\nContent-Length: " + size + "\r\n\r\n" + good, ""},
		"until the end":        {"HTTP/1.0 200 OK\r\n\r\n" + good, ""},
		"after 100 and 103":    {"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: " + size + "\r\n\r\n" + good, ""},
		"chunks with trailers": {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5;x=y\r\n" + good[:5] + "\r\n" + fmt.Sprintf("%X", len(good)-5) + "\r\n" + good[5:] + "\r\n0\r\nA: b\r\n\r\n", ""},
		"a bad chunk":          {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "malformed_reply"},
		"a chunk too long":     {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n" + good, "malformed_reply"},
		"chunks without end":   {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n" + good[:5] + "\r\n", "malformed_reply"},
		"cut off":              {"HTTP/1.1 200 OK\r\nContent-Length: " + size + "\r\n\r\n" + good[:20], "connection_broken"},
		"nothing":              {"", "connection_broken"},
		"half a header":        {"HTTP/1.1 200 OK\r\nContent-", "malformed_reply"},
		"no HTTP":              {"SSH-2.0-OpenSSH_9\r\n\r\n", "malformed_reply"},
		"another protocol":     {"HTTP/1.1 101 Switching\r\nUpgrade: x\r\n\r\n", "malformed_reply"},
		"a huge header":        {"HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", 9000) + "\r\n\r\n" + good, "connection_broken"},
		"compressed":           {"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 3\r\n\r\nabc", "compressed_reply"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := unprobed(t, raw(t, func(_ int, conn net.Conn) {
				if readRequest(conn) {
					_, _ = io.WriteString(conn, c.reply)
				}
			}))
			reply, err := generate(t, e, "x")
			var got *engine.Error
			switch {
			case c.code == "" && (err != nil || reply.Content != "fine"):
				t.Errorf("got %+v, %v", reply, err)
			case c.code != "" && (!errors.As(err, &got) || got.Code != c.code):
				t.Errorf("got %v, want code %s", err, c.code)
			}
		})
	}
}

func TestAStaleConnectionIsReplacedOnce(t *testing.T) {
	t.Parallel()
	var served atomic.Int32
	e := unprobed(t, raw(t, func(_ int, c net.Conn) {
		if readRequest(c) { // one answer per connection
			served.Add(1)
			_, _ = fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(good), good)
		}
	}))
	for i := range 4 {
		if _, err := generate(t, e, "x"); err != nil {
			t.Fatalf("row %d: %v", i, err)
		}
	}
	if served.Load() != 4 {
		t.Errorf("%d requests for 4 rows", served.Load())
	}
}

func TestABrokenAnswerIsNotSentAgain(t *testing.T) {
	t.Parallel()
	var requests atomic.Int32
	e := unprobed(t, raw(t, func(_ int, c net.Conn) {
		for readRequest(c) {
			if requests.Add(1) == 2 {
				_, _ = io.WriteString(c, "HTTP/1.1 2")
				return
			}
			_, _ = fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(good), good)
		}
	}))
	must.Get(generate(t, e, "x"))(t)
	if _, err := generate(t, e, "x"); err == nil || requests.Load() != 2 {
		t.Errorf("%d requests, %v", requests.Load(), err)
	}
}

func TestARefusalBeforeTheRequestIsRead(t *testing.T) {
	t.Parallel()
	e := unprobed(t, raw(t, func(_ int, c net.Conn) {
		_, _ = io.WriteString(c, "HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
		_, _ = io.Copy(io.Discard, c)
	}))
	_, err := generate(t, e, strings.Repeat("x", 8<<20))
	var got *engine.Error
	if !errors.As(err, &got) || got.Status != 413 || got.Class != engine.RowFault {
		t.Errorf("got %v", err)
	}
}

func TestUnreachable(t *testing.T) {
	t.Parallel()
	listener := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	address := listener.Addr().String()
	_ = listener.Close()
	e := unprobed(t, Config{BaseURL: "http://" + address})
	var got *engine.Error
	if _, err := generate(t, e, "x"); !errors.As(err, &got) || got.Class != engine.Busy || got.Code != "unreachable" {
		t.Errorf("got %v", err)
	}
	if _, err := e.Probe(t.Context()); err == nil {
		t.Error("a probe of nothing succeeded")
	}
}

func TestTLS(t *testing.T) {
	t.Parallel()
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/models" {
			_, _ = io.WriteString(w, `{"data":[{"id":"m"}]}`)
			return
		}
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = io.WriteString(w, good)
	}))
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // the server logs the failed handshake
	server.StartTLS()
	t.Cleanup(server.Close)
	trusting := server.Client().Transport.(*http.Transport).TLSClientConfig
	e := probed(t, Config{BaseURL: server.URL, TLS: trusting})
	for range 3 {
		if reply, err := generate(t, e, "x"); err != nil || reply.Content != "fine" {
			t.Fatalf("got %+v, %v", reply, err)
		}
	}
	var got *engine.Error
	if _, err := generate(t, unprobed(t, Config{BaseURL: server.URL}), "x"); !errors.As(err, &got) || got.Class != engine.ServerFault {
		t.Errorf("an unknown certificate gave %v, want a ServerFault", err)
	}
}

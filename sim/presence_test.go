package sim

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
)

// gate is a Pace that lets requests through one by one.
type gate struct{ entered, released chan struct{} }

func (g *gate) Start(Work) (Run, error) { return g, nil }
func (g *gate) Load() Load              { return Load{} }
func (g *gate) Use() Use                { return Use{} }
func (g *gate) End()                    {}

func (g *gate) Wait(ctx context.Context, n int) (int, error) {
	gone := ctx.Done() // starts the watch
	g.entered <- struct{}{}
	select {
	case <-g.released:
		return n, nil
	case <-gone:
		return 0, ctx.Err()
	}
}

// TestPipelinedRequestSurvivesTheWatch sends the next request while one is
// being served.
func TestPipelinedRequestSurvivesTheWatch(t *testing.T) {
	t.Parallel()
	pace := &gate{make(chan struct{}), make(chan struct{})}
	c := start(t, Config{Pace: pace})
	conn, err := net.Dial("tcp", c.sim.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	in := bufio.NewReader(conn)
	data := body("plain", "x")
	request := fmt.Appendf(nil, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", chatPath, len(data), data)
	if _, err := conn.Write(request); err != nil {
		t.Fatal(err)
	}
	const rounds = 20
	for round := range rounds {
		<-pace.entered
		if round < rounds-1 {
			if _, err := conn.Write(request); err != nil {
				t.Fatal(err)
			}
		}
		pace.released <- struct{}{}
		res, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatalf("answer %d: %v", round, err)
		}
		if _, err := io.Copy(io.Discard, res.Body); err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		if res.StatusCode != http.StatusOK {
			t.Errorf("answer %d: status %d", round, res.StatusCode)
		}
	}
}

func TestPresenceIsLazy(t *testing.T) {
	t.Parallel()
	ours, theirs := net.Pipe()
	c := &conn{Conn: ours}
	p := presence{c}
	if p.Err() != nil || c.watch != nil {
		t.Error("asking for the error starts a watch")
	}
	if _, ok := p.Deadline(); ok || p.Value(t) != nil {
		t.Error("a deadline or a value from nowhere")
	}
	c.unwatch()
	done := p.Done()
	if p.Err() != nil {
		t.Error("gone too early")
	}
	_ = theirs.Close()
	<-done
	if p.Err() == nil {
		t.Error("gone without an error")
	}
	c.unwatch()
	_ = ours.Close()
}

func TestWatchKeepsTheByteItReads(t *testing.T) {
	t.Parallel()
	ours, theirs := net.Pipe()
	c := &conn{Conn: ours, stopping: make(chan struct{})}
	done := presence{c}.Done()
	if _, err := theirs.Write([]byte("G")); err != nil { // returns once the watch has read it
		t.Fatal(err)
	}
	c.unwatch()
	select {
	case <-done:
		t.Error("a byte was taken for the end")
	default:
	}
	go func() { _, _ = theirs.Write([]byte("ET")); _ = theirs.Close() }()
	if text, err := io.ReadAll(c); string(text) != "GET" || err != nil {
		t.Errorf("read %q, %v", text, err)
	}
	_ = ours.Close()
}

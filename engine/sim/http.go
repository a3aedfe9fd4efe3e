package sim

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"
)

const (
	typeJSON = "application/json"
	typeSSE  = "text/event-stream; charset=utf-8"
	typeText = "text/plain; version=0.0.4; charset=utf-8"
)

// keepBytes is the size in bytes of the largest buffer that the server keeps for the
// next request. Larger buffers of long answers are freed.
const keepBytes = 256 << 10

// httpExchange is one HTTP request and its answer.
type httpExchange struct {
	w    http.ResponseWriter
	r    *http.Request
	body []byte
	form chatAdapter // API form of the answer; nil means a chat completion
	*buffers
}

// buffers are the reusable memory for a request and its answer.
type buffers struct {
	in  bytes.Buffer
	out []byte
}

// ServeHTTP answers one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	kept, _ := s.buffers.Get().(*buffers)
	if kept == nil {
		kept = new(buffers)
	}
	defer func() {
		if kept.in.Cap() <= keepBytes && cap(kept.out) <= keepBytes {
			s.buffers.Put(kept)
		}
	}()
	kept.in.Reset()
	x := &httpExchange{w: w, r: r, buffers: kept}
	_, err := kept.in.ReadFrom(http.MaxBytesReader(w, r.Body, int64(s.maxBody)))
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		s.replyError(x, &apiError{status: 413, kind: "RequestTooLargeError", text: fmt.Sprintf("the body exceeds %d bytes", s.maxBody)})
	case err != nil:
		s.replyError(x, badRequest("", "read body: %v", err))
	default:
		x.body = kept.in.Bytes()
		s.serve(x)
	}
}

// context returns the request's context, which ends when the client closes the
// connection.
func (x *httpExchange) context() context.Context { return x.r.Context() }

// buffer returns an empty slice to build the answer in.
func (x *httpExchange) buffer() []byte { return x.out[:0] }

// Headers of every answer.
var serverHeader, simulatedHeader = []string{ServerName}, []string{"true"}

func (x *httpExchange) setHeaders(contentType string) http.Header {
	h := x.w.Header()
	h["Server"], h["X-Simulated"] = serverHeader, simulatedHeader
	h.Set("Content-Type", contentType)
	return h
}

// writeAnswer sends a whole answer. If wait is above 0, it is sent as Retry-After.
func (x *httpExchange) writeAnswer(status int, contentType string, wait time.Duration, body []byte) {
	x.out = body
	if x.form != nil && status == http.StatusOK {
		body = convertReply(x.form, body)
	}
	h := x.setHeaders(contentType)
	h.Set("Content-Length", strconv.Itoa(len(body)))
	if wait > 0 {
		h.Set("Retry-After", strconv.FormatInt(int64(math.Ceil(wait.Seconds())), 10))
	}
	x.w.WriteHeader(status)
	_, _ = x.w.Write(body) // the client may have disconnected
}

// send sends a part of an answer immediately.
func (x *httpExchange) send(part []byte) error {
	if _, err := x.w.Write(part); err != nil {
		return err
	}
	return http.NewResponseController(x.w).Flush()
}

// abortMidAnswer closes the connection in the middle of an answer. It does not return.
func (x *httpExchange) abortMidAnswer() {
	panic(http.ErrAbortHandler) // net/http closes the connection after this panic
}

// resetWithoutAnswer resets the connection without an answer.
func (x *httpExchange) resetWithoutAnswer() {
	conn, _, err := http.NewResponseController(x.w).Hijack()
	if err != nil {
		x.abortMidAnswer()
	}
	resetConn(conn)
}

// resetConn closes a connection so that the peer sees a reset.
func resetConn(conn net.Conn) {
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // without this, the peer sees an ordinary close
	}
	_ = conn.Close()
}

// listener accepts connections at one address. It keeps a list of its connections,
// so that the server can close them all (die) and accept connections at the same
// address again (revive).
type listener struct {
	sim  *Server
	addr net.Addr

	mu     sync.Mutex
	server *http.Server // nil while dead
	conns  map[net.Conn]bool
	closed bool
	accept sync.WaitGroup // goroutines that accept connections
	open   sync.WaitGroup // open connections
}

func listen(ctx context.Context, addr string, s *Server) (*listener, error) {
	ln, err := new(net.ListenConfig).Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	l := &listener{sim: s, addr: ln.Addr(), conns: map[net.Conn]bool{}}
	l.serve(ln)
	return l, nil
}

func (l *listener) serve(ln net.Listener) {
	l.server = &http.Server{ //nolint:gosec // slow clients do no harm here
		Handler:   l.sim,
		ConnState: l.trackConn,
		ErrorLog:  slog.NewLogLogger(l.sim.log.Handler(), slog.LevelDebug),
	}
	server := l.server
	l.accept.Go(func() { _ = server.Serve(ln) }) // ends when the server is closed
}

// trackConn adds a new connection to the list of connections, or removes a closed
// connection.
func (l *listener) trackConn(conn net.Conn, state http.ConnState) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch state {
	case http.StateClosed, http.StateHijacked:
		delete(l.conns, conn)
		l.open.Done()
	case http.StateNew:
		l.conns[conn] = true
		l.open.Add(1)
		switch {
		case l.server == nil:
			resetConn(conn)
		case l.closed: // the server stopped while it accepted the connection
			_ = conn.Close()
		}
	}
}

// die resets all connections and accepts no new connections.
func (l *listener) die() {
	l.mu.Lock()
	server := l.server
	l.server = nil
	for conn := range l.conns {
		resetConn(conn)
	}
	l.mu.Unlock()
	if server != nil {
		_ = server.Close()
	}
}

// revive accepts connections again at the same address.
func (l *listener) revive(ctx context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || l.server != nil {
		return nil
	}
	ln, err := new(net.ListenConfig).Listen(ctx, "tcp", l.addr.String())
	if err != nil {
		return err
	}
	l.serve(ln)
	return nil
}

// stop accepts no new connections, lets running requests end until ctx ends, and then
// closes their connections. It returns when all connections are closed.
func (l *listener) stop(ctx context.Context) {
	l.mu.Lock()
	server := l.server
	l.closed = true
	l.mu.Unlock()
	if server != nil && server.Shutdown(ctx) != nil {
		_ = server.Close()
	}
	l.accept.Wait()
	l.open.Wait()
}

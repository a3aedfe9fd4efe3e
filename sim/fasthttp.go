package sim

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"
)

// headerBytes bounds the header of a request.
const headerBytes = 16 << 10

// fastListener serves connections with fasthttp, which costs about half of
// net/http per request. It accepts and keeps the connections itself, because
// fasthttp's own loop neither notices a client that goes away nor stops
// without polling.
type fastListener struct {
	s      *Server
	server *fasthttp.Server
	addr   net.Addr
	wg     sync.WaitGroup // the accept loops and all connections

	mu     sync.Mutex
	ln     net.Listener // closed while dead
	conns  map[*conn]struct{}
	dead   bool
	closed bool
}

func listen(ctx context.Context, addr string, s *Server) (*fastListener, error) {
	ln, err := new(net.ListenConfig).Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	l := &fastListener{s: s, addr: ln.Addr(), ln: ln, conns: map[*conn]struct{}{}}
	l.server = &fasthttp.Server{
		Handler:                      l.handle,
		ErrorHandler:                 l.malformed,
		Name:                         ServerName,
		ReadBufferSize:               headerBytes,
		MaxRequestBodySize:           s.maxBody,
		NoDefaultDate:                true, // its clock is a goroutine without end
		NoDefaultContentType:         true,
		DisablePreParseMultipartForm: true,
		Logger:                       fastLog{s.log},
	}
	l.wg.Add(1)
	go l.accept(ln)
	return l, nil
}

// acceptPause is how long to wait when no connection can be accepted, such as
// when all file descriptors are taken.
const acceptPause = 20 * time.Millisecond

func (l *fastListener) accept(ln net.Listener) {
	defer l.wg.Done()
	for {
		raw, err := ln.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			l.s.log.Warn("accepting a connection failed", slog.Any("err", err))
			select {
			case <-time.After(acceptPause):
				continue
			case <-l.s.stopping:
				return
			}
		}
		c := &conn{Conn: raw, stopping: l.s.stopping, grace: watchGrace}
		if !l.keep(c) {
			_ = raw.Close()
			return
		}
		go func() {
			defer l.wg.Done()
			defer l.drop(c)
			if err := l.server.ServeConn(c); err != nil {
				l.s.log.Debug("connection ended", slog.Any("err", err))
			}
		}()
	}
}

// die resets all connections and accepts no more.
func (l *fastListener) die() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dead = true
	_ = l.ln.Close()
	for c := range l.conns {
		resetConn(c.Conn)
	}
}

// revive accepts again at the same address.
func (l *fastListener) revive(ctx context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || !l.dead {
		return nil
	}
	ln, err := new(net.ListenConfig).Listen(ctx, "tcp", l.addr.String())
	if err != nil {
		return err
	}
	l.ln, l.dead = ln, false
	l.wg.Add(1)
	go l.accept(ln)
	return nil
}

// keep registers a connection, unless the listener is closed or dead.
func (l *fastListener) keep(c *conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || l.dead {
		return false
	}
	l.conns[c] = struct{}{}
	l.wg.Add(1)
	return true
}

func (l *fastListener) drop(c *conn) {
	l.mu.Lock()
	delete(l.conns, c)
	l.mu.Unlock()
	_ = c.Close()
}

// closeConns ends accepting, and closes the connections that wait for a
// request, or all.
func (l *fastListener) closeConns(all bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	_ = l.ln.Close()
	for c := range l.conns {
		if all || c.idle.Load() {
			_ = c.Conn.Close()
		}
	}
}

// stop ends the listener. The server's stopping channel is closed by now, so
// that connections end themselves after their present answer.
func (l *fastListener) stop(ctx context.Context) {
	l.closeConns(false)
	done := make(chan struct{})
	go func() {
		l.wg.Wait()
		close(done)
	}()
	select {
	case <-done:
		return
	case <-ctx.Done():
	}
	l.closeConns(true)
	<-done
}

func (l *fastListener) handle(ctx *fasthttp.RequestCtx) {
	c, ok := ctx.Conn().(*conn)
	if !ok {
		ctx.Error("connection of an unknown kind", fasthttp.StatusInternalServerError)
		return
	}
	x := &c.exchange
	x.ctx, x.conn, x.streams = ctx, c, false
	l.s.serve(x)
	if !x.streams {
		c.unwatch()
	}
}

// malformed answers what fasthttp cannot read as a request.
func (l *fastListener) malformed(ctx *fasthttp.RequestCtx, err error) {
	f := badRequest("", "read request: %v", err)
	var small *fasthttp.ErrSmallBuffer
	switch {
	case errors.Is(err, fasthttp.ErrBodyTooLarge):
		f = bodyTooLarge(l.s.maxBody)
	case errors.As(err, &small):
		f = &failure{status: 431, kind: "BadRequestError", text: fmt.Sprintf("the header exceeds %d bytes", headerBytes)}
	}
	x := &fastExchange{ctx: ctx, conn: &conn{}}
	l.s.refuse(x, f)
}

// fastExchange is an exchange over fasthttp.
type fastExchange struct {
	ctx     *fasthttp.RequestCtx
	conn    *conn
	streams bool // the answer is sent after the handler returns
}

var _ exchange = (*fastExchange)(nil)

func (x *fastExchange) method() []byte            { return x.ctx.Method() }
func (x *fastExchange) path() []byte              { return x.ctx.Path() }
func (x *fastExchange) body() []byte              { return x.ctx.PostBody() }
func (x *fastExchange) header(name string) []byte { return x.ctx.Request.Header.Peek(name) }
func (x *fastExchange) context() context.Context  { return presence{x.conn} }
func (x *fastExchange) buffer() []byte            { return x.conn.out[:0] }

func (x *fastExchange) head(status int, contentType string) {
	h := &x.ctx.Response.Header
	h.SetStatusCode(status)
	h.SetContentType(contentType)
	h.Set("X-Simulated", "true")
}

func (x *fastExchange) answer(status int, contentType string, wait time.Duration, body []byte) {
	x.head(status, contentType)
	if wait > 0 {
		x.ctx.Response.Header.Set("Retry-After", retryAfter(wait))
	}
	x.ctx.Response.SetBodyRaw(body) // the connection's own, untouched until its next request
	if cap(body) <= keepBytes {
		x.conn.out = body
	}
}

func (x *fastExchange) stream(contentType string, body io.ReadCloser) {
	x.head(fasthttp.StatusOK, contentType)
	x.streams = true
	x.ctx.Response.SetBodyStream(&watchedBody{body, x.conn}, -1)
}

func (x *fastExchange) reset() {
	x.conn.unwatch()
	resetConn(x.conn.Conn)
}

func (x *fastExchange) seize(take func(net.Conn)) {
	x.conn.unwatch()
	take(x.conn.Conn)
}

// watchedBody ends the watch for the client with the stream.
type watchedBody struct {
	io.ReadCloser
	conn *conn
}

// Close ends both.
func (b *watchedBody) Close() error {
	b.conn.unwatch()
	return b.ReadCloser.Close()
}

// fastLog passes on the few lines that fasthttp logs.
type fastLog struct{ log *slog.Logger }

// Printf logs a line of fasthttp.
func (f fastLog) Printf(format string, args ...any) {
	f.log.Debug("fasthttp said something", slog.String("text", fmt.Sprintf(format, args...)))
}

// conn is a connection that can be watched while its request is served.
// fasthttp reads from it in one goroutine, never while a handler runs.
type conn struct {
	net.Conn
	stopping chan struct{}
	grace    time.Duration // before a client is watched
	idle     atomic.Bool   // waiting for a request
	out      []byte        // the body of the last answer, reused
	exchange fastExchange  // the present request
	watch    *watch        // nil until somebody waits for the client to go
	ahead    [1]byte       // read by the watch, belongs to the next request
	hasAhead bool
}

// Read reads for fasthttp. It ends the connection between two requests once
// the server stops.
func (c *conn) Read(p []byte) (int, error) {
	if c.hasAhead && len(p) > 0 {
		c.hasAhead = false
		p[0] = c.ahead[0]
		return 1, nil
	}
	c.idle.Store(true)
	select {
	case <-c.stopping:
		return 0, io.EOF
	default:
	}
	n, err := c.Conn.Read(p)
	c.idle.Store(false)
	return n, err
}

func bodyTooLarge(limit int) *failure {
	return &failure{status: 413, kind: "RequestTooLargeError", text: fmt.Sprintf("the body exceeds %d bytes", limit)}
}

// retryAfter writes a wait in whole seconds, rounded up.
func retryAfter(wait time.Duration) string {
	return strconv.FormatInt(int64(math.Ceil(wait.Seconds())), 10)
}

// resetConn closes a connection so that the peer sees a reset.
func resetConn(conn net.Conn) {
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // without it the close is only less rude
	}
	_ = conn.Close()
}

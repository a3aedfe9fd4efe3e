package openai

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/valyala/fasthttp"
)

// A conn is one connection to the server, used by one row at a time.
type conn struct {
	net.Conn
	raw    net.Conn // the TCP connection below TLS; the same as Conn without TLS
	in     *bufio.Reader
	header fasthttp.ResponseHeader // of the current reply
	body   replyBody               // of the current reply

	deadline  time.Time // of reads and writes, set by applyDeadline; zero at first
	idleSince time.Time // time when the connection went back to the pool
	isReused  bool      // the connection was in the pool: it has carried an earlier request
	watch     contextWatch
}

// A contextWatch closes a connection when the context of its row ends. The rows of a job share
// one context, so a watch on this context serves one row after the other.
type contextWatch struct {
	ctx  context.Context // the watched context, nil for none
	stop func() bool     // ends the watch on ctx

	mu    sync.Mutex
	row   context.Context // context of the row that uses the connection now; nil if no row uses it
	ended bool            // the context ended while a row used the connection, so the connection is closed
}

// startRow marks c as used by a row with context ctx. If ctx ends before the row calls
// endRow, the watch that startRow starts closes the connection.
func (c *conn) startRow(ctx context.Context) {
	w := &c.watch
	w.mu.Lock()
	w.row = ctx
	if w.ctx == ctx {
		if ctx.Err() != nil { // the watch may have ended before it could see the row
			w.ended = true
			_ = c.raw.Close()
		}
		w.mu.Unlock()
		return
	}
	w.mu.Unlock()
	c.stopContextWatch()
	w.ctx, w.stop = ctx, context.AfterFunc(ctx, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.row == ctx {
			w.ended = true
			_ = c.raw.Close() // closing the TLS connection would first send a TLS message
		}
	})
}

// endRow marks c as no longer used by a row. It reports whether the connection is still
// open.
func (c *conn) endRow() bool {
	c.watch.mu.Lock()
	defer c.watch.mu.Unlock()
	c.watch.row = nil
	return !c.watch.ended
}

// stopContextWatch ends the watch on the context.
func (c *conn) stopContextWatch() {
	if c.watch.stop != nil {
		c.watch.stop()
		c.watch.ctx, c.watch.stop = nil, nil
	}
}

// discard closes c for good: nothing uses c afterwards.
func (c *conn) discard() {
	c.stopContextWatch()
	_ = c.Close()
}

// A pool stores the idle connections to one server. It reuses the most recently used
// connection first.
type pool struct {
	dialer  net.Dialer
	address string        // HOST:PORT of the server
	tls     *tls.Config   // nil for plain connections
	proxy   *url.URL      // nil for none
	buffer  int           // size of a connection's read buffer, in bytes
	keep    int           // maximum number of idle connections
	timeout time.Duration // time after which the pool closes an idle connection

	mu     sync.Mutex
	idle   []*conn     // idle connections, the longest idle first
	reaper *time.Timer // runs reap; nil if no run is scheduled
	closed bool
}

// get returns the idle connection that was used last; nil if there is none.
func (p *pool) get() *conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	last := len(p.idle) - 1
	if last < 0 {
		return nil
	}
	c := p.idle[last]
	p.idle[last] = nil
	p.idle = p.idle[:last]
	return c
}

// put puts a connection back into the pool. If the pool is full or closed, put closes
// the connection.
func (p *pool) put(c *conn) {
	c.isReused = true
	c.idleSince = time.Now()
	p.mu.Lock()
	full := p.closed || len(p.idle) >= p.keep
	if !full {
		p.idle = append(p.idle, c)
		if p.reaper == nil {
			p.reaper = time.AfterFunc(p.timeout, p.reap)
		}
	}
	p.mu.Unlock()
	if full {
		c.discard()
	}
}

// reap closes the connections that were idle for the pool's timeout. It schedules its
// next run while idle connections are left.
func (p *pool) reap() {
	p.mu.Lock()
	old := 0
	for old < len(p.idle) && time.Since(p.idle[old].idleSince) >= p.timeout {
		old++
	}
	expired := slices.Clone(p.idle[:old])
	p.idle = slices.Delete(p.idle, 0, old)
	p.reaper = nil
	if len(p.idle) > 0 {
		p.reaper = time.AfterFunc(p.timeout-time.Since(p.idle[0].idleSince), p.reap)
	}
	p.mu.Unlock()
	for _, c := range expired {
		c.discard()
	}
}

// closeIdle closes all idle connections. send calls closeIdle if the server has closed the
// most recently used connection: the other connections were idle for longer.
func (p *pool) closeIdle() {
	p.mu.Lock()
	idle := p.idle
	p.idle = nil
	if p.reaper != nil {
		p.reaper.Stop()
		p.reaper = nil
	}
	p.mu.Unlock()
	for _, c := range idle {
		c.discard()
	}
}

// close drops all idle connections. Connections in use are closed when their requests
// end.
func (p *pool) close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.closeIdle()
}

// dial opens a new connection to the server, through the proxy if there is one. It
// fails if the connection is not ready at the time until.
func (p *pool) dial(ctx context.Context, until time.Time) (*conn, error) {
	if limit := time.Now().Add(p.dialer.Timeout); limit.Before(until) {
		until = limit
	}
	ctx, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	address := p.address
	if p.proxy != nil {
		address = hostPort(p.proxy, "80")
	}
	plain, err := p.dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	if p.proxy != nil && p.tls != nil {
		if err := openProxyTunnel(ctx, plain, p.proxy, p.address); err != nil {
			_ = plain.Close()
			return nil, err
		}
	}
	spoken := plain
	if p.tls != nil {
		secure := tls.Client(plain, p.tls)
		if err := secure.HandshakeContext(ctx); err != nil {
			_ = plain.Close()
			return nil, fmt.Errorf("TLS handshake: %w", err)
		}
		spoken = secure
	}
	c := &conn{Conn: spoken, raw: plain, in: bufio.NewReaderSize(spoken, p.buffer)}
	c.header.SetNoDefaultContentType(true)
	return c, nil
}

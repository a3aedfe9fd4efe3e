package openai

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/url"
	"sync"
	"time"

	"github.com/valyala/fasthttp"
)

// A conn is one connection to the server, used by one row at a time.
type conn struct {
	net.Conn
	raw    net.Conn // what Conn speaks TLS on, or Conn itself
	in     *bufio.Reader
	header fasthttp.ResponseHeader // of the current reply
	body   body                    // of the current reply

	deadline  time.Time // of reads and writes, as endAt sets it; zero before
	idleSince time.Time
	kept      bool // it has carried a request before
	watch     watch
}

// A watch closes a connection once the context of the row on it has ended.
// Rows of one job have one context, which is watched on from row to row.
type watch struct {
	ctx  context.Context // that is watched, nil for none
	stop func() bool     // ends the watching

	mu    sync.Mutex
	row   context.Context // of the row on the connection; nil where there is none
	ended bool            // its context has, and the connection is closed
}

// begin has the connection closed once ctx ends, until end.
func (c *conn) begin(ctx context.Context) {
	w := &c.watch
	w.mu.Lock()
	w.row = ctx
	w.mu.Unlock()
	if w.ctx == ctx {
		return
	}
	c.unwatch()
	w.ctx, w.stop = ctx, context.AfterFunc(ctx, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.row == ctx {
			w.ended = true
			_ = c.raw.Close() // TLS would say goodbye first
		}
	})
}

// end ends the row's use of the connection. It reports whether that is open.
func (c *conn) end() bool {
	c.watch.mu.Lock()
	defer c.watch.mu.Unlock()
	c.watch.row = nil
	return !c.watch.ended
}

// unwatch lets go of the context that is watched.
func (c *conn) unwatch() {
	if c.watch.stop != nil {
		c.watch.stop()
		c.watch.ctx, c.watch.stop = nil, nil
	}
}

// shut closes a connection that carries no further row.
func (c *conn) shut() {
	c.unwatch()
	_ = c.Close()
}

// A pool keeps idle connections. The one used last is used next.
type pool struct {
	dialer  net.Dialer
	address string
	tls     *tls.Config // nil for plain connections
	proxy   *url.URL    // nil for none
	buffer  int         // bytes of a read buffer
	keep    int         // most idle connections
	timeout time.Duration

	mu     sync.Mutex
	idle   []*conn // the longest idle first
	reaper *time.Timer
	closed bool
}

// get returns the idle connection that was used last, nil where there is none.
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

// put takes a connection back, or closes it where there are enough.
func (p *pool) put(c *conn) {
	c.kept = true
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
		c.shut()
	}
}

// reap closes connections that have been idle for too long, and comes back
// while there are others.
func (p *pool) reap() {
	p.mu.Lock()
	old := 0
	for old < len(p.idle) && time.Since(p.idle[old].idleSince) >= p.timeout {
		old++
	}
	expired := append([]*conn(nil), p.idle[:old]...)
	kept := copy(p.idle, p.idle[old:])
	clear(p.idle[kept:])
	p.idle = p.idle[:kept]
	p.reaper = nil
	if kept > 0 {
		p.reaper = time.AfterFunc(p.timeout-time.Since(p.idle[0].idleSince), p.reap)
	}
	p.mu.Unlock()
	for _, c := range expired {
		c.shut()
	}
}

// drop closes all idle connections: one of them was found closed by the server,
// and the others have been idle for longer.
func (p *pool) drop() {
	p.mu.Lock()
	idle := p.idle
	p.idle = nil
	if p.reaper != nil {
		p.reaper.Stop()
		p.reaper = nil
	}
	p.mu.Unlock()
	for _, c := range idle {
		c.shut()
	}
}

// close drops all idle connections and makes the ones in use close when they
// come back.
func (p *pool) close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.drop()
}

// dial opens a connection, until the given time at most.
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
		if err := tunnel(ctx, plain, p.proxy, p.address); err != nil {
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

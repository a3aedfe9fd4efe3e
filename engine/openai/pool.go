package openai

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/valyala/fasthttp"
)

// A conn is one connection to the server, used by one row at a time.
type conn struct {
	net.Conn
	in     *bufio.Reader
	header fasthttp.ResponseHeader // of the current reply
	body   body                    // of the current reply

	idleSince time.Time
	kept      bool        // it has carried a request before
	abort     func()      // closes the connection; made once, for context.AfterFunc
	release   func() bool // ends the watch on the current row's context
}

// A pool keeps idle connections. The one used last is used next.
type pool struct {
	dialer  net.Dialer
	address string
	tls     *tls.Config // nil for plain connections
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
		_ = c.Close()
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
		_ = c.Close()
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
		_ = c.Close()
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
	raw, err := p.dialer.DialContext(ctx, "tcp", p.address)
	if err != nil {
		return nil, err
	}
	if p.tls != nil {
		secure := tls.Client(raw, p.tls)
		if err := secure.HandshakeContext(ctx); err != nil {
			_ = raw.Close()
			return nil, fmt.Errorf("TLS handshake: %w", err)
		}
		raw = secure
	}
	c := &conn{Conn: raw, in: bufio.NewReaderSize(raw, p.buffer)}
	c.header.SetNoDefaultContentType(true)
	c.abort = func() { _ = raw.Close() }
	return c, nil
}

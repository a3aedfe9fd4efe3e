package openai

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/rowmill/rowmill/engine"
)

// errStale reports that the server closed a reused connection before it sent the first
// byte of an answer.
var errStale = errors.New("the server closed the reused connection")

// requests is the pool of request buffers. A request uses its buffer only while it is
// sent, so there are few buffers even with many rows in flight.
var requests = sync.Pool{New: func() any { return new([]byte) }}

// maxRequestScratch is the largest capacity in bytes of a buffer that goes back to the
// pool requests.
const maxRequestScratch = 256 << 10

// A callTimeout is the timeout of a call, which includes the time in the server's queue.
type callTimeout struct {
	length time.Duration // length of the timeout
	until  time.Time     // time when the timeout expires
}

func newCallTimeout(timeout time.Duration) callTimeout {
	return callTimeout{length: timeout, until: time.Now().Add(timeout)}
}

// send posts one request and returns the connection after it has read the reply's
// header. The caller then reads the body and calls releaseConn. head is the HTTP head of
// the request up to the value of Content-Length; traceparent is the value of the header
// traceparent, empty for none; build appends the body. build may run twice: if the server
// has closed the reused connection, send dials a new connection, once.
func (e *Engine) send(ctx context.Context, head []byte, traceparent string, p callTimeout, appendBody func([]byte) []byte) (*conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if c := e.pool.get(); c != nil {
		err := e.exchange(ctx, c, head, traceparent, p, appendBody)
		if err == nil {
			return c, nil
		}
		if !errors.Is(err, errStale) {
			return nil, e.exchangeError(ctx, err, p)
		}
		e.pool.closeIdle()
	}
	c, err := e.pool.dial(ctx, p.until)
	if err != nil {
		return nil, e.dialError(ctx, err, p)
	}
	if err := e.exchange(ctx, c, head, traceparent, p, appendBody); err != nil {
		return nil, e.exchangeError(ctx, err, p)
	}
	return c, nil
}

// lateShare allows a call to exceed its timeout by the fraction 1/lateShare. So several
// rows can use the same deadline of a connection: to set a deadline for every row would
// cost half as much as reading the header of its reply.
const lateShare = 64

// applyTimeout sets the deadline of reads and writes on c to the end of p, or slightly later
// (see lateShare).
func (c *conn) applyTimeout(p callTimeout) error {
	if late := c.deadline.Sub(p.until); late >= 0 && late <= p.length/lateShare {
		return nil
	}
	return c.applyDeadline(p.until.Add(p.length / lateShare))
}

// applyDeadline sets the deadline of reads and writes on c. Only applyDeadline may set this deadline,
// because c.deadline must have the same value.
func (c *conn) applyDeadline(deadline time.Time) error {
	c.deadline = deadline
	return c.SetDeadline(deadline)
}

// exchange sends a request on c and reads the reply's header. After an error it closes
// c.
func (e *Engine) exchange(ctx context.Context, c *conn, head []byte, traceparent string, p callTimeout, appendBody func([]byte) []byte) error {
	c.startRow(ctx)
	err := c.applyTimeout(p)
	if err == nil {
		err = c.writeRequest(head, e.authorization(), traceparent, appendBody)
	}
	if err == nil || !isTimeout(err) {
		// A server may refuse a large request and close the connection before it has
		// read the whole request. The server's answer explains more than the failed write.
		if readErr := c.readHeader(e.cfg.MaxBodyBytes); readErr == nil || err == nil {
			err = readErr
		}
	}
	if err != nil {
		c.endRow()
		c.discard()
	}
	return err
}

// writeRequest sends a request: head, the length of the body, the headers Authorization and
// traceparent unless they are empty, and the body that build appends.
func (c *conn) writeRequest(head []byte, authorization, traceparent string, appendBody func([]byte) []byte) error {
	buf := requests.Get().(*[]byte)
	// The head contains the length of the body. So build the body first, after enough
	// free bytes, and then write the head directly before the body.
	const digits, who, within, end = 20, "\r\nAuthorization: ", "\r\ntraceparent: ", "\r\n\r\n"
	after := len(end)
	if authorization != "" {
		after += len(who) + len(authorization)
	}
	if traceparent != "" {
		after += len(within) + len(traceparent)
	}
	room := len(head) + digits + after
	whole := appendBody(slices.Grow((*buf)[:0], room)[:room])
	var length [digits]byte
	number := strconv.AppendInt(length[:0], int64(len(whole)-room), 10)
	start := room - after - len(number) - len(head)
	at := start + copy(whole[start:], head)
	at += copy(whole[at:], number)
	if authorization != "" {
		at += copy(whole[at:], who)
		at += copy(whole[at:], authorization)
	}
	if traceparent != "" {
		at += copy(whole[at:], within)
		at += copy(whole[at:], traceparent)
	}
	copy(whole[at:], end)

	_, err := c.Write(whole[start:])
	if cap(whole) <= maxRequestScratch {
		*buf = whole[:0]
		requests.Put(buf)
	}
	return err
}

// errHeader reports a reply that does not begin with a valid HTTP header. It replaces
// the parser's error, which quotes the reply.
var errHeader = errors.New("reply has a malformed header")

// maxInterim limits the number of informational replies (HTTP 1xx) before the final
// reply. Gateways send one or two.
const maxInterim = 16

// readHeader reads the header of the final reply into c.header and opens c.body, which
// may have maxBody bytes. It returns errStale if the server closed a reused connection.
func (c *conn) readHeader(maxBody int64) error {
	if _, err := c.in.Peek(1); err != nil {
		if c.isReused && !isTimeout(err) {
			return errStale
		}
		if errors.Is(err, io.EOF) {
			return fmt.Errorf("connection closed without a reply: %w", io.ErrUnexpectedEOF)
		}
		return err
	}
	for range maxInterim {
		if err := c.header.Read(c.in); err != nil {
			var small *fasthttp.ErrSmallBuffer
			switch {
			case isTimeout(err):
				return err
			case errors.As(err, &small):
				return fmt.Errorf("header of the reply exceeds %d bytes", c.in.Size())
			}
			return errHeader
		}
		switch status := c.header.StatusCode(); {
		case status == 101:
			return errHeader // Rowmill never asks to switch the protocol
		case status >= 200:
			c.body.reset(c.in, c.header.ContentLength(), maxBody)
			return nil
		}
	}
	return errHeader
}

// releaseConn returns c to the pool if the reply was read to its end and the server accepts
// another request on c. Otherwise it closes c.
func (e *Engine) releaseConn(c *conn) {
	if c.endRow() && c.body.done && !c.header.ConnectionClose() && c.in.Buffered() == 0 {
		e.pool.put(c)
		return
	}
	c.discard()
}

// isTimeout reports whether err means that the deadline of a read, a write or a dial
// expired.
func isTimeout(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}

// contextError returns the context's error if the context has ended. It also compares the
// deadline with the clock: a dial may return at the context's deadline shortly before the
// context itself ends.
func contextError(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if deadline, ok := ctx.Deadline(); ok && !time.Now().Before(deadline) {
		return context.DeadlineExceeded
	}
	return nil
}

// codeTimeout is the Code of the error of a call that exceeded its timeout.
const codeTimeout = "timeout"

// timeoutError returns the error of a call that exceeded its timeout.
func (p callTimeout) timeoutError() error {
	return &engine.Error{
		Class: engine.Transient, Code: codeTimeout,
		Message: fmt.Sprintf("no complete answer within %v", p.length.Round(time.Millisecond)),
	}
}

// dialError returns the error for a connection that could not be opened.
func (e *Engine) dialError(ctx context.Context, err error, p callTimeout) error {
	if err := contextError(ctx); err != nil {
		return err
	}
	if !time.Now().Before(p.until) {
		return p.timeoutError()
	}
	class := engine.Busy
	var certificate *tls.CertificateVerificationError
	var record tls.RecordHeaderError
	if errors.As(err, &certificate) || errors.As(err, &record) {
		class = engine.ServerFault // a retry does not repair a certificate
	}
	through := ""
	if e.pool.proxy != nil {
		through = fmt.Sprintf(" through the proxy %s of the environment", e.pool.proxy.Redacted())
	}
	return &engine.Error{Class: class, Code: "unreachable", Message: fmt.Sprintf("connect to the server%s: %v", through, err)}
}

// exchangeError returns the error for a connection that ended, timed out or sent malformed
// data during a row.
func (e *Engine) exchangeError(ctx context.Context, err error, p callTimeout) error {
	if err := contextError(ctx); err != nil {
		return err
	}
	if isTimeout(err) {
		return p.timeoutError()
	}
	if errors.Is(err, errTooLong) || errors.Is(err, errBodyTooLarge) {
		return &engine.Error{Class: engine.Transient, Status: http.StatusOK, Code: "reply_too_large", Message: err.Error()}
	}
	var malformed *syntaxError
	if errors.As(err, &malformed) || errors.Is(err, errTruncated) {
		return &engine.Error{Class: engine.Transient, Status: http.StatusOK, Code: "malformed_reply", Message: err.Error()}
	}
	if errors.Is(err, errHeader) || errors.Is(err, errChunk) {
		return &engine.Error{Class: engine.Transient, Code: "malformed_reply", Message: err.Error()}
	}
	return &engine.Error{Class: engine.Busy, Code: "connection_broken", ConnectionBroke: true, Message: fmt.Sprintf("the connection to the server failed: %v", err)}
}

package sim

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"strconv"
	"time"
)

// Handler serves the simulator through net/http, for tests and for mounting it
// elsewhere. Start costs less per request.
func (s *Server) Handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		x := &stdExchange{w: w, r: r}
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, int64(s.maxBody)))
		if err != nil {
			var tooLarge *http.MaxBytesError
			if errors.As(err, &tooLarge) {
				s.refuse(x, bodyTooLarge(s.maxBody))
				return
			}
			s.refuse(x, badRequest("", "read body: %v", err))
			return
		}
		x.data = body
		s.serve(x)
	})
}

func bodyTooLarge(limit int) *failure {
	return &failure{status: 413, kind: "RequestTooLargeError", text: fmt.Sprintf("the body exceeds %d bytes", limit)}
}

// stdExchange is an exchange over net/http.
type stdExchange struct {
	w    http.ResponseWriter
	r    *http.Request
	data []byte
}

var _ exchange = (*stdExchange)(nil)

func (x *stdExchange) method() []byte           { return []byte(x.r.Method) }
func (x *stdExchange) path() []byte             { return []byte(x.r.URL.Path) }
func (x *stdExchange) body() []byte             { return x.data }
func (x *stdExchange) context() context.Context { return x.r.Context() }
func (x *stdExchange) buffer() []byte           { return nil }

func (x *stdExchange) head(contentType string) http.Header {
	h := x.w.Header()
	h.Set("Server", ServerName)
	h.Set("X-Simulated", "true")
	h.Set("Content-Type", contentType)
	return h
}

func (x *stdExchange) answer(status int, contentType string, wait time.Duration, body []byte) {
	h := x.head(contentType)
	h.Set("Content-Length", strconv.Itoa(len(body)))
	if wait > 0 {
		h.Set("Retry-After", retryAfter(wait))
	}
	x.w.WriteHeader(status)
	_, _ = x.w.Write(body) // a client that is gone needs no answer
}

// retryAfter writes a wait in whole seconds, rounded up.
func retryAfter(wait time.Duration) string {
	return strconv.FormatInt(int64(math.Ceil(wait.Seconds())), 10)
}

func (x *stdExchange) stream(contentType string, body io.ReadCloser) {
	defer func() { _ = body.Close() }()
	x.head(contentType)
	x.w.WriteHeader(http.StatusOK)
	control := http.NewResponseController(x.w)
	buffer := make([]byte, 4096)
	for {
		n, err := body.Read(buffer)
		if n > 0 {
			if _, writeErr := x.w.Write(buffer[:n]); writeErr != nil {
				return
			}
			_ = control.Flush() // a writer that cannot flush delivers late
		}
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			panic(http.ErrAbortHandler) // the documented way to break a connection off
		}
	}
}

func (x *stdExchange) reset() {
	conn, _, err := http.NewResponseController(x.w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	resetConn(conn)
}

// resetConn closes a connection so that the peer sees a reset.
func resetConn(conn net.Conn) {
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // without it the close is only less rude
	}
	_ = conn.Close()
}

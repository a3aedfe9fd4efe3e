package sim

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"
)

// handler serves the simulator through net/http: what it answers does not depend
// on the library that carries it.
func (s *Server) handler() http.Handler {
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

// stdExchange is an exchange over net/http.
type stdExchange struct {
	w    http.ResponseWriter
	r    *http.Request
	data []byte
}

var _ exchange = (*stdExchange)(nil)

func (x *stdExchange) method() []byte            { return []byte(x.r.Method) }
func (x *stdExchange) path() []byte              { return []byte(x.r.URL.Path) }
func (x *stdExchange) body() []byte              { return x.data }
func (x *stdExchange) header(name string) []byte { return []byte(x.r.Header.Get(name)) }
func (x *stdExchange) context() context.Context  { return x.r.Context() }
func (x *stdExchange) buffer() []byte            { return nil }

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

func (x *stdExchange) seize(take func(net.Conn)) {
	conn, _, err := http.NewResponseController(x.w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	take(conn)
}

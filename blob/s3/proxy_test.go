package s3

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/rowmill/rowmill/internal/must"
)

// fault handles a request itself, or returns false to have it forwarded.
type fault func(w http.ResponseWriter, r *http.Request, forward http.Handler) bool

// proxy forwards requests to a server and injects faults.
type proxy struct {
	url string

	mu    sync.Mutex
	fault fault
	seen  map[string]int // requests by operation
}

// newProxy makes a proxy that forwards everything. It keeps the Host header, so
// that signatures for the proxy's address are valid.
func newProxy(t testing.TB, target string) *proxy {
	t.Helper()
	to := must.Get(url.Parse(target))(t)
	transport := &http.Transport{}
	forward := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(to)
			r.Out.Host = r.In.Host
		},
		Transport:     transport,
		FlushInterval: -1,
		ErrorHandler:  func(w http.ResponseWriter, _ *http.Request, _ error) { panic(http.ErrAbortHandler) },
	}
	p := &proxy{seen: map[string]int{}}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.mu.Lock()
		p.seen[operation(r)]++
		fault := p.fault
		p.mu.Unlock()
		if fault == nil || !fault(w, r, forward) {
			forward.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(func() {
		server.Close()
		transport.CloseIdleConnections()
	})
	p.url = server.URL
	return p
}

// inject sets a fault; nil removes it. The counts start again at 0.
func (p *proxy) inject(f fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fault = f
	p.seen = map[string]int{}
}

// count returns how many requests of an operation have arrived.
func (p *proxy) count(operation string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.seen[operation]
}

// first applies a fault to the first n requests of an operation.
func first(n int, of string, f fault) fault {
	var mu sync.Mutex
	return func(w http.ResponseWriter, r *http.Request, forward http.Handler) bool {
		if operation(r) != of {
			return false
		}
		mu.Lock()
		n--
		hit := n >= 0
		mu.Unlock()
		return hit && f(w, r, forward)
	}
}

// refusal answers with an S3 error.
func refusal(status int, code string) fault {
	return func(w http.ResponseWriter, r *http.Request, _ http.Handler) bool {
		_, _ = io.Copy(io.Discard, r.Body) // the client may be gone
		w.Header().Set("Content-Type", "application/xml")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, "<Error><Code>"+code+"</Code><Message>by the test</Message></Error>")
		return true
	}
}

// lostAnswer lets the server do the work and breaks the connection before the
// answer.
func lostAnswer(_ http.ResponseWriter, r *http.Request, forward http.Handler) bool {
	forward.ServeHTTP(httptest.NewRecorder(), r)
	panic(http.ErrAbortHandler)
}

// silence reads the request and never answers.
func silence(_ http.ResponseWriter, r *http.Request, _ http.Handler) bool {
	_, _ = io.Copy(io.Discard, r.Body) // the client may be gone
	<-r.Context().Done()
	return true
}

// cut breaks the connection after n bytes of an answer.
func cut(n int) fault {
	return func(w http.ResponseWriter, r *http.Request, forward http.Handler) bool {
		forward.ServeHTTP(&cutWriter{ResponseWriter: w, left: n}, r)
		return true
	}
}

type cutWriter struct {
	http.ResponseWriter
	left int
}

func (w *cutWriter) Write(p []byte) (int, error) {
	n, err := w.ResponseWriter.Write(p[:min(len(p), w.left)])
	w.left -= n
	if w.left == 0 {
		_ = http.NewResponseController(w.ResponseWriter).Flush() // the bytes so far must arrive
		panic(http.ErrAbortHandler)
	}
	return n, err
}

// shortened ends answers after n bytes, with a Content-Length that hides it.
func shortened(n int) fault {
	return func(w http.ResponseWriter, r *http.Request, forward http.Handler) bool {
		whole := httptest.NewRecorder()
		forward.ServeHTTP(whole, r)
		for name, values := range whole.Header() {
			w.Header()[name] = values
		}
		w.Header().Del("Content-Length")
		w.WriteHeader(whole.Code)
		_, _ = io.CopyN(w, whole.Body, int64(n)) // the client may be gone
		return true
	}
}

// drip sends answers in pieces with a pause before each.
func drip(piece int, pause time.Duration) fault {
	return func(w http.ResponseWriter, r *http.Request, forward http.Handler) bool {
		whole := httptest.NewRecorder()
		forward.ServeHTTP(whole, r)
		for name, values := range whole.Header() {
			w.Header()[name] = values
		}
		w.WriteHeader(whole.Code)
		ticks := time.NewTicker(pause)
		defer ticks.Stop()
		for body := whole.Body.Bytes(); len(body) > 0; {
			n := min(piece, len(body))
			select {
			case <-ticks.C:
			case <-r.Context().Done():
				return true
			}
			if _, err := io.Copy(w, bytes.NewReader(body[:n])); err != nil {
				return true
			}
			_ = http.NewResponseController(w).Flush() // the client may be gone
			body = body[n:]
		}
		return true
	}
}

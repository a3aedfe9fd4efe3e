package http

import (
	nethttp "net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rowmill/rowmill/store/bolt"
)

// A sink is the writer of an answer that is only counted.
type sink struct {
	header nethttp.Header
	status int
	bytes  int64
}

func (s *sink) Header() nethttp.Header { return s.header }
func (s *sink) WriteHeader(status int) { s.status = status }
func (s *sink) Write(p []byte) (int, error) {
	s.bytes += int64(len(p))
	return len(p), nil
}

// BenchmarkList is a page of 100 jobs that are over, of 2,000, from the request's
// headers to the bytes of its answer.
func BenchmarkList(b *testing.B) {
	w := setupStore(b, func(c *bolt.Config) { c.Volatile = new(bolt.Volatile) }, func(c *Config) { c.Logger = nil })
	handler := w.Handler()
	for range 2000 {
		id := w.taken(handler)
		if _, err := w.store.Cancel(b.Context(), id, w.Now(), nil); err != nil {
			b.Fatal(err)
		}
	}
	request := w.request("GET", "/v1/list-jobs?limit=100", "")
	b.ReportAllocs()
	before := processorTime(b)
	defer func() { b.ReportMetric(float64((processorTime(b)-before).Nanoseconds())/float64(b.N), "cpu-ns/op") }()
	for b.Loop() {
		answer := &sink{header: nethttp.Header{}}
		handler.ServeHTTP(answer, request)
		if answer.status != nethttp.StatusOK {
			b.Fatal(answer.status)
		}
		b.SetBytes(answer.bytes)
	}
}

// processorTime is what this process has used.
func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// taken submits a job straight to the handler, and returns its id.
func (w *world) taken(handler nethttp.Handler) string {
	w.Helper()
	answer := httptest.NewRecorder()
	handler.ServeHTTP(answer, w.request("POST", "/v1/batch-inference", `{"model":"qwen-3-4b","inputs":["one row"]}`))
	_, rest, found := strings.Cut(answer.Body.String(), `"results":"`)
	id, _, _ := strings.Cut(rest, `"`)
	if answer.Code != nethttp.StatusOK || !found {
		w.Fatalf("%d %s", answer.Code, answer.Body)
	}
	return id
}

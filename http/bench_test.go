package http

import (
	nethttp "net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rowmill/rowmill/internal/must"
)

// A sink is the writer of an answer; it only counts the bytes.
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

// BenchmarkList reads a page of 100 of 2,000 ended jobs.
func BenchmarkList(b *testing.B) {
	timeGet(b, func([]string, int) string { return "/v1/list-jobs?limit=100" })
}

// BenchmarkStatus reads the status of 2,000 jobs in turn.
func BenchmarkStatus(b *testing.B) {
	timeGet(b, func(jobs []string, i int) string { return "/v1/job-status/" + jobs[i%len(jobs)] })
}

// BenchmarkShow reads the records of 2,000 jobs in turn.
func BenchmarkShow(b *testing.B) {
	timeGet(b, func(jobs []string, i int) string { return "/v1/jobs/" + jobs[i%len(jobs)] })
}

// BenchmarkLive reads nothing, so it measures the base cost of every request.
func BenchmarkLive(b *testing.B) {
	timeGet(b, func([]string, int) string { return "/livez" })
}

// BenchmarkSubmit creates jobs with a row of 1 KB, without a disk.
func BenchmarkSubmit(b *testing.B) {
	w := setupStore(b, time.Now, func(c *Config) { c.Logger = nil })
	handler := w.Handler()
	body := `{"model":"qwen-3-4b","inputs":["` + strings.Repeat("x", 1<<10) + `"]}`
	b.ReportAllocs()
	before := processorTime(b)
	defer func() { b.ReportMetric(float64((processorTime(b)-before).Nanoseconds())/float64(b.N), "cpu-ns/op") }()
	for b.Loop() {
		answer := &sink{header: nethttp.Header{}}
		handler.ServeHTTP(answer, w.request("POST", "/v1/batch-inference", body))
		if answer.status != nethttp.StatusOK {
			b.Fatal(answer.status)
		}
	}
}

// timeGet measures GET requests to a server with 2,000 ended jobs, from the headers of
// the request to the last byte of the answer.
func timeGet(b *testing.B, path func(jobs []string, i int) string) {
	w := setupStore(b, time.Now, func(c *Config) { c.Logger = nil })
	handler := w.Handler()
	jobs := make([]string, 2000)
	for i := range jobs {
		jobs[i] = w.taken(handler)
		must.Get(w.store.Cancel(b.Context(), jobs[i], w.Now(), nil))(b)
	}
	requests := make([]*nethttp.Request, len(jobs))
	for i := range requests {
		requests[i] = w.request("GET", path(jobs, i), "")
	}
	b.ReportAllocs()
	before, i := processorTime(b), 0
	defer func() { b.ReportMetric(float64((processorTime(b)-before).Nanoseconds())/float64(b.N), "cpu-ns/op") }()
	for b.Loop() {
		answer := &sink{header: nethttp.Header{}}
		handler.ServeHTTP(answer, requests[i%len(requests)])
		i++
		if answer.status != nethttp.StatusOK {
			b.Fatal(answer.status)
		}
		b.SetBytes(answer.bytes)
	}
}

// processorTime returns the CPU time that this process has used.
func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var used syscall.Rusage
	must.Succeed(b, syscall.Getrusage(syscall.RUSAGE_SELF, &used))
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// taken submits a job directly to the handler, and returns its id.
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

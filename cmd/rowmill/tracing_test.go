package main

import (
	"fmt"
	"io"
	nethttp "net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/klauspost/compress/gzip"

	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/internal/spantest"
	"github.com/rowmill/rowmill/internal/wait"
)

// collecting is a collector behind a socket. It records the spans and the keys of their
// senders.
type collecting struct {
	mu    sync.Mutex
	spans []spantest.Span
	keys  []string
	paths []string
}

func (c *collecting) ServeHTTP(_ nethttp.ResponseWriter, r *nethttp.Request) {
	var all []spantest.Span
	packed, err := gzip.NewReader(r.Body)
	if err == nil {
		var body []byte
		if body, err = io.ReadAll(packed); err == nil {
			all, err = spantest.Decode(body)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		c.paths = append(c.paths, err.Error())
	}
	c.spans, c.keys, c.paths = append(c.spans, all...), append(c.keys, r.Header.Get("X-Key")), append(c.paths, r.URL.Path)
}

// jobs returns the jobs that have spans, the keys that came with the spans, and the
// paths.
func (c *collecting) jobs() (jobs, keys, paths []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.spans {
		if id, is := s.Attributes["rowmill.job"].(string); is {
			jobs = append(jobs, id)
		}
	}
	return jobs, slices.Compact(slices.Clone(c.keys)), slices.Compact(slices.Clone(c.paths))
}

// A node sends spans of jobs to its collector, with the newest headers. It stops in
// time and without an error if the collector is gone.
func TestTracing(t *testing.T) {
	t.Parallel()
	collector := &collecting{}
	server := httptest.NewServer(collector)
	defer server.Close()
	dir := t.TempDir()
	headers, file := filepath.Join(dir, "headers"), filepath.Join(dir, "rowmill.yaml")
	put(t, headers, "x-key=first\n")
	put(t, file, fmt.Sprintf("data: %s\napi_key: the-key\nsecrets_interval: 0s\nhttp: {listen: '127.0.0.1:0'}\nsimulator: {enabled: always, ttft: 0s, per_token: 0s}\ntracing: {endpoint: %s, headers_file: %s}\n",
		filepath.Join(dir, "data"), server.URL, headers))
	log := &watched{}
	m, hangup := fromFile(t, file, io.MultiWriter(log, testWriter{t}))
	must.Succeed(t, m.Run(t.Context()))
	run := func() string {
		t.Helper()
		code, out, said := runCommand(t.Context(), environ(m, "the-key"), "a row\n", "jobs", "submit", "-", "--format", "json", "--output", "-")
		if code != 0 {
			t.Fatalf("exit code %d: %s%s", code, out, said)
		}
		jobs, _, err := m.Storage.Store.List(t.Context(), "default", 1, "")
		if err != nil || len(jobs) != 1 {
			t.Fatal(jobs, err)
		}
		return jobs[0].ID
	}
	first := run()
	wait.For(t, "the first job is told of", func() bool { jobs, _, _ := collector.jobs(); return slices.Contains(jobs, first) })
	put(t, headers, "x-key=second\n")
	hangup <- syscall.SIGHUP
	wait.For(t, "the headers are in use", func() bool { return strings.Contains(log.String(), "tracing.headers") })
	second := run()
	wait.For(t, "the second job is told of", func() bool { jobs, _, _ := collector.jobs(); return slices.Contains(jobs, second) })
	jobs, keys, paths := collector.jobs()
	if !slices.Equal(jobs, []string{first, second}) || !slices.Equal(keys, []string{"first", "second"}) || !slices.Equal(paths, []string{"/v1/traces"}) {
		t.Errorf("jobs %v were told of with the keys %v at %v", jobs, keys, paths)
	}
	if !strings.Contains(log.String(), `"trace_id":"`+strings.ReplaceAll(strings.TrimPrefix(second, "job-"), "-", "")+`"`) {
		t.Error("the log does not name the trace")
	}
	server.Close()
	run()
	stop(t, m)
	if !strings.Contains(log.String(), "sending spans to the collector failed") {
		t.Error("the log does not say that the collector is gone")
	}
}

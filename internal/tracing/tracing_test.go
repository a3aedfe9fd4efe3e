package tracing_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	spans "go.opentelemetry.io/proto/otlp/trace/v1"
	"go.uber.org/goleak"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/internal/spantest"
	"github.com/rowmill/rowmill/internal/tracing"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// All methods of nil values may be called.
func TestNil(t *testing.T) {
	t.Parallel()
	var tracer *tracing.Tracer
	ctx, span := tracer.BeginRequest(t.Context(), client, "POST /")
	if span != nil || tracing.Traceparent(ctx) != "" {
		t.Error("a request is traced")
	}
	job := tracer.TraceJob(rowmill.NewJobID(), client)
	if job != nil || job.TracesRow(0) {
		t.Error("a job is traced")
	}
	log := slog.New(slog.DiscardHandler)
	if job.WithTraceID(log) != log || span.WithTraceID(log) != log {
		t.Error("another logger")
	}
	job.End(time.Now(), time.Now(), "code")
	job.Begin("a").Begin("b").BeginCall("c").End(io.EOF)
	span.SetAttributes(slog.Int("a", 1))
	span.Fail("code")
	if span.Traceparent() != "" {
		t.Error("a traceparent")
	}
	seconds := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "seconds", Help: "Seconds."})
	span.Observe(seconds, 1)
	if n := testutil.CollectAndCount(seconds); n != 1 {
		t.Errorf("%d metrics", n)
	}
	tracer.Close(t.Context())
}

const (
	clientTrace = "0af7651916cd43dd8448eb211c80319c"
	clientSpan  = "b7ad6b7169203331"
	client      = "00-" + clientTrace + "-" + clientSpan + "-01"
	unsampled   = "00-" + clientTrace + "-" + clientSpan + "-00"
)

// uuidHex returns the UUID of a job id without dashes.
func uuidHex(id string) string { return strings.ReplaceAll(strings.TrimPrefix(id, "job-"), "-", "") }

// onlySpan returns the only span with a name.
func onlySpan(t *testing.T, c *spantest.Collector, name string) spantest.Span {
	t.Helper()
	found := c.Named(name)
	if len(found) != 1 {
		t.Fatalf("%d spans are called %q: %+v", len(found), name, c.Spans())
	}
	return found[0]
}

// Two nodes send spans to one trace and exchange no message.
func TestJob_OnTwoNodes(t *testing.T) {
	t.Parallel()
	var c spantest.Collector
	owner, worker := c.StartTracer(t, nil), c.StartTracer(t, func(cfg *tracing.Config) { cfg.Node = "node2" })
	id, created := rowmill.NewJobID(), time.Now().Add(-time.Minute).Round(0)
	read := owner.TraceJob(id, "").Begin("read the input")
	read.End(rowmill.Failf("invalid_input_file", "the cell %q is no number", "secret"))
	shard := worker.TraceJob(id, "").Begin("shard", slog.Int("rowmill.shard", 17))
	rows := shard.Begin("rows")
	call := rows.BeginCall("chat m", slog.String("a", "b"), slog.Float64("f", 0.5), slog.Bool("yes", true), slog.Duration("waited", 1500*time.Millisecond))
	propagated := call.Traceparent()
	call.Fail("timeout")
	call.End(nil)
	rows.End(errors.New("disk full"))
	shard.End(nil)
	owner.TraceJob(id, "").End(created, created.Add(time.Second), "", slog.Int64("rows", 3))
	worker.Close(t.Context())
	owner.Close(t.Context())

	job := onlySpan(t, &c, "job")
	if job.Trace != uuidHex(id) || job.ID != uuidHex(id)[16:] || job.Parent != "" || !job.Begin.Equal(created) || job.End.Sub(job.Begin) != time.Second || job.Attributes["rows"] != int64(3) || job.Failed {
		t.Errorf("the job is %+v", job)
	}
	got := map[string]spantest.Span{}
	for _, s := range c.Spans() {
		got[s.Name] = s
		if s.Trace != job.Trace {
			t.Errorf("%s is in another trace", s.Name)
		}
	}
	for name, parent := range map[string]string{"read the input": "job", "shard": "job", "rows": "shard", "chat m": "rows"} {
		if got[name].Parent != got[parent].ID {
			t.Errorf("%s is not below %s", name, parent)
		}
	}
	if s := got["read the input"]; !s.Failed || s.Error != "invalid_input_file" || s.Resource["service.instance.id"] != "node1" || s.Resource["service.version"] != "1.2.3" {
		t.Errorf("the span has the client's data or the wrong node: %+v", s)
	}
	if s := got["rows"]; s.Error != "disk full" {
		t.Errorf("got %+v", s)
	}
	s := got["chat m"]
	if s.Kind != spans.Span_SPAN_KIND_CLIENT || s.Error != "timeout" || s.Resource["service.instance.id"] != "node2" || s.Resource["service.name"] != "rowmill" {
		t.Errorf("got %+v", s)
	}
	if s.Attributes["a"] != "b" || s.Attributes["f"] != 0.5 || s.Attributes["yes"] != true || s.Attributes["waited"] != 1.5 || s.Attributes["error.type"] != "timeout" {
		t.Errorf("got %+v", s.Attributes)
	}
	if want := "00-" + s.Trace + "-" + s.ID + "-01"; propagated != want {
		t.Errorf("a server gets the traceparent %s, want %s", propagated, want)
	}
}

// A job submitted within a trace continues the trace that its record names.
func TestJob_ContinuesClientTrace(t *testing.T) {
	t.Parallel()
	var c spantest.Collector
	tracer := c.StartTracer(t, func(cfg *tracing.Config) { cfg.Sample = 0 })
	ctx, request := tracer.BeginRequest(t.Context(), client, "POST /v1/batch-inference", slog.String("http.request.method", "POST"))
	record := tracing.Traceparent(ctx)
	request.End(nil)
	id := rowmill.NewJobID()
	job := tracer.TraceJob(id, record)
	job.Begin("shard").End(nil)
	job.End(time.Now(), time.Now(), "engine_error")
	var text bytes.Buffer
	job.WithTraceID(slog.New(slog.NewTextHandler(&text, nil))).Info("hello")
	request.WithTraceID(slog.New(slog.NewTextHandler(&text, nil))).Info("hello")
	tracer.Close(t.Context())

	served, whole := onlySpan(t, &c, "POST /v1/batch-inference"), onlySpan(t, &c, "job")
	if served.Trace != clientTrace || served.Parent != clientSpan || served.Kind != spans.Span_SPAN_KIND_SERVER {
		t.Errorf("the request is %+v", served)
	}
	if whole.Trace != clientTrace || whole.Parent != served.ID || whole.ID != uuidHex(id)[16:] || whole.Error != "engine_error" {
		t.Errorf("the job is %+v", whole)
	}
	if s := onlySpan(t, &c, "shard"); s.Trace != clientTrace || s.Parent != whole.ID {
		t.Errorf("the shard is %+v", s)
	}
	if n := strings.Count(text.String(), "trace_id="+clientTrace); n != 2 {
		t.Errorf("logs name the trace %d times: %s", n, text.String())
	}
}

// The client's sampling decision counts. An invalid traceparent is ignored.
func TestTraceparents(t *testing.T) {
	t.Parallel()
	var c spantest.Collector
	all := c.StartTracer(t, nil)
	defer all.Close(t.Context())
	ctx, span := all.BeginRequest(t.Context(), unsampled, "POST /")
	if span != nil || tracing.Traceparent(ctx) != unsampled {
		t.Error("an unsampled trace was sampled, or its traceparent was lost")
	}
	if all.TraceJob(rowmill.NewJobID(), unsampled) != nil {
		t.Error("a job is traced against the client's decision")
	}
	for _, none := range []string{"", "00", "00-" + clientTrace + "-" + clientSpan, "00-" + strings.Repeat("0", 32) + "-" + clientSpan + "-01", "ff" + client[2:], strings.ToUpper(client), client + "\r\nx: y"} {
		ctx, span := all.BeginRequest(t.Context(), none, "POST /")
		if span != nil || tracing.Traceparent(ctx) != "" {
			t.Errorf("%q is accepted", none)
		}
		if all.TraceJob(rowmill.NewJobID(), none) == nil {
			t.Errorf("with traceparent %q a job is not traced", none)
		}
	}
	for _, id := range []string{"", "job-1", "job-" + strings.Repeat("x", 36)} {
		if all.TraceJob(id, "") != nil {
			t.Errorf("%q is a job", id)
		}
	}
}

// A share of all jobs is traced, the same jobs by every node, and a larger share
// includes the jobs of a smaller one.
func TestSample(t *testing.T) {
	t.Parallel()
	var c spantest.Collector
	with := func(share float64) *tracing.Tracer {
		tracer := c.StartTracer(t, func(cfg *tracing.Config) { cfg.Sample = share })
		t.Cleanup(func() { tracer.Close(context.WithoutCancel(t.Context())) })
		return tracer
	}
	none, one, again, ten, all := with(0), with(0.01), with(0.01), with(0.1), with(1)
	const jobs = 100_000
	var ones, tens int
	for range jobs {
		id := rowmill.NewJobID()
		inOne, inTen := one.TraceJob(id, "") != nil, ten.TraceJob(id, "") != nil
		if none.TraceJob(id, "") != nil || all.TraceJob(id, "") == nil || inOne != (again.TraceJob(id, "") != nil) || inOne && !inTen {
			t.Fatalf("nodes do not agree on %s", id)
		}
		if inOne {
			ones++
		}
		if inTen {
			tens++
		}
	}
	if ones < jobs/125 || ones > jobs/80 || tens < jobs/11 || tens > jobs/9 { // seven standard deviations
		t.Errorf("%d and %d of %d jobs are traced at 1 and 10 %%", ones, tens, jobs)
	}
}

func TestRows(t *testing.T) {
	t.Parallel()
	for share, want := range map[float64][]int64{
		0: nil, 1: {0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, 0.5: {0, 2, 4, 6, 8}, 0.3: {0, 4, 7}, 0.01: {0, 100, 200, 2900, 1_000_000}, 1e-9: {0, 1_000_000_000},
	} {
		var c spantest.Collector
		tracer := c.StartTracer(t, func(cfg *tracing.Config) { cfg.Rows = share })
		defer tracer.Close(t.Context())
		job := tracer.TraceJob(rowmill.NewJobID(), "")
		var got []int64
		for _, row := range []int64{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 99, 100, 101, 200, 2899, 2900, 2901, 1_000_000, 1_000_001, 1_000_000_000} {
			if job.TracesRow(row) && (share < 0.3 || row < 10) {
				got = append(got, row)
			}
		}
		if share == 0.01 {
			want = append(slices.Clone(want), 1_000_000_000)
		}
		if !slices.Equal(got, want) {
			t.Errorf("with a share of %v the rows %v are traced, want %v", share, got, want)
		}
	}
}

// An exemplar has the ids of its span.
func TestObserve(t *testing.T) {
	t.Parallel()
	var c spantest.Collector
	tracer := c.StartTracer(t, nil)
	span := tracer.TraceJob(rowmill.NewJobID(), "").Begin("a")
	seconds := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "seconds", Help: "Seconds.", Buckets: []float64{1, 2}})
	span.Observe(seconds, 1.5)
	span.End(nil)
	tracer.Close(t.Context())
	registry := prometheus.NewRegistry()
	registry.MustRegister(seconds)
	families := must.Get(registry.Gather())(t)
	labels := map[string]string{}
	for _, l := range families[0].Metric[0].Histogram.Bucket[1].GetExemplar().GetLabel() {
		labels[l.GetName()] = l.GetValue()
	}
	if s := onlySpan(t, &c, "a"); labels["trace_id"] != s.Trace || labels["span_id"] != s.ID {
		t.Errorf("the exemplar is %v, want the span %+v", labels, s)
	}
}

// A rig is a Tracer in virtual time, with its log.
type rig struct {
	*testing.T
	spantest.Collector
	tracer   *tracing.Tracer
	registry *prometheus.Registry
	mu       sync.Mutex
	text     bytes.Buffer
}

func (r *rig) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.Write(p)
}

// logged returns how often words occur in the log.
func (r *rig) logged(words string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Count(r.text.String(), words)
}

func inVirtualTime(t *testing.T, answer func(request *http.Request, n int) (*http.Response, error), run func(r *rig)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := &rig{T: t, registry: prometheus.NewRegistry()}
		r.Answer = answer
		r.tracer = r.StartTracer(t, func(cfg *tracing.Config) {
			cfg.Queue, cfg.Metrics, cfg.Headers = 1000, tracing.NewMetrics(r.registry), map[string]string{"Authorization": "Bearer one"}
			cfg.Logger = slog.New(slog.NewTextHandler(r, nil))
		})
		run(r)
		r.tracer.Close(context.WithoutCancel(t.Context()))
		synctest.Wait()
	})
}

// endSpans starts and ends n spans.
func (r *rig) endSpans(n int) {
	job := r.tracer.TraceJob(rowmill.NewJobID(), "")
	for range n {
		job.Begin("a").End(nil)
	}
}

func (r *rig) counts(sent, failed, dropped int) {
	r.Helper()
	want := fmt.Sprintf(`
# HELP rowmill_tracing_spans_total Spans that ended, by outcome: sent, failed (the collector was away for too long, or refused them), dropped (tracing.queue spans waited already).
# TYPE rowmill_tracing_spans_total counter
rowmill_tracing_spans_total{outcome="dropped"} %d
rowmill_tracing_spans_total{outcome="failed"} %d
rowmill_tracing_spans_total{outcome="sent"} %d
`, dropped, failed, sent)
	if err := testutil.GatherAndCompare(r.registry, strings.NewReader(want)); err != nil {
		r.Error(err)
	}
}

// Spans wait for a second, or until there are enough for a request.
func TestQueue_Batches(t *testing.T) {
	inVirtualTime(t, nil, func(r *rig) {
		r.endSpans(10)
		time.Sleep(time.Second - time.Millisecond)
		if r.Requests() != 0 {
			r.Errorf("%d requests before the second is over", r.Requests())
		}
		time.Sleep(2 * time.Millisecond)
		r.counts(10, 0, 0)
		r.endSpans(512) // batchSpans
		synctest.Wait()
		r.counts(522, 0, 0)
		r.endSpans(88)
		synctest.Wait()
		if r.Requests() != 2 {
			r.Errorf("%d requests, want 2: the last spans wait for more", r.Requests())
		}
		time.Sleep(time.Second + time.Millisecond)
		r.counts(610, 0, 0)
		if r.Requests() != 3 || len(r.Spans()) != 610 {
			r.Errorf("%d requests with %d spans", r.Requests(), len(r.Spans()))
		}
		r.tracer.SetHeaders(map[string]string{"Authorization": "Bearer two"})
		r.endSpans(1)
		r.tracer.Close(r.Context())
		if first, last := r.Request(0).Header.Get("Authorization"), r.Request(3).Header.Get("Authorization"); first != "Bearer one" || last != "Bearer two" {
			r.Errorf("headers are %q and %q", first, last)
		}
		r.counts(611, 0, 0)
	})
}

// An outage of the collector is logged once, and so is its end. Lost spans are counted,
// and ending a span never blocks.
func TestQueue_CollectorIsDown(t *testing.T) {
	var mu sync.Mutex
	down := true
	inVirtualTime(t, func(*http.Request, int) (*http.Response, error) {
		mu.Lock()
		defer mu.Unlock()
		if down {
			return nil, errors.New("connection refused")
		}
		return spantest.NewResponse(http.StatusOK, nil), nil
	}, func(r *rig) {
		before := time.Now()
		r.endSpans(2000)
		if !time.Now().Equal(before) {
			r.Errorf("ending spans blocked for %v", time.Since(before))
		}
		time.Sleep(5 * time.Minute)
		r.counts(0, 1000, 1000)
		if n := r.logged("sending spans to the collector failed"); n != 1 {
			r.Errorf("the log says %d times that the collector is down", n)
		}
		if n := r.logged("dropping spans"); n != 1 {
			r.Errorf("the log says %d times that spans are dropped", n)
		}
		mu.Lock()
		down = false
		mu.Unlock()
		r.endSpans(5)
		time.Sleep(time.Minute)
		r.counts(5, 1000, 1000)
		if n := r.logged("accepts spans again"); n != 1 {
			r.Errorf("the log says %d times that the collector is back", n)
		}
	})
}

// A retryable answer is retried, not before the collector allows it.
func TestQueue_CollectorIsBusy(t *testing.T) {
	var times []time.Time
	inVirtualTime(t, func(_ *http.Request, n int) (*http.Response, error) {
		times = append(times, time.Now())
		answer := spantest.NewResponse(http.StatusServiceUnavailable, []byte("busy"))
		answer.Header.Set("Retry-After", "20")
		if n > 2 {
			answer = spantest.NewResponse(http.StatusOK, nil)
		}
		return answer, nil
	}, func(r *rig) {
		r.endSpans(1)
		time.Sleep(2 * time.Minute)
		r.counts(1, 0, 0)
		for i := 1; i < len(times); i++ {
			if gap := times[i].Sub(times[i-1]); gap < 20*time.Second {
				r.Errorf("retried after %v", gap)
			}
		}
		if len(times) != 3 {
			r.Errorf("%d requests", len(times))
		}
	})
}

// A refusal that is not retryable is not retried.
func TestQueue_CollectorRefuses(t *testing.T) {
	inVirtualTime(t, func(_ *http.Request, n int) (*http.Response, error) {
		switch n {
		case 1:
			return spantest.NewResponse(http.StatusUnauthorized, []byte("who are you?")), nil
		case 2: // partial_success {rejected_spans: 3, error_message: "no"}
			return spantest.NewResponse(http.StatusOK, []byte{0x0a, 6, 0x08, 3, 0x12, 2, 'n', 'o'}), nil
		case 3:
			answer := spantest.NewResponse(http.StatusFound, nil)
			answer.Header.Set("Location", "http://elsewhere.test/")
			return answer, nil
		}
		return spantest.NewResponse(http.StatusOK, []byte("not protocol buffers, \xff\xff\xff")), nil
	}, func(r *rig) {
		for range 4 {
			r.endSpans(10)
			time.Sleep(time.Minute)
		}
		r.counts(17, 23, 0)
		if r.Requests() != 4 {
			r.Errorf("%d requests", r.Requests())
		}
		if r.logged("HTTP 401") != 1 || r.logged("who are you") != 0 {
			r.Error(r.text.String())
		}
	})
}

// A stopping node waits a moment for a slow collector, and not at all for one that is
// down.
func TestClose_IsBounded(t *testing.T) {
	inVirtualTime(t, func(request *http.Request, _ int) (*http.Response, error) {
		<-request.Context().Done()
		return nil, request.Context().Err()
	}, func(r *rig) {
		r.endSpans(900)
		time.Sleep(30 * time.Second)
		before := time.Now()
		r.tracer.Close(r.Context())
		if took := time.Since(before); took > 2*time.Second {
			r.Errorf("it took %v", took)
		}
		r.counts(0, 900, 0)
		r.endSpans(1) // spans that end later are not counted
		r.counts(0, 900, 0)
	})
}

// Package tracing tells a collector of OpenTelemetry what became of jobs, and when: as
// spans, by OTLP over HTTP. It owns which jobs and rows are traced, the ids of their
// traces, and how spans reach the collector without holding anything up. It knows
// nothing of how jobs run.
//
//	POST /v1/batch-inference    a request to the API that came in a trace
//	└─ job                      told by whoever records its end
//	   ├─ read the input, wait for an engine, commit parts, merge …: by its owner
//	   └─ shard                 by each worker that has rows of it
//	      ├─ rows               some that are loaded together, until all are written
//	      │  └─ chat MODEL      a request to an inference server, which is told of it
//	      └─ write a part
//
// Nodes tell each other nothing of it. The ids of a job's trace and of the span that is
// the job follow from its id, or stand in its record where it was submitted within a
// trace, and which jobs are traced follows from those.
//
// A Tracer, Job or Span that is nil traces nothing: all their methods may be called.
package tracing

import (
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/google/uuid"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// Header is the header, of HTTP, that names the span a request is made in.
const Header = "traceparent"

// Config is what a Tracer is made of. The settings have the defaults.
type Config struct {
	Endpoint string            // URL that spans are posted to
	Headers  map[string]string // of each request, such as what the collector knows us by

	// Sample is the share of jobs that are traced, 0 to 1, of those that were not
	// submitted within a trace; of those whoever sampled that has decided. All nodes
	// have the same.
	Sample float64
	// Rows is the share of the rows of such a job whose requests are traced, 0 to 1.
	Rows float64

	Queue   int           // spans that wait to be sent, at most
	Timeout time.Duration // of a request to the collector

	// Transport takes requests to the collector. Default: one that goes by HTTP_PROXY.
	Transport http.RoundTripper

	Node    string // that spans are from, and the version of its program
	Version string
	Metrics Metrics
	Logger  *slog.Logger
}

// A Tracer makes the spans of one node and sends them.
type Tracer struct {
	rows     float64 // of how many one is traced; 0 for none
	least    uint64  // of the random part of a trace's id, where the job is traced
	provider *sdktrace.TracerProvider
	spans    trace.Tracer
	client   *client
}

// New returns a Tracer, which sends spans from now on.
func New(cfg Config) (*Tracer, error) {
	of, err := resource.New(context.Background(), resource.WithTelemetrySDK(), resource.WithAttributes(
		attribute.String("service.name", "rowmill"), attribute.String("service.version", cfg.Version), attribute.String("service.instance.id", cfg.Node),
	), resource.WithFromEnv())
	if err != nil {
		return nil, fmt.Errorf("OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	t := &Tracer{least: threshold(cfg.Sample), client: newClient(cfg)}
	if cfg.Rows > 0 {
		t.rows = 1 / cfg.Rows
	}
	exporter := otlptrace.NewUnstarted(t.client)
	t.provider = sdktrace.NewTracerProvider(
		sdktrace.WithResource(of), sdktrace.WithSampler(sdktrace.AlwaysSample()), // what is not sampled is not begun
		sdktrace.WithIDGenerator(ids{}), sdktrace.WithSpanProcessor(newQueue(cfg, exporter.ExportSpans)),
	)
	t.spans = t.provider.Tracer("github.com/rowmill/rowmill", trace.WithInstrumentationVersion(cfg.Version))
	return t, nil
}

// flushTime is how long a node that stops may take to send its last spans: some of what
// it has for closing everything.
const flushTime = 2 * time.Second

// Close sends what waits, until ctx ends, for flushTime at most. Spans that end later are
// dropped.
func (t *Tracer) Close(ctx context.Context) {
	if t == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, flushTime)
	defer cancel()
	_ = t.provider.Shutdown(ctx) // what is lost is counted
	t.client.http.CloseIdleConnections()
}

// SetHeaders has requests to the collector sent with others from now on.
func (t *Tracer) SetHeaders(headers map[string]string) { t.client.setHeaders(headers) }

// randomBits of a trace's id, the last ones, are random: so the specification of
// traceparent wants it, and a UUID of version 7 has more.
const randomBits = 56

// threshold is what the random part of an id must reach that is among a share of all, as
// OpenTelemetry's samplers by probability have it: of two shares the ids of the smaller
// are among those of the larger.
func threshold(share float64) uint64 {
	return uint64((1 - share) * (1 << randomBits))
}

func (t *Tracer) samples(id trace.TraceID) bool {
	return binary.BigEndian.Uint64(id[8:])&(1<<randomBits-1) >= t.least
}

// A Job is a job that is traced.
type Job struct {
	tracer *Tracer
	parent trace.SpanContext // what it was submitted in; not valid for nothing
	self   trace.SpanContext
	ctx    context.Context // below self
}

// Job is a job by its id and what Traceparent returned when it was submitted. It is nil
// where the job is not traced.
func (t *Tracer) Job(id, traceparent string) *Job {
	if t == nil {
		return nil
	}
	const prefix = len("job-")
	if len(id) < prefix {
		return nil
	}
	own, err := uuid.Parse(id[prefix:])
	if err != nil {
		return nil // made by a test
	}
	j, known := &Job{tracer: t, parent: parse(traceparent)}, trace.TraceID(own)
	switch {
	case !j.parent.IsValid():
		if !t.samples(known) {
			return nil
		}
	case !j.parent.IsSampled():
		return nil
	default:
		known = j.parent.TraceID()
	}
	j.self = trace.NewSpanContext(trace.SpanContextConfig{TraceID: known, SpanID: trace.SpanID(own[8:]), TraceFlags: trace.FlagsSampled})
	j.ctx = trace.ContextWithRemoteSpanContext(context.Background(), j.self)
	return j
}

// Traces reports whether the requests of a row are traced: the first row's, and those of
// as many others as Config.Rows says, spread evenly.
func (j *Job) Traces(row int64) bool {
	if j == nil || j.tracer.rows == 0 {
		return false
	}
	every := j.tracer.rows
	return row == 0 || int64(float64(row)/every) != int64(float64(row-1)/every)
}

// Begin begins a span below that of the job.
func (j *Job) Begin(name string, attrs ...slog.Attr) *Span {
	if j == nil {
		return nil
	}
	return j.tracer.begin(j.ctx, trace.SpanKindInternal, name, attrs)
}

// End tells of the job itself, once it is over. failure is a code, empty for none.
func (j *Job) End(created, ended time.Time, failure string, attrs ...slog.Attr) {
	if j == nil {
		return
	}
	ctx := context.WithValue(context.Background(), knownKey{}, j.self)
	if j.parent.IsValid() {
		ctx = trace.ContextWithRemoteSpanContext(ctx, j.parent)
	}
	s := j.tracer.begin(ctx, trace.SpanKindInternal, "job", attrs, trace.WithTimestamp(created))
	s.Fail(failure)
	s.span.End(trace.WithTimestamp(ended))
}

// Log is a logger whose lines name the job's trace, or the one that is given where the
// job is not traced.
func (j *Job) Log(log *slog.Logger) *slog.Logger {
	if j == nil {
		return log
	}
	return log.With(keyTrace, j.self.TraceID().String())
}

// ids are random, but for spans whose ids are known before.
type ids struct{}

type knownKey struct{}

// NewIDs returns those of a span that begins a trace.
func (ids) NewIDs(ctx context.Context) (id trace.TraceID, span trace.SpanID) {
	if known, ok := ctx.Value(knownKey{}).(trace.SpanContext); ok {
		return known.TraceID(), known.SpanID()
	}
	binary.NativeEndian.PutUint64(id[:8], rand.Uint64())
	binary.NativeEndian.PutUint64(id[8:], rand.Uint64())
	return id, ids{}.NewSpanID(ctx, id)
}

// NewSpanID returns that of a span within a trace.
func (ids) NewSpanID(ctx context.Context, _ trace.TraceID) (id trace.SpanID) {
	if known, ok := ctx.Value(knownKey{}).(trace.SpanContext); ok {
		return known.SpanID()
	}
	binary.NativeEndian.PutUint64(id[:], rand.Uint64()|1) // 0 is none
	return id
}

// parse reads a traceparent; what is none is not valid.
func parse(traceparent string) trace.SpanContext {
	if traceparent == "" {
		return trace.SpanContext{}
	}
	return trace.SpanContextFromContext(propagation.TraceContext{}.Extract(context.Background(), propagation.MapCarrier{Header: traceparent}))
}

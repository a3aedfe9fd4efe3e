// Package tracing sends spans about jobs to an OpenTelemetry collector, by OTLP over
// HTTP. It decides which jobs and rows are traced, sets the ids of their traces, and
// sends spans without delaying anything. It knows nothing of how jobs run.
//
//	POST /v1/batch-inference    an API request that came with a traceparent
//	└─ job                      sent by the node that records the end of the job
//	   ├─ read the input, wait for an engine, commit parts, merge …: by the owner
//	   └─ shard                 by each worker that has rows of the shard
//	      ├─ rows               one group of rows, from loading until all are written
//	      │  └─ chat MODEL      a request to an inference server, with a traceparent
//	      └─ write a part
//
// Nodes exchange no messages about traces. The trace id of a job and the id of its job
// span derive from the job id; for a job submitted within a trace, the record holds the
// client's trace id. The same ids decide which jobs are traced.
//
// All methods of a nil Tracer, Job or Span may be called; they trace nothing.
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

// Header is the HTTP header that names the caller's span.
const Header = "traceparent"

// Config configures a Tracer. The defaults are in the settings.
type Config struct {
	Endpoint string            // URL for POST requests with spans
	Headers  map[string]string // sent with each request, such as credentials

	// Sample is the share of jobs to trace, 0 to 1, and must be the same on all nodes.
	// For a job submitted within a trace the client's sampling decision counts instead.
	Sample float64
	// Rows is the share of a traced job's rows with traced requests, 0 to 1.
	Rows float64

	Queue   int           // largest number of waiting spans
	Timeout time.Duration // timeout of a request to the collector

	// Transport sends requests to the collector. Default: a transport that uses
	// HTTP_PROXY.
	Transport http.RoundTripper

	Node    string // node and program version, sent with the spans
	Version string
	Metrics Metrics
	Logger  *slog.Logger
}

// A Tracer creates and sends the spans of this node.
type Tracer struct {
	rowInterval float64 // one row in each rowInterval rows is traced; 0: none
	least       uint64  // smallest random part of a traced job's trace id
	provider    *sdktrace.TracerProvider
	spans       trace.Tracer
	client      *client
}

// New returns a Tracer and starts to send spans.
func New(cfg Config) (*Tracer, error) {
	node, err := resource.New(context.Background(), resource.WithTelemetrySDK(), resource.WithAttributes(
		attribute.String("service.name", "rowmill"), attribute.String("service.version", cfg.Version), attribute.String("service.instance.id", cfg.Node),
	), resource.WithFromEnv())
	if err != nil {
		return nil, fmt.Errorf("OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	t := &Tracer{least: threshold(cfg.Sample), client: newClient(cfg)}
	if cfg.Rows > 0 {
		t.rowInterval = 1 / cfg.Rows
	}
	exporter := otlptrace.NewUnstarted(t.client)
	t.provider = sdktrace.NewTracerProvider(
		sdktrace.WithResource(node), sdktrace.WithSampler(sdktrace.AlwaysSample()), // for unsampled jobs no span is started
		sdktrace.WithIDGenerator(ids{}), sdktrace.WithSpanProcessor(newQueue(cfg, exporter.ExportSpans)),
	)
	t.spans = t.provider.Tracer("github.com/rowmill/rowmill", trace.WithInstrumentationVersion(cfg.Version))
	return t, nil
}

// flushTime limits how long a stopping node sends its last spans. It is a part of the
// time for stopping everything.
const flushTime = 2 * time.Second

// Close sends the waiting spans until ctx ends, for flushTime at most. Spans that end
// later are dropped.
func (t *Tracer) Close(ctx context.Context) {
	if t == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, flushTime)
	defer cancel()
	_ = t.provider.Shutdown(ctx) // the metric counts lost spans
	t.client.http.CloseIdleConnections()
}

// SetHeaders replaces the headers of requests to the collector.
func (t *Tracer) SetHeaders(headers map[string]string) { t.client.setHeaders(headers) }

// randomBits is the number of random bits at the end of a trace id, by the
// specification of traceparent. A UUID of version 7 has more random bits.
const randomBits = 56

// threshold returns the smallest random part of an id that is sampled at a share, as
// OpenTelemetry's probability samplers define it. A larger share includes all ids of a
// smaller share.
func threshold(share float64) uint64 {
	return uint64((1 - share) * (1 << randomBits))
}

func (t *Tracer) samples(id trace.TraceID) bool {
	return binary.BigEndian.Uint64(id[8:])&(1<<randomBits-1) >= t.least
}

// A Job is a traced job.
type Job struct {
	tracer *Tracer
	parent trace.SpanContext // span of the submission; invalid if there was none
	self   trace.SpanContext
	ctx    context.Context // parent of the spans that Begin starts
}

// Job returns the traced job with an id. traceparent is the value that Traceparent
// returned at its submission. Job returns nil for a job that is not traced.
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
		return nil // ids of tests need not be UUIDs
	}
	j, traceID := &Job{tracer: t, parent: parseTraceparent(traceparent)}, trace.TraceID(own)
	switch {
	case !j.parent.IsValid():
		if !t.samples(traceID) {
			return nil
		}
	case !j.parent.IsSampled():
		return nil
	default:
		traceID = j.parent.TraceID()
	}
	j.self = trace.NewSpanContext(trace.SpanContextConfig{TraceID: traceID, SpanID: trace.SpanID(own[8:]), TraceFlags: trace.FlagsSampled})
	j.ctx = trace.ContextWithRemoteSpanContext(context.Background(), j.self)
	return j
}

// Traces reports whether the requests of a row are traced: row 0 always, and
// Config.Rows of all rows, evenly spread.
func (j *Job) Traces(row int64) bool {
	if j == nil || j.tracer.rowInterval == 0 {
		return false
	}
	every := j.tracer.rowInterval
	return row == 0 || int64(float64(row)/every) != int64(float64(row-1)/every)
}

// Begin starts a child span of the job span.
func (j *Job) Begin(name string, attrs ...slog.Attr) *Span {
	if j == nil {
		return nil
	}
	return j.tracer.begin(j.ctx, trace.SpanKindInternal, name, attrs)
}

// End sends the span of the job itself, after its end. failure is an error code, empty
// for success.
func (j *Job) End(created, ended time.Time, failure string, attrs ...slog.Attr) {
	if j == nil {
		return
	}
	ctx := context.WithValue(context.Background(), presetKey{}, j.self)
	if j.parent.IsValid() {
		ctx = trace.ContextWithRemoteSpanContext(ctx, j.parent)
	}
	s := j.tracer.begin(ctx, trace.SpanKindInternal, "job", attrs, trace.WithTimestamp(created))
	s.Fail(failure)
	s.span.End(trace.WithTimestamp(ended))
}

// Log returns a logger that adds the job's trace id to its lines; for a nil job, log
// itself.
func (j *Job) Log(log *slog.Logger) *slog.Logger {
	if j == nil {
		return log
	}
	return log.With(keyTrace, j.self.TraceID().String())
}

// ids generates random ids, except for spans with preset ids in their context.
type ids struct{}

type presetKey struct{}

// NewIDs returns the ids of a span that starts a trace.
func (ids) NewIDs(ctx context.Context) (id trace.TraceID, span trace.SpanID) {
	if preset, ok := ctx.Value(presetKey{}).(trace.SpanContext); ok {
		return preset.TraceID(), preset.SpanID()
	}
	binary.NativeEndian.PutUint64(id[:8], rand.Uint64())
	binary.NativeEndian.PutUint64(id[8:], rand.Uint64())
	return id, ids{}.NewSpanID(ctx, id)
}

// NewSpanID returns the id of a span in an existing trace.
func (ids) NewSpanID(ctx context.Context, _ trace.TraceID) (id trace.SpanID) {
	if preset, ok := ctx.Value(presetKey{}).(trace.SpanContext); ok {
		return preset.SpanID()
	}
	binary.NativeEndian.PutUint64(id[:], rand.Uint64()|1) // 0 is not a valid id
	return id
}

// parseTraceparent parses a traceparent header. For an empty or invalid header it returns
// an invalid span context.
func parseTraceparent(traceparent string) trace.SpanContext {
	if traceparent == "" {
		return trace.SpanContext{}
	}
	return trace.SpanContextFromContext(propagation.TraceContext{}.Extract(context.Background(), propagation.MapCarrier{Header: traceparent}))
}

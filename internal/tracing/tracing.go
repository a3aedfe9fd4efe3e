// Package tracing sends spans about jobs to an OpenTelemetry collector, by OTLP over
// HTTP. It decides which jobs and rows are traced, and sets the IDs of their traces.
// Sending spans does not delay jobs. The package does not know how jobs run.
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
// All methods of a nil Tracer, JobTrace or Span may be called; they trace nothing.
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

// Header is the HTTP header with the IDs of the caller's trace and span.
const Header = "traceparent"

// Config configures a Tracer. The defaults are in the settings.
type Config struct {
	Endpoint string            // URL for POST requests with spans
	Headers  map[string]string // headers of each request, such as credentials

	// Sample is the share of jobs to trace, 0 to 1. It must be the same on all nodes.
	// For a job that was submitted within a client's trace, the client's sampling
	// decision counts instead.
	Sample float64
	// Rows is the share of a traced job's rows whose requests are traced, 0 to 1.
	Rows float64

	Queue   int           // largest number of waiting spans
	Timeout time.Duration // timeout of a request to the collector

	// Transport sends requests to the collector. Default: a transport that uses
	// HTTP_PROXY.
	Transport http.RoundTripper

	Node    string // name of the node; sent with the spans, like Version
	Version string
	Metrics Metrics
	Logger  *slog.Logger
}

// A Tracer creates and sends the spans of this node.
type Tracer struct {
	rowInterval float64 // one row in each rowInterval rows is traced; 0 means no rows
	least       uint64  // smallest random part of the trace ID of a traced job
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
	t := &Tracer{least: sampleThreshold(cfg.Sample), client: newClient(cfg)}
	if cfg.Rows > 0 {
		t.rowInterval = 1 / cfg.Rows
	}
	exporter := otlptrace.NewUnstarted(t.client)
	t.provider = sdktrace.NewTracerProvider(
		sdktrace.WithResource(node), sdktrace.WithSampler(sdktrace.AlwaysSample()), // callers start no spans for unsampled jobs
		sdktrace.WithIDGenerator(idGenerator{}), sdktrace.WithSpanProcessor(newQueue(cfg, exporter.ExportSpans)),
	)
	t.spans = t.provider.Tracer("github.com/rowmill/rowmill", trace.WithInstrumentationVersion(cfg.Version))
	return t, nil
}

// flushTime limits how long a stopping node sends its last spans. It must be shorter
// than the time for stopping the whole node.
const flushTime = 2 * time.Second

// Close sends the waiting spans until ctx ends, for flushTime at most. Spans that end
// later are dropped.
func (t *Tracer) Close(ctx context.Context) {
	if t == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, flushTime)
	defer cancel()
	_ = t.provider.Shutdown(ctx) // the error does not matter: the metric counts lost spans
	t.client.http.CloseIdleConnections()
}

// SetHeaders replaces the headers of requests to the collector.
func (t *Tracer) SetHeaders(headers map[string]string) { t.client.setHeaders(headers) }

// randomBits is the number of random bits at the end of a trace ID, as the
// specification of traceparent defines it. A UUID of version 7 has more random bits.
const randomBits = 56

// sampleThreshold returns the smallest random part of a trace ID that is sampled for a share
// of jobs, as OpenTelemetry's probability samplers define it. A larger share includes
// all IDs of a smaller share.
func sampleThreshold(share float64) uint64 {
	return uint64((1 - share) * (1 << randomBits))
}

func (t *Tracer) isSampled(id trace.TraceID) bool {
	return binary.BigEndian.Uint64(id[8:])&(1<<randomBits-1) >= t.least
}

// A JobTrace is a traced job.
type JobTrace struct {
	tracer *Tracer
	parent trace.SpanContext // span of the request that submitted the job; invalid if there was none
	self   trace.SpanContext
	ctx    context.Context // context that makes the job span the parent in Begin
}

// TraceJob returns the traced job with this ID. traceparent is the value that Traceparent
// returned when the job was submitted. TraceJob returns nil for a job that is not traced.
func (t *Tracer) TraceJob(id, traceparent string) *JobTrace {
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
	j, traceID := &JobTrace{tracer: t, parent: parseTraceparent(traceparent)}, trace.TraceID(own)
	switch {
	case !j.parent.IsValid():
		if !t.isSampled(traceID) {
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

// TracesRow reports whether the requests of a row are traced. Row 0 is always traced, and
// in total the share Config.Rows of all rows, evenly spread.
func (j *JobTrace) TracesRow(row int64) bool {
	if j == nil || j.tracer.rowInterval == 0 {
		return false
	}
	every := j.tracer.rowInterval
	return row == 0 || int64(float64(row)/every) != int64(float64(row-1)/every)
}

// Begin starts a child span of the job span.
func (j *JobTrace) Begin(name string, attrs ...slog.Attr) *Span {
	if j == nil {
		return nil
	}
	return j.tracer.begin(j.ctx, trace.SpanKindInternal, name, attrs)
}

// End sends the span of the job itself, after the job has ended. failure is an error
// code, empty for success.
func (j *JobTrace) End(created, ended time.Time, failure string, attrs ...slog.Attr) {
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

// WithTraceID returns a logger that adds the job's trace ID to its lines. For a nil job it
// returns log unchanged.
func (j *JobTrace) WithTraceID(log *slog.Logger) *slog.Logger {
	if j == nil {
		return log
	}
	return log.With(keyTrace, j.self.TraceID().String())
}

// idGenerator is a generator of random trace and span IDs. If the context of a span has preset
// IDs, it returns these IDs.
type idGenerator struct{}

type presetKey struct{}

// NewIDs returns the trace ID and span ID of a span that starts a trace.
func (idGenerator) NewIDs(ctx context.Context) (id trace.TraceID, span trace.SpanID) {
	if preset, ok := ctx.Value(presetKey{}).(trace.SpanContext); ok {
		return preset.TraceID(), preset.SpanID()
	}
	binary.NativeEndian.PutUint64(id[:8], rand.Uint64())
	binary.NativeEndian.PutUint64(id[8:], rand.Uint64())
	return id, idGenerator{}.NewSpanID(ctx, id)
}

// NewSpanID returns the ID of a span in an existing trace.
func (idGenerator) NewSpanID(ctx context.Context, _ trace.TraceID) (id trace.SpanID) {
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

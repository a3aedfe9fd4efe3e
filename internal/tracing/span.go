package tracing

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/rowmill/rowmill"
)

// Names of trace and span ids in logs and exemplars.
const (
	keyTrace = "trace_id"
	keySpan  = "span_id"
)

// A Span is one timed step of a trace. It is safe for concurrent use. All methods may
// be called on a nil Span, which traces nothing.
type Span struct {
	tracer *Tracer
	ctx    context.Context // context that makes this span the parent in Begin and BeginCall
	span   trace.Span
}

func (t *Tracer) begin(ctx context.Context, kind trace.SpanKind, name string, attrs []slog.Attr, more ...trace.SpanStartOption) *Span {
	more = append(more, trace.WithSpanKind(kind), trace.WithAttributes(attributes(attrs)...))
	ctx, span := t.spans.Start(ctx, name, more...)
	return &Span{t, ctx, span}
}

// Begin starts a child span.
func (s *Span) Begin(name string, attrs ...slog.Attr) *Span {
	if s == nil {
		return nil
	}
	return s.tracer.begin(s.ctx, trace.SpanKindInternal, name, attrs)
}

// BeginCall starts a child span for a request to another server.
func (s *Span) BeginCall(name string, attrs ...slog.Attr) *Span {
	if s == nil {
		return nil
	}
	return s.tracer.begin(s.ctx, trace.SpanKindClient, name, attrs)
}

// Traceparent returns the value of the header traceparent for a request that is made in
// this span; empty for a nil span.
func (s *Span) Traceparent() string {
	if s == nil {
		return ""
	}
	return formatTraceparent(s.span.SpanContext())
}

// formatTraceparent returns a valid span context as the text of the header traceparent.
func formatTraceparent(sc trace.SpanContext) string {
	return "00-" + sc.TraceID().String() + "-" + sc.SpanID().String() + "-" + sc.TraceFlags().String()
}

// SetAttributes adds attributes to the span.
func (s *Span) SetAttributes(attrs ...slog.Attr) {
	if s != nil {
		s.span.SetAttributes(attributes(attrs)...)
	}
}

// Fail marks the span as failed with an error code. An empty code does nothing.
func (s *Span) Fail(code string) {
	if s != nil && code != "" {
		s.span.SetStatus(codes.Error, code)
		s.span.SetAttributes(attribute.String("error.type", code))
	}
}

// End ends the span. err marks it as failed; nil means success. For a *rowmill.Failure
// only the code is sent, because its message may contain data of the client.
func (s *Span) End(err error) {
	if s == nil {
		return
	}
	var failure *rowmill.Failure
	switch {
	case err == nil:
	case errors.As(err, &failure):
		s.Fail(failure.Code)
	default:
		s.span.SetStatus(codes.Error, err.Error())
	}
	s.span.End()
}

// Observe adds a value to a histogram, with the IDs of the span as exemplar.
func (s *Span) Observe(histogram prometheus.Observer, value float64) {
	if s == nil {
		histogram.Observe(value)
		return
	}
	exemplars, ok := histogram.(prometheus.ExemplarObserver)
	if !ok {
		histogram.Observe(value)
		return
	}
	sc := s.span.SpanContext()
	exemplars.ObserveWithExemplar(value, prometheus.Labels{keyTrace: sc.TraceID().String(), keySpan: sc.SpanID().String()})
}

// WithTraceID returns a logger that adds the trace ID to its lines. For a nil span it returns
// log unchanged.
func (s *Span) WithTraceID(log *slog.Logger) *slog.Logger {
	if s == nil {
		return log
	}
	return log.With(keyTrace, s.span.SpanContext().TraceID().String())
}

// BeginRequest starts the span of an API request that came with the header traceparent. It
// returns the context for serving the request, with the span context as OpenTelemetry
// stores it. The span is nil if the client sent no trace or its trace is not sampled.
func (t *Tracer) BeginRequest(ctx context.Context, traceparent, name string, attrs ...slog.Attr) (context.Context, *Span) {
	parent := parseTraceparent(traceparent)
	switch {
	case t == nil || !parent.IsValid():
		return ctx, nil
	case !parent.IsSampled():
		return trace.ContextWithRemoteSpanContext(ctx, parent), nil
	}
	s := t.begin(trace.ContextWithRemoteSpanContext(context.Background(), parent), trace.SpanKindServer, name, attrs)
	return trace.ContextWithSpanContext(ctx, s.span.SpanContext()), s
}

// Traceparent returns the traceparent to store with a job that is submitted under ctx;
// empty if the request had none.
func Traceparent(ctx context.Context) string {
	parent := trace.SpanContextFromContext(ctx)
	if !parent.IsValid() {
		return ""
	}
	return formatTraceparent(parent)
}

// attributes converts slog attributes to OpenTelemetry's attributes. Durations become
// seconds.
func attributes(attrs []slog.Attr) []attribute.KeyValue {
	all := make([]attribute.KeyValue, len(attrs))
	for i, a := range attrs {
		switch v := a.Value.Resolve(); v.Kind() {
		case slog.KindInt64:
			all[i] = attribute.Int64(a.Key, v.Int64())
		case slog.KindFloat64:
			all[i] = attribute.Float64(a.Key, v.Float64())
		case slog.KindBool:
			all[i] = attribute.Bool(a.Key, v.Bool())
		case slog.KindDuration:
			all[i] = attribute.Float64(a.Key, v.Duration().Round(time.Microsecond).Seconds())
		default:
			all[i] = attribute.String(a.Key, v.String())
		}
	}
	return all
}

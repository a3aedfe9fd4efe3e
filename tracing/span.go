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

// The names of ids in logs and exemplars.
const (
	keyTrace = "trace_id"
	keySpan  = "span_id"
)

// A Span is something that lasts. It is safe for concurrent use.
type Span struct {
	tracer *Tracer
	ctx    context.Context // below it
	span   trace.Span
}

func (t *Tracer) begin(ctx context.Context, kind trace.SpanKind, name string, attrs []slog.Attr, more ...trace.SpanStartOption) *Span {
	more = append(more, trace.WithSpanKind(kind), trace.WithAttributes(attributes(attrs)...))
	ctx, span := t.spans.Start(ctx, name, more...)
	return &Span{t, ctx, span}
}

// Begin begins a span below this one.
func (s *Span) Begin(name string, attrs ...slog.Attr) *Span {
	if s == nil {
		return nil
	}
	return s.tracer.begin(s.ctx, trace.SpanKindInternal, name, attrs)
}

// Call begins the span of a request to another server.
func (s *Span) Call(name string, attrs ...slog.Attr) *Span {
	if s == nil {
		return nil
	}
	return s.tracer.begin(s.ctx, trace.SpanKindClient, name, attrs)
}

// Traceparent is the value of Header for a request that is made in the span; empty for
// none.
func (s *Span) Traceparent() string {
	if s == nil {
		return ""
	}
	return spell(s.span.SpanContext())
}

// spell writes a valid context of a span as a traceparent.
func spell(sc trace.SpanContext) string {
	return "00-" + sc.TraceID().String() + "-" + sc.SpanID().String() + "-" + sc.TraceFlags().String()
}

// Set adds to what is known of the span.
func (s *Span) Set(attrs ...slog.Attr) {
	if s != nil {
		s.span.SetAttributes(attributes(attrs)...)
	}
}

// Fail notes why it has failed, as a code; empty for not.
func (s *Span) Fail(code string) {
	if s != nil && code != "" {
		s.span.SetStatus(codes.Error, code)
		s.span.SetAttributes(attribute.String("error.type", code))
	}
}

// End ends the span. Of an error only what may stand in a log is told.
func (s *Span) End(err error) {
	if s == nil {
		return
	}
	var failure *rowmill.Failure
	switch {
	case err == nil:
	case errors.As(err, &failure): // its message may hold what is the client's
		s.Fail(failure.Code)
	default:
		s.span.SetStatus(codes.Error, err.Error())
	}
	s.span.End()
}

// Observe has a histogram take what the span has measured, with the span as an exemplar.
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

// Log is a logger whose lines name the trace, or the one that is given.
func (s *Span) Log(log *slog.Logger) *slog.Logger {
	if s == nil {
		return log
	}
	return log.With(keyTrace, s.span.SpanContext().TraceID().String())
}

// Serve begins the span of a request that a client has sent with a traceparent, and
// returns a context to serve it under, as OpenTelemetry's own has it. There is no span
// where the client's trace is not sampled, or there is none.
func (t *Tracer) Serve(ctx context.Context, traceparent, name string, attrs ...slog.Attr) (context.Context, *Span) {
	parent := parse(traceparent)
	switch {
	case t == nil || !parent.IsValid():
		return ctx, nil
	case !parent.IsSampled():
		return trace.ContextWithRemoteSpanContext(ctx, parent), nil
	}
	s := t.begin(trace.ContextWithRemoteSpanContext(context.Background(), parent), trace.SpanKindServer, name, attrs)
	return trace.ContextWithSpanContext(ctx, s.span.SpanContext()), s
}

// Traceparent is what a job goes on from that is submitted under ctx; empty for nothing.
func Traceparent(ctx context.Context) string {
	parent := trace.SpanContextFromContext(ctx)
	if !parent.IsValid() {
		return ""
	}
	return spell(parent)
}

// attributes are those of a span; durations are in seconds.
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

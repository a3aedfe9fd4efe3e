package tracing_test

import (
	"log/slog"
	"net/http"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/internal/spantest"
	"github.com/rowmill/rowmill/internal/tracing"
)

// BenchmarkRequest measures one engine request with a span, from its start to the
// upload, and without one.
func BenchmarkRequest(b *testing.B) {
	c := spantest.Collector{Answer: func(*http.Request, int) (*http.Response, error) {
		return spantest.NewResponse(http.StatusNoContent, nil), nil
	}}
	seconds := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "seconds", Help: "Seconds."})
	for name, sample := range map[string]float64{"traced": 1, "not traced": 0} {
		b.Run(name, func(b *testing.B) {
			tracer := c.StartTracer(b, func(cfg *tracing.Config) { cfg.Sample, cfg.Queue = sample, 1<<30 })
			job := tracer.TraceJob(rowmill.NewJobID(), "")
			rows := job.Begin("rows")
			b.ReportAllocs()
			for b.Loop() {
				var span *tracing.Span
				if job != nil {
					span = rows.BeginCall("chat m", slog.String("gen_ai.operation.name", "chat"), slog.String("gen_ai.request.model", "m"),
						slog.String("rowmill.engine", "e"), slog.Int64("rowmill.row", 17), slog.Int("rowmill.rows", 1), slog.Int("rowmill.attempt", 1))
				}
				_ = span.Traceparent()
				span.Observe(seconds, 0.5)
				if span != nil {
					span.SetAttributes(slog.Int64("gen_ai.usage.input_tokens", 100), slog.Int64("gen_ai.usage.output_tokens", 100))
					span.End(nil)
				}
			}
			tracer.Close(b.Context())
		})
	}
}

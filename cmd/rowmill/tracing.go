package main

import (
	"context"
	"fmt"
	"os"

	"github.com/rowmill/rowmill/cmd/rowmill/settings"
	"github.com/rowmill/rowmill/internal/tracing"
)

// tracingPart is the part of a node that sends the traces of jobs to a collector.
type tracingPart struct {
	partBase
	Tracer *tracing.Tracer // nil if jobs are not traced
}

// Start sends traces to the collector in the settings, if they name one.
func (t *tracingPart) Start(context.Context) error {
	metrics, set := tracing.NewMetrics(t.Registry), t.Settings.Tracing
	if set.Endpoint == "" {
		if unused := os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT"); unused != "" {
			t.Logger.Info("OTEL_EXPORTER_OTLP_ENDPOINT is set, but nothing is traced: other variables of OpenTelemetry name a protocol other than http/protobuf, name an exporter other than otlp, or turn tracing off; set tracing.endpoint to trace jobs anyway")
		}
		return nil
	}
	headers, err := set.HeaderValues()
	if err != nil {
		return fmt.Errorf("tracing.headers: %w", err)
	}
	t.Tracer, err = tracing.New(tracing.Config{
		Endpoint: set.Endpoint, Headers: headers, Sample: set.Sample, Rows: set.Rows, Queue: set.Queue, Timeout: set.Timeout,
		Node: t.nodeName(), Version: readBuildMetadata().Version, Metrics: metrics, Logger: t.Logger,
	})
	if err != nil {
		return fmt.Errorf("tracing: %w", err)
	}
	t.addCloser("tracing", func(ctx context.Context) error { t.Tracer.Close(ctx); return nil })
	t.Logger.Info("jobs are traced", "collector", set.Endpoint, "sample", set.Sample, "rows", set.Rows)
	return nil
}

func (t *tracingPart) reloadableSecrets() []reloadableSecret {
	if t.Tracer == nil {
		return nil
	}
	return []reloadableSecret{newParsedSecret("tracing.headers", func(set settings.Settings) settings.Secret { return set.Tracing.Headers },
		func(set settings.Settings) (map[string]string, error) { return set.Tracing.HeaderValues() },
		func(headers map[string]string) error { t.Tracer.SetHeaders(headers); return nil })}
}

package main

import (
	"context"
	"fmt"
	"os"

	"github.com/rowmill/rowmill/internal/tracing"
)

// openTracing begins to tell a collector of jobs, where one is named.
func (m *Main) openTracing(context.Context) error {
	metrics, set := tracing.NewMetrics(m.Registry), m.Settings.Tracing
	if set.Endpoint == "" {
		if unused := os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT"); unused != "" {
			m.Logger.Info("OTEL_EXPORTER_OTLP_ENDPOINT is set and nothing is traced: other variables of OpenTelemetry ask for another protocol than http/protobuf, another exporter, or none; tracing.endpoint goes before them")
		}
		return nil
	}
	headers, err := set.HeaderValues()
	if err != nil {
		return fmt.Errorf("tracing.headers: %w", err)
	}
	m.Tracer, err = tracing.New(tracing.Config{
		Endpoint: set.Endpoint, Headers: headers, Sample: set.Sample, Rows: set.Rows, Queue: set.Queue, Timeout: set.Timeout,
		Node: m.nodeName(), Version: buildInfo().Version, Metrics: metrics, Logger: m.Logger,
	})
	if err != nil {
		return fmt.Errorf("tracing: %w", err)
	}
	m.opened("tracing", func(ctx context.Context) error { m.Tracer.Close(ctx); return nil })
	m.Logger.Info("jobs are traced", "collector", set.Endpoint, "sample", set.Sample, "rows", set.Rows)
	return nil
}

// Command otelcol is the collector for tests: OpenTelemetry's collector with its OTLP
// receiver, and an exporter that writes each batch of spans as a line of OTLP JSON.
// `.ci/tools otelcol` builds it.
//
//	receivers: {otlp: {protocols: {http: {endpoint: HOST:PORT}}}}
//	exporters: {lines: {path: FILE}}
//	service: {pipelines: {traces: {receivers: [otlp], exporters: [lines]}}}
package main

import (
	"context"
	"fmt"
	"os"
	"sync"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/confmap/provider/fileprovider"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/exporter"
	"go.opentelemetry.io/collector/otelcol"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/receiver"
	"go.opentelemetry.io/collector/receiver/otlpreceiver"
	"go.opentelemetry.io/collector/service/telemetry"
)

func main() {
	command := otelcol.NewCommand(otelcol.CollectorSettings{
		BuildInfo: component.BuildInfo{Command: "otelcol", Description: "the collector of the tests"},
		Factories: factories,
		ConfigProviderSettings: otelcol.ConfigProviderSettings{ResolverSettings: confmap.ResolverSettings{
			ProviderFactories: []confmap.ProviderFactory{fileprovider.NewFactory()}, DefaultScheme: "file",
		}},
	})
	if err := command.Execute(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func factories() (f otelcol.Factories, err error) {
	if f.Receivers, err = otelcol.MakeFactoryMap[receiver.Factory](otlpreceiver.NewFactory()); err != nil {
		return f, err
	}
	f.Telemetry = telemetry.NewFactory(func() component.Config { return &struct{}{} }) // the collector sends no telemetry about itself
	f.Exporters, err = otelcol.MakeFactoryMap[exporter.Factory](exporter.NewFactory(
		component.MustNewType("lines"), func() component.Config { return &config{} }, exporter.WithTraces(newLines, component.StabilityLevelDevelopment),
	))
	return f, err
}

// config is the configuration of the exporter lines.
type config struct {
	Path string `mapstructure:"path"` // path of the file to write, which is replaced at the start
}

type lines struct {
	path string
	mu   sync.Mutex
	file *os.File
	json ptrace.JSONMarshaler
}

func newLines(_ context.Context, _ exporter.Settings, c component.Config) (exporter.Traces, error) {
	return &lines{path: c.(*config).Path}, nil
}

func (l *lines) Start(context.Context, component.Host) (err error) {
	l.file, err = os.Create(l.path)
	return err
}

func (l *lines) Shutdown(context.Context) error { return l.file.Close() }

func (l *lines) Capabilities() consumer.Capabilities { return consumer.Capabilities{} }

func (l *lines) ConsumeTraces(_ context.Context, spans ptrace.Traces) error {
	line, err := l.json.MarshalTraces(spans)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	_, err = l.file.Write(append(line, '\n'))
	return err
}

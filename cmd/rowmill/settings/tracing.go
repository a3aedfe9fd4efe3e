package settings

import (
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// Tracing configures how the node sends traces of jobs to an OpenTelemetry collector.
// See package tracing.
type Tracing struct {
	// Endpoint is the URL to which the node sends spans, by OTLP over HTTP. To a URL
	// without a path, the node adds /v1/traces. Default: empty, which means no tracing,
	// unless OpenTelemetry's own variables name a collector.
	Endpoint string `yaml:"endpoint"`

	// Headers are sent with each request to the collector, as NAME=VALUE separated by
	// commas. A collector may use them to identify its clients. Default: none, or
	// OTEL_EXPORTER_OTLP_HEADERS.
	Headers Secret `yaml:"headers"`

	// Sample is the share of jobs that are traced, from 0 to 1. It does not apply to
	// jobs that clients submit within a trace: for such jobs the client decides. All
	// nodes need the same value. Default: 1, all jobs; Rows limits the cost of each
	// job.
	Sample float64 `yaml:"sample" default:"1"`

	// Rows is the share of the rows of a traced job whose requests are traced too; the
	// first row is always traced. Default: 0.01. This is enough to see how a server
	// performs, and a job of a million rows makes only ten thousand spans.
	Rows float64 `yaml:"rows" default:"0.01"`

	// Queue limits the spans that wait to be sent; further spans are dropped. Default:
	// 4,096, which is about 6 MiB, or the spans of some seconds on a busy node.
	Queue int `yaml:"queue" default:"4096" min:"1"`

	// Timeout limits a request to the collector. Default: 10s, as in the specification
	// of OpenTelemetry.
	Timeout time.Duration `yaml:"timeout" default:"10s" min:"10ms"`
}

// fillFromEnviron sets empty settings from OpenTelemetry's own variables, if these variables
// apply to this service: an operator who sets them for all programs expects traces from
// Rowmill too. sampleSet reports whether the operator has set Sample.
func (t *Tracing) fillFromEnviron(environ []string, sampleSet bool) error {
	of := func(names ...string) string { // returns the value of the first variable that is set
		for _, name := range names {
			if value := lookupEnviron(environ, name); value != "" {
				return value
			}
		}
		return ""
	}
	off := strings.EqualFold(of("OTEL_SDK_DISABLED"), "true")
	if exporter := of("OTEL_TRACES_EXPORTER"); exporter != "" && exporter != "otlp" {
		off = true
	}
	if protocol := of("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"); protocol != "" && protocol != "http/protobuf" {
		off = true // the endpoint is for another protocol, on another port
	}
	if t.Endpoint == "" && !off {
		t.Endpoint = of("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
		if base := of("OTEL_EXPORTER_OTLP_ENDPOINT"); t.Endpoint == "" && base != "" {
			t.Endpoint = strings.TrimRight(base, "/") + pathTraces
		}
	}
	if t.Endpoint == "" {
		return nil
	}
	if u, err := url.Parse(t.Endpoint); err == nil && (u.Path == "" || u.Path == "/") {
		u.Path = pathTraces
		t.Endpoint = u.String()
	}
	if t.Headers == "" {
		t.Headers = Secret(of("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "OTEL_EXPORTER_OTLP_HEADERS"))
	}
	if sampleSet {
		return nil
	}
	switch sampler := strings.TrimPrefix(of("OTEL_TRACES_SAMPLER"), "parentbased_"); sampler {
	case "", "always_on":
	case "always_off":
		t.Sample = 0
	case "traceidratio":
		share, err := strconv.ParseFloat(of("OTEL_TRACES_SAMPLER_ARG"), 64)
		if err != nil {
			return fmt.Errorf("OTEL_TRACES_SAMPLER_ARG: must be a number from 0 to 1, is %q", of("OTEL_TRACES_SAMPLER_ARG"))
		}
		t.Sample = share
	default:
		return fmt.Errorf("OTEL_TRACES_SAMPLER: %q is not supported; set tracing.sample", of("OTEL_TRACES_SAMPLER"))
	}
	return nil
}

// pathTraces is the path at which collectors usually receive spans.
const pathTraces = "/v1/traces"

// HeaderValues returns the values of Headers. The key is the name of the header.
func (t Tracing) HeaderValues() (map[string]string, error) {
	values := map[string]string{}
	pairs := strings.Split(t.Headers.Reveal(), ",")
	for i, pair := range pairs {
		if pair = strings.TrimSpace(pair); pair == "" {
			continue
		}
		name, value, found := strings.Cut(pair, "=")
		name = strings.TrimSpace(name)
		plain, err := url.PathUnescape(strings.TrimSpace(value))
		if !found || err != nil || !isHeaderName(name) || strings.ContainsAny(plain, "\r\n\x00") {
			return nil, fmt.Errorf("entry %d of %d must be NAME=VALUE: the name of a header, and a percent-encoded value", i+1, len(pairs))
		}
		values[http.CanonicalHeaderKey(name)] = plain
	}
	return values, nil
}

// isHeaderName reports whether a text is a valid header name.
func isHeaderName(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		return r <= ' ' || r > '~' || strings.ContainsRune(`"(),/:;<=>?@[\]{}`, r)
	})
}

// check checks the settings of traces.
func (t Tracing) check(require requireFunc) {
	require(t.Endpoint == "" || isBaseURL(t.Endpoint), "tracing.endpoint", "must be an http or https URL without query, such as http://127.0.0.1:4318, is %q", t.Endpoint)
	_, err := t.HeaderValues()
	require(err == nil, "tracing.headers", "%v", err)
	require(t.Sample >= 0 && t.Sample <= 1, "tracing.sample", "must be a share from 0 to 1, is %v", t.Sample)
	require(t.Rows >= 0 && t.Rows <= 1, "tracing.rows", "must be a share from 0 to 1, is %v", t.Rows)
}

package settings

import (
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// complete takes from OpenTelemetry's own variables what is not set otherwise, where
// they mean us: whoever injects them into all programs has ours told too. sampled says
// that Sample is set.
func (t *Tracing) complete(environ []string, sampled bool) error {
	of := func(names ...string) string { // the first that is set
		for _, name := range names {
			if value := lookup(environ, name); value != "" {
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
		off = true // its endpoint is the port of another
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
	if sampled {
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
		return fmt.Errorf("OTEL_TRACES_SAMPLER: %q is not known here; say tracing.sample", of("OTEL_TRACES_SAMPLER"))
	}
	return nil
}

// pathTraces is where collectors take spans.
const pathTraces = "/v1/traces"

// HeaderValues are Headers by their names.
func (t Tracing) HeaderValues() (map[string]string, error) {
	values := map[string]string{}
	for pair := range strings.SplitSeq(t.Headers.Reveal(), ",") {
		if pair = strings.TrimSpace(pair); pair == "" {
			continue
		}
		name, value, found := strings.Cut(pair, "=")
		name = strings.TrimSpace(name)
		plain, err := url.PathUnescape(strings.TrimSpace(value))
		if !found || err != nil || !isToken(name) || strings.ContainsAny(plain, "\r\n\x00") {
			return nil, fmt.Errorf("entry %d of %d is not NAME=VALUE, with a name of a header and percent-encoding where it is needed", len(values)+1, strings.Count(t.Headers.Reveal(), ",")+1)
		}
		values[http.CanonicalHeaderKey(name)] = plain
	}
	return values, nil
}

// isToken reports whether a text may be the name of a header.
func isToken(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		return r <= ' ' || r > '~' || strings.ContainsRune(`"(),/:;<=>?@[\]{}`, r)
	})
}

// checkTracing holds the settings of traces against what they may be.
func (s Settings) checkTracing(check checker) {
	t := s.Tracing
	check(t.Endpoint == "" || isBaseURL(t.Endpoint), "tracing.endpoint", "must be an http or https URL without query, such as http://127.0.0.1:4318, is %q", t.Endpoint)
	_, err := t.HeaderValues()
	check(err == nil, "tracing.headers", "%v", err)
	check(t.Sample >= 0 && t.Sample <= 1, "tracing.sample", "must be a share from 0 to 1, is %v", t.Sample)
	check(t.Rows >= 0 && t.Rows <= 1, "tracing.rows", "must be a share from 0 to 1, is %v", t.Rows)
	check(t.Queue > 0, "tracing.queue", "must be above 0, is %d", t.Queue)
	check(t.Timeout >= 10*time.Millisecond, "tracing.timeout", "must be at least 10ms, is %v", t.Timeout)
}

// Package spantest has a trace collector for tests: it receives the requests of a
// tracing.Tracer without a network, and decodes their spans.
package spantest

import (
	"bytes"
	"encoding/hex"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/prometheus/client_golang/prometheus"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	spans "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/internal/tracing"
)

// A Span is a span as the collector receives it.
type Span struct {
	Trace, ID, Parent string // IDs in hexadecimal; Parent is empty for a span without a parent
	Name              string
	Kind              spans.Span_SpanKind
	Begin, End        time.Time
	Error             string // message of the span's status
	Failed            bool
	Attributes        map[string]any // values are string, int64, float64 or bool
	Resource          map[string]any
}

// A Collector receives spans. The zero value accepts all requests.
type Collector struct {
	// Answer returns the answer to a request after its body was read; nil accepts every
	// request. n is the number of the request, from 1.
	Answer func(request *http.Request, n int) (*http.Response, error)

	mu       sync.Mutex
	requests []*http.Request
	spans    []Span
}

// RoundTrip handles a request without a network.
func (c *Collector) RoundTrip(request *http.Request) (*http.Response, error) {
	packed, err := io.ReadAll(request.Body)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	c.requests = append(c.requests, request)
	n := len(c.requests)
	c.mu.Unlock()
	answer := NewResponse(http.StatusOK, nil)
	if c.Answer != nil {
		if answer, err = c.Answer(request, n); err != nil || answer.StatusCode != http.StatusOK {
			return answer, err
		}
	}
	if request.Header.Get("Content-Type") != "application/x-protobuf" || request.Header.Get("Content-Encoding") != "gzip" {
		return nil, errors.New("the request is not an OTLP request: wrong Content-Type or Content-Encoding")
	}
	r, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, err
	}
	plain, err := io.ReadAll(r)
	if err != nil {
		return nil, err
	}
	all, err := Decode(plain)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.spans = append(c.spans, all...)
	return answer, err
}

// NewResponse returns an HTTP response as a collector sends it.
func NewResponse(status int, body []byte) *http.Response {
	return &http.Response{StatusCode: status, Body: io.NopCloser(bytes.NewReader(body)), Header: http.Header{}}
}

// Decode decodes the spans in the body of a request.
func Decode(body []byte) (all []Span, err error) {
	var sent spans.TracesData
	if err := proto.Unmarshal(body, &sent); err != nil {
		return nil, err
	}
	for _, resource := range sent.ResourceSpans {
		of := attributes(resource.Resource.GetAttributes())
		for _, scope := range resource.ScopeSpans {
			for _, s := range scope.Spans {
				all = append(all, Span{
					Trace: hex.EncodeToString(s.TraceId), ID: hex.EncodeToString(s.SpanId), Parent: hex.EncodeToString(s.ParentSpanId),
					Name: s.Name, Kind: s.Kind, Begin: time.Unix(0, int64(s.StartTimeUnixNano)), End: time.Unix(0, int64(s.EndTimeUnixNano)), //nolint:gosec // times
					Error: s.Status.GetMessage(), Failed: s.Status.GetCode() == spans.Status_STATUS_CODE_ERROR,
					Attributes: attributes(s.Attributes), Resource: of,
				})
			}
		}
	}
	return all, nil
}

func attributes(all []*common.KeyValue) map[string]any {
	values := make(map[string]any, len(all))
	for _, a := range all {
		switch v := a.Value.GetValue().(type) {
		case *common.AnyValue_StringValue:
			values[a.Key] = v.StringValue
		case *common.AnyValue_IntValue:
			values[a.Key] = v.IntValue
		case *common.AnyValue_DoubleValue:
			values[a.Key] = v.DoubleValue
		case *common.AnyValue_BoolValue:
			values[a.Key] = v.BoolValue
		}
	}
	return values
}

// Requests returns the number of requests, accepted or not.
func (c *Collector) Requests() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.requests)
}

// Request returns a request by number, from 0.
func (c *Collector) Request(n int) *http.Request {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.requests[n]
}

// Spans returns the accepted spans, in the order of their start.
func (c *Collector) Spans() []Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := slices.Clone(c.spans)
	slices.SortStableFunc(all, func(a, b Span) int { return a.Begin.Compare(b.Begin) })
	return all
}

// Named returns the accepted spans with this name.
func (c *Collector) Named(name string) []Span {
	return slices.DeleteFunc(c.Spans(), func(s Span) bool { return s.Name != name })
}

// StartTracer starts a Tracer that sends to the collector and traces all jobs and rows,
// unless change sets other values. After Close of the Tracer, all sent spans are in the
// collector.
func (c *Collector) StartTracer(t testing.TB, change func(*tracing.Config)) *tracing.Tracer {
	t.Helper()
	config := tracing.Config{
		Endpoint: "http://collector.test/v1/traces", Sample: 1, Rows: 1, Queue: 4096, Timeout: 10 * time.Second, Node: "node1", Version: "1.2.3",
		Metrics: tracing.NewMetrics(prometheus.NewRegistry()), Logger: slog.New(slog.DiscardHandler), Transport: c,
	}
	if change != nil {
		change(&config)
	}
	tracer := must.Get(tracing.New(config))(t)
	return tracer
}

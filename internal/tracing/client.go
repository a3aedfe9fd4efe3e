package tracing

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/klauspost/compress/gzip"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	spans "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// A client sends spans to a collector by OTLP over HTTP: protocol buffers, compressed
// with gzip. OpenTelemetry's own client would link all of gRPC, which nothing else here
// uses. Only setHeaders may run at the same time as another method.
type client struct {
	url        string
	headers    atomic.Pointer[map[string]string]
	http       *http.Client
	compressor *gzip.Writer // reused, because a new one allocates half a megabyte of tables
}

var _ otlptrace.Client = (*client)(nil)

func newClient(cfg Config) *client {
	transport := cfg.Transport
	if transport == nil {
		transport = &http.Transport{
			Proxy: http.ProxyFromEnvironment, MaxIdleConns: 1, IdleConnTimeout: time.Minute, MaxResponseHeaderBytes: maxAnswer, ForceAttemptHTTP2: true,
		}
	}
	compressor, _ := gzip.NewWriterLevel(nil, gzip.BestSpeed) // no error: the level is valid
	c := &client{url: cfg.Endpoint, compressor: compressor, http: &http.Client{
		Transport: transport,
		// Do not follow redirects: they would send the headers, which may hold
		// credentials, to another server.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	c.setHeaders(cfg.Headers)
	return c
}

func (c *client) setHeaders(headers map[string]string) { c.headers.Store(&headers) }

// Start does nothing: the first request connects.
func (c *client) Start(context.Context) error { return nil }

// Stop does nothing.
func (c *client) Stop(context.Context) error { return nil }

// maxAnswer is the largest number of bytes of an answer that are read. A normal answer
// has a few dozen bytes.
const maxAnswer = 64 << 10

// UploadTraces sends spans. The error is a *refusalError if the collector refuses some or
// all spans.
func (c *client) UploadTraces(ctx context.Context, all []*spans.ResourceSpans) error {
	// TracesData has the same wire format as an export request.
	plain, err := proto.Marshal(&spans.TracesData{ResourceSpans: all})
	if err != nil {
		return err
	}
	var packed bytes.Buffer
	c.compressor.Reset(&packed)
	_, _ = c.compressor.Write(plain) // writes to a bytes.Buffer never fail
	_ = c.compressor.Close()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, &packed)
	if err != nil {
		return err
	}
	for name, value := range *c.headers.Load() {
		request.Header.Set(name, value)
	}
	request.Header.Set("Content-Type", "application/x-protobuf")
	request.Header.Set("Content-Encoding", "gzip")
	request.Header.Set("User-Agent", "rowmill")
	response, err := c.http.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return fmt.Errorf("read the collector's answer: %w", err)
	}
	if response.StatusCode/100 != 2 {
		seconds, _ := strconv.Atoi(response.Header.Get("Retry-After"))
		return &refusalError{status: response.StatusCode, retryAfter: min(max(0, time.Duration(seconds)*time.Second), maxRetryAfter)}
	}
	if n := countRejectedSpans(answer); n > 0 {
		return &refusalError{status: response.StatusCode, spans: n}
	}
	return nil
}

// maxRetryAfter is the longest pause that a collector can ask for.
const maxRetryAfter = 30 * time.Second

// A refusalError is the error for an answer with which the collector refuses all or some
// spans.
type refusalError struct {
	status     int
	spans      int           // number of refused spans; 0 means all
	retryAfter time.Duration // the pause before the next try
}

// Error returns the error text, without the collector's own message, which may contain
// anything.
func (r *refusalError) Error() string {
	if r.spans > 0 {
		return fmt.Sprintf("the collector refused %d spans", r.spans)
	}
	return fmt.Sprintf("the collector answered with HTTP %d", r.status)
}

// isRetryable reports whether a later try of the same request may succeed, by the rules
// of OTLP.
func (r *refusalError) isRetryable() bool {
	switch r.status {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return false
}

// countRejectedSpans returns the number of rejected spans in an answer, or 0 if the answer cannot
// be decoded:
//
//	message ExportTraceServiceResponse { ExportTracePartialSuccess partial_success = 1; }
//	message ExportTracePartialSuccess { int64 rejected_spans = 1; string error_message = 2; }
func countRejectedSpans(answer []byte) int {
	var n uint64
	visitFieldOne(answer, protowire.BytesType, func(b []byte) {
		partial, _ := protowire.ConsumeBytes(b)
		visitFieldOne(partial, protowire.VarintType, func(b []byte) { n, _ = protowire.ConsumeVarint(b) })
	})
	return int(min(n, batchSpans)) //nolint:gosec // at most batchSpans
}

// visitFieldOne calls read with the encoded value of each field number 1 of a message that has
// this wire type.
func visitFieldOne(message []byte, wireType protowire.Type, read func(value []byte)) {
	for len(message) > 0 {
		number, kind, n := protowire.ConsumeTag(message)
		if n < 0 {
			return
		}
		if message = message[n:]; number == 1 && kind == wireType {
			read(message)
		}
		if n = protowire.ConsumeFieldValue(number, kind, message); n < 0 {
			return
		}
		message = message[n:]
	}
}

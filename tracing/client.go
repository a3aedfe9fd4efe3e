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

// A client posts spans to a collector by OTLP over HTTP: as protocol buffers, under
// gzip. OpenTelemetry's own links all of gRPC, which nothing here speaks. Only
// setHeaders may be called beside another call.
type client struct {
	url     string
	headers atomic.Pointer[map[string]string]
	http    *http.Client
	packer  *gzip.Writer // half a megabyte of tables
}

var _ otlptrace.Client = (*client)(nil)

func newClient(cfg Config) *client {
	transport := cfg.Transport
	if transport == nil {
		transport = &http.Transport{
			Proxy: http.ProxyFromEnvironment, MaxIdleConns: 1, IdleConnTimeout: time.Minute, MaxResponseHeaderBytes: maxAnswer, ForceAttemptHTTP2: true,
		}
	}
	packer, _ := gzip.NewWriterLevel(nil, gzip.BestSpeed) // a level that there is
	c := &client{url: cfg.Endpoint, packer: packer, http: &http.Client{
		Transport: transport,
		// A redirect would take the headers along, whatever they hold.
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

// maxAnswer bounds what is read of an answer, whose form has a few dozen bytes.
const maxAnswer = 64 << 10

// UploadTraces sends spans. An error is a *refusal where the collector has answered.
func (c *client) UploadTraces(ctx context.Context, all []*spans.ResourceSpans) error {
	// On the wire a request to export is the same.
	plain, err := proto.Marshal(&spans.TracesData{ResourceSpans: all})
	if err != nil {
		return err
	}
	var packed bytes.Buffer
	c.packer.Reset(&packed)
	_, _ = c.packer.Write(plain) // a buffer takes everything
	_ = c.packer.Close()
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
		return &refusal{status: response.StatusCode, after: min(max(0, time.Duration(seconds)*time.Second), mostAfter)}
	}
	if n := rejected(answer); n > 0 {
		return &refusal{status: response.StatusCode, spans: n}
	}
	return nil
}

// mostAfter is the longest that a collector may have asked to be left alone.
const mostAfter = 30 * time.Second

// A refusal is the answer of a collector that has not taken spans.
type refusal struct {
	status int
	spans  int           // that were not taken, where the others were; 0 for all
	after  time.Duration // it is not to be asked again before
}

// Error says what it answered. Its own words may be anybody's.
func (r *refusal) Error() string {
	if r.spans > 0 {
		return fmt.Sprintf("the collector refused %d spans", r.spans)
	}
	return fmt.Sprintf("the collector answered with HTTP %d", r.status)
}

// passes reports whether the same request may be taken later, as OTLP says.
func (r *refusal) passes() bool {
	switch r.status {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return false
}

// rejected is how many spans an answer says were not taken, 0 where it cannot be read:
//
//	message ExportTraceServiceResponse { ExportTracePartialSuccess partial_success = 1; }
//	message ExportTracePartialSuccess { int64 rejected_spans = 1; string error_message = 2; }
func rejected(answer []byte) int {
	var n uint64
	field(answer, protowire.BytesType, func(b []byte) {
		partial, _ := protowire.ConsumeBytes(b)
		field(partial, protowire.VarintType, func(b []byte) { n, _ = protowire.ConsumeVarint(b) })
	})
	return int(min(n, batchSpans)) //nolint:gosec // bounded
}

// field passes the value of the first field of a message to read, where it is of a type.
func field(message []byte, of protowire.Type, read func(value []byte)) {
	for len(message) > 0 {
		number, kind, n := protowire.ConsumeTag(message)
		if n < 0 {
			return
		}
		if message = message[n:]; number == 1 && kind == of {
			read(message)
		}
		if n = protowire.ConsumeFieldValue(number, kind, message); n < 0 {
			return
		}
		message = message[n:]
	}
}

package s3

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// maxIdle is the largest number of idle connections. A busy node has about this many
// uploads and reads at a time.
const maxIdle = 64

// metrics are the package's counters.
type metrics struct {
	requests *prometheus.CounterVec // HTTP requests by operation and outcome; each try counts
	bytes    *prometheus.CounterVec // bytes of bodies by direction, sent or received
}

func newMetrics(reg prometheus.Registerer) *metrics {
	f := promauto.With(reg)
	return &metrics{
		requests: f.NewCounterVec(prometheus.CounterOpts{
			Name: "rowmill_s3_requests_total",
			Help: "Requests to the S3 server, repetitions included, by operation and outcome.",
		}, []string{"operation", "outcome"}),
		bytes: f.NewCounterVec(prometheus.CounterOpts{
			Name: "rowmill_s3_bytes_total",
			Help: "Bytes of bodies sent to and received from the S3 server.",
		}, []string{"direction"}),
	}
}

// transport is an http.RoundTripper that counts requests and cancels stalled requests.
type transport struct {
	base     *http.Transport
	metrics  *metrics
	sent     prometheus.Counter
	received prometheus.Counter
	stall    time.Duration // longest time without a byte
	complete time.Duration // the same limit for CompleteMultipartUpload and for copies
}

func newTransport(c Config, m *metrics) *transport {
	return &transport{
		base: &http.Transport{
			Proxy:               http.ProxyFromEnvironment,
			DialContext:         (&net.Dialer{Timeout: c.ConnectTimeout}).DialContext,
			TLSHandshakeTimeout: c.ConnectTimeout,
			MaxIdleConns:        maxIdle,
			MaxIdleConnsPerHost: maxIdle,
			IdleConnTimeout:     time.Minute,
			DisableCompression:  true, // objects must arrive with the bytes that were stored
		},
		metrics:  m,
		sent:     m.bytes.WithLabelValues("sent"),
		received: m.bytes.WithLabelValues("received"),
		stall:    c.StallTimeout,
		complete: c.CompleteTimeout,
	}
}

// stalledError means that a request was ended because no bytes moved.
type stalledError struct {
	operation string
	after     time.Duration
}

func (e stalledError) Error() string {
	return fmt.Sprintf("%s stalled: no byte moved for %v", e.operation, e.after)
}

// RoundTrip sends a request, counts it, and cancels it if no byte moves within the time
// limit.
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	o := operation(r)
	w := &stallTimer{limit: t.stall}
	if o == completeUpload || o == copyObject {
		w.limit = t.complete
	}
	w.ctx, w.cancel = context.WithCancelCause(r.Context())
	w.timer = time.AfterFunc(w.limit, func() { w.cancel(stalledError{o, w.limit}) })
	r = r.WithContext(w.ctx)
	if r.Body != nil && r.Body != http.NoBody {
		r.Body = &watchedBody{ReadCloser: r.Body, watch: w, bytes: t.sent}
	}
	response, err := t.base.RoundTrip(r)
	t.metrics.requests.WithLabelValues(o, outcome(w.ctx, response, err)).Inc()
	if err != nil {
		return nil, w.end(err)
	}
	w.restartTimer()
	response.Body = &watchedBody{ReadCloser: response.Body, watch: w, bytes: t.received, last: true}
	return response, nil
}

// stallTimer cancels a request that stalls.
type stallTimer struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	timer  *time.Timer
	limit  time.Duration
}

// restartTimer restarts the time limit, because bytes have moved.
func (w *stallTimer) restartTimer() {
	if w.ctx.Err() == nil {
		w.timer.Reset(w.limit)
	}
}

// end ends the watch and returns the reason why the request ended.
func (w *stallTimer) end(err error) error {
	w.timer.Stop()
	w.cancel(nil)
	if stalled, ok := errors.AsType[stalledError](context.Cause(w.ctx)); ok {
		return stalled
	}
	return err
}

// watchedBody is a request or response body. It tells the watch when bytes move.
type watchedBody struct {
	io.ReadCloser
	watch *stallTimer
	bytes prometheus.Counter
	last  bool // this is the response body: the request ends when the body was read
}

func (b *watchedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.bytes.Add(float64(n))
	switch {
	case err != nil && b.last:
		err = b.watch.end(err)
	case n > 0:
		b.watch.restartTimer()
	}
	return n, err
}

func (b *watchedBody) Close() error {
	err := b.ReadCloser.Close()
	if b.last {
		_ = b.watch.end(nil) // the caller needs no more bytes
	}
	return err
}

// These operations can take a long time.
const (
	completeUpload = "CompleteMultipartUpload"
	copyObject     = "CopyObject" // a copy of an object or of a part
)

// operation returns the request's name in the S3 API.
func operation(r *http.Request) string {
	query := r.URL.Query()
	switch {
	case r.Header.Get("X-Amz-Copy-Source") != "":
		return copyObject
	case query.Has("uploadId"):
		return map[string]string{
			http.MethodPut: "UploadPart", http.MethodPost: completeUpload, http.MethodDelete: "AbortMultipartUpload", http.MethodGet: "ListParts",
		}[r.Method]
	case query.Has("uploads"):
		return map[string]string{http.MethodPost: "CreateMultipartUpload", http.MethodGet: "ListMultipartUploads"}[r.Method]
	case query.Has("location"):
		return "GetBucketLocation"
	case query.Has("list-type"):
		return "ListObjectsV2"
	case query.Has("delete"):
		return "DeleteObjects"
	}
	return map[string]string{
		http.MethodGet: "GetObject", http.MethodHead: "HeadObject", http.MethodPut: "PutObject", http.MethodDelete: "DeleteObject",
	}[r.Method]
}

// outcome returns the metrics label for the result of a request. It knows only the
// header of the response, not the body.
func outcome(ctx context.Context, response *http.Response, err error) string {
	switch {
	case errors.As(context.Cause(ctx), &stalledError{}):
		return "stalled"
	case ctx.Err() != nil:
		return "canceled"
	case err != nil:
		return "unreachable"
	case response.StatusCode < 400:
		return "ok"
	case response.StatusCode == http.StatusNotFound:
		return "not_found"
	case response.StatusCode == http.StatusTooManyRequests, response.StatusCode == http.StatusServiceUnavailable:
		return "throttled"
	case response.StatusCode >= 500:
		return "failed"
	}
	return "refused"
}

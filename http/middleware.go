package http

import (
	"errors"
	"fmt"
	"log/slog"
	nethttp "net/http"
	"net/url"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/rowmill/rowmill/http/exchange"
	"github.com/rowmill/rowmill/http/request"
	"github.com/rowmill/rowmill/internal/textfmt"
	"github.com/rowmill/rowmill/internal/tracing"
)

const (
	headerRequestID = "X-Request-Id"
	// maxRequestID limits the request id of a client, in characters. It is long enough for
	// a UUID and for the longer ids of proxies.
	maxRequestID = 128
)

// setNoSniffHeader tells browsers not to guess the content type, because results contain text of
// models and clients.
func setNoSniffHeader(c *gin.Context) { c.Header("X-Content-Type-Options", "nosniff") }

// assignID gives the request an id: the id that the client sent if it is short and plain,
// else a new id.
func assignID(c *gin.Context) {
	id := c.GetHeader(headerRequestID)
	if !isPlainID(id) {
		id = uuid.NewString()
	}
	exchange.SetRequestID(c, id)
	c.Header(headerRequestID, id)
}

// isPlainID reports whether an id is short and has only letters, digits, and the characters
// - _ . and :, which are safe in headers and logs.
func isPlainID(id string) bool {
	const letters = "abcdefghijklmnopqrstuvwxyz"
	return id != "" && len(id) <= maxRequestID && strings.Trim(id, letters+strings.ToUpper(letters)+"0123456789-_.:") == ""
}

// recoverPanic is a middleware that answers with status 500 if a handler panics. If the
// answer has begun, recoverPanic breaks the connection, so that no client takes half an
// answer for a complete one.
func (s *Server) recoverPanic(c *gin.Context) {
	defer func() {
		reason := recover()
		if reason == nil {
			return
		}
		if err, isErr := reason.(error); isErr && errors.Is(err, nethttp.ErrAbortHandler) {
			panic(nethttp.ErrAbortHandler)
		}
		s.Logger.Error("a request failed: its handler panicked", exchange.KeyRequest, exchange.RequestID(c), exchange.KeyRoute, c.FullPath(),
			"panic", fmt.Sprint(reason), "stack", string(debug.Stack()))
		if c.Writer.Written() {
			panic(nethttp.ErrAbortHandler)
		}
		s.exchange.Fail(c, request.Errorf(nethttp.StatusInternalServerError, "internal_error",
			"internal error; the server's log holds the reason under this request_id"))
	}()
	c.Next()
}

// limitHeaders is a middleware that refuses a request if its address and headers
// together are larger than MaxHeaderBytes. The refusal is JSON, unlike the refusal of
// the http.Server.
func (s *Server) limitHeaders(c *gin.Context) {
	size := len(c.Request.RequestURI)
	for name, values := range c.Request.Header {
		for _, value := range values {
			size += len(name) + len(value) + 4 // 4: the text ": " and the line end
		}
	}
	if size > s.MaxHeaderBytes {
		s.exchange.Fail(c, request.Errorf(nethttp.StatusRequestHeaderFieldsTooLarge, "header_too_large",
			"the request's address and headers are larger than %d bytes; send fewer or shorter ones", s.MaxHeaderBytes))
	}
}

// checkQuery is a middleware that refuses a query that cannot be parsed, for example
// because of a semicolon or an incomplete escape. Go ignores such a part of the query,
// so the client would get a wrong answer.
func (s *Server) checkQuery(c *gin.Context) {
	if _, err := url.ParseQuery(c.Request.URL.RawQuery); err != nil {
		s.exchange.Fail(c, request.Errorf(nethttp.StatusBadRequest, "invalid_query",
			"the query cannot be read (%v); separate parameters by & and escape characters that are not letters or digits, for example ; as %%3B", err))
	}
}

// requestMetrics measures the time of requests. The label of a series is the route and
// not the path, so that job ids create no new series.
type requestMetrics struct{ seconds *prometheus.HistogramVec }

func newRequestMetrics(registerer prometheus.Registerer) *requestMetrics {
	return &requestMetrics{seconds: promauto.With(registerer).NewHistogramVec(prometheus.HistogramOpts{
		Name:    "rowmill_http_request_duration_seconds",
		Help:    "Time from a request's headers to the end of its answer.",
		Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 120},
	}, []string{"route", "method", "code"})}
}

// observeRequests returns a middleware that logs, measures and traces each request. It logs the
// path without the query, because the query may contain a signature.
func (s *Server) observeRequests(metrics *requestMetrics) gin.HandlerFunc {
	return func(c *gin.Context) {
		began := time.Now()
		route, method := c.FullPath(), c.Request.Method
		if route == "" {
			route = "unmatched"
		}
		switch method {
		case "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS":
		default:
			method = "other"
		}
		span := s.startSpan(c, route, method)
		defer func() {
			took, status := time.Since(began), c.Writer.Status()
			span.Observe(metrics.seconds.WithLabelValues(route, method, strconv.Itoa(status)), took.Seconds())
			endSpan(span, status)

			level := slog.LevelInfo
			if debugRoutes[route] {
				level = slog.LevelDebug
			}
			if log := span.WithTraceID(s.Logger); log.Enabled(c.Request.Context(), level) {
				log.Log(c.Request.Context(), level, "request", exchange.KeyRequest, exchange.RequestID(c), "method", method,
					"path", textfmt.Shorten(c.Request.URL.Path, 256), "status", status, "took", took)
			}
		}()
		c.Next()
	}
}

// endSpan ends the span of a request and adds the status of the answer. span may be nil.
func endSpan(span *tracing.Span, status int) {
	if span == nil {
		return
	}
	span.SetAttributes(slog.Int("http.response.status_code", status))
	if status >= nethttp.StatusInternalServerError {
		span.Fail(strconv.Itoa(status))
	}
	span.End(nil)
}

// startSpan begins a span and returns it if the request has a trace header; otherwise it
// returns nil. A job that the request submits belongs to the trace of the header.
func (s *Server) startSpan(c *gin.Context, route, method string) *tracing.Span {
	parent := c.GetHeader(tracing.Header)
	if s.Tracer == nil || parent == "" {
		return nil
	}
	ctx, span := s.Tracer.BeginRequest(c.Request.Context(), parent, method+" "+route,
		slog.String("http.request.method", method), slog.String("http.route", route), slog.String("rowmill.request", exchange.RequestID(c)))
	c.Request = c.Request.WithContext(ctx)
	return span
}

// debugRoutes lists the routes that probes and console pages request all the time; they
// are logged at level Debug.
var debugRoutes = map[string]bool{
	"/livez": true, "/readyz": true, "/metrics": true, "/version": true,
	"/v1/job-status/:job_id": true, "/v1/jobs/:job_id": true, "/v1/batches/:batch_id": true,
	"/v1/jobs/:job_id/progress": true, "/v1/jobs/counts": true, "/v1/stats": true, "/v1/engines": true, "/v1/gpus": true,
}

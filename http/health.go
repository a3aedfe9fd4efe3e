package http

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	nethttp "net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.yaml.in/yaml/v3"

	"github.com/rowmill/rowmill/http/access"
	"github.com/rowmill/rowmill/http/exchange"
	"github.com/rowmill/rowmill/http/request"
)

// readyTimeout is the timeout of all checks of one /readyz request. The probe of an
// orchestrator gives up after about one second.
const readyTimeout = time.Second

//go:embed openapi.yaml
var openapiYAML []byte

// documents caches the JSON texts of openAPIDocument by version, because tests and
// simulations start many servers in one process.
var documents sync.Map

// openAPIDocument returns openapi.yaml as JSON, with the version of this program.
func openAPIDocument(version string) ([]byte, error) {
	if text, made := documents.Load(version); made {
		return text.([]byte), nil
	}
	var document map[string]any
	if err := yaml.Unmarshal(openapiYAML, &document); err != nil {
		return nil, fmt.Errorf("parse openapi.yaml: %w", err)
	}
	if info, isMap := document["info"].(map[string]any); isMap && version != "" {
		info["version"] = version
	}
	text, err := json.Marshal(document)
	if err != nil {
		return nil, fmt.Errorf("encode openapi.yaml as JSON: %w", err)
	}
	documents.Store(version, text)
	return text, nil
}

// routeHealth adds the routes about the state of the node. They need no key, but only
// operators get all details. Load balancers send GET or HEAD.
func (s *Server) routeHealth(root gin.IRoutes, gate *access.Gate) {
	for _, method := range []string{nethttp.MethodGet, nethttp.MethodHead} {
		root.Handle(method, "/livez", answerLivez)
		root.Handle(method, "/readyz", s.readyzHandler(gate))
	}
	root.GET("/version", s.exchange.Handle(func(*gin.Context) (any, error) { return s.Version, nil }))
	root.GET("/metrics", s.metricsHandler())
	root.GET("/openapi.json", s.openAPI)
}

// answerLivez answers GET /livez. It checks nothing: any answer shows that the process runs.
func answerLivez(c *gin.Context) { c.String(nethttp.StatusOK, "ok\n") }

// readyzHandler answers GET /readyz: 200 if the node accepts jobs, else 503. With ?verbose it
// lists the checks: with all details for operators, else only with the kind of each
// checked part.
func (s *Server) readyzHandler(gate *access.Gate) gin.HandlerFunc {
	return func(c *gin.Context) {
		ctx, cancel := context.WithTimeout(c.Request.Context(), readyTimeout)
		defer cancel()
		_, verbose := c.GetQuery("verbose")
		key, _ := gate.APIKey(c) // an empty key belongs to no operator
		isOperator := make(chan bool, 1)
		go func() { isOperator <- verbose && gate.IsOperator(ctx, key) }()
		checks := s.runChecks(ctx, c)
		status, summary := nethttp.StatusOK, "ready\n"
		if slices.ContainsFunc(checks, func(check ReadinessCheck) bool { return !check.OK }) {
			status, summary = nethttp.StatusServiceUnavailable, "not ready\n"
		}
		switch operator := <-isOperator; {
		case operator:
			summary = detailLines(checks) + summary
		case verbose:
			summary = partLines(checks) + summary
		}
		c.Header("Cache-Control", "no-store")
		c.String(status, "%s", summary)
	}
}

func checkMark(ok bool) string {
	if ok {
		return "[+]"
	}
	return "[-]"
}

// detailLines returns one line with all details for each check.
func detailLines(checks []ReadinessCheck) string {
	lines := &strings.Builder{}
	for _, check := range checks {
		fmt.Fprintf(lines, "%s %s: %s\n", checkMark(check.OK), check.Name, oneLine(check.Text))
	}
	return lines.String()
}

// partLines returns one line without details for each kind of checked part. The kind is
// the first word of a check's name, such as store; the rest of the name may be an
// address.
func partLines(checks []ReadinessCheck) string {
	var kinds []string
	well := map[string]bool{}
	for _, check := range checks {
		kind, _, _ := strings.Cut(check.Name, " ")
		before, known := well[kind]
		if !known {
			kinds, before = append(kinds, kind), true
		}
		well[kind] = before && check.OK
	}
	lines := &strings.Builder{}
	for _, kind := range kinds {
		fmt.Fprintf(lines, "%s %s\n", checkMark(well[kind]), kind)
	}
	return lines.String()
}

// runChecks pings the store, asks the pipeline for its checks, and returns the results of
// all checks.
func (s *Server) runChecks(ctx context.Context, c *gin.Context) []ReadinessCheck {
	pinged := make(chan error, 1)
	go func() { pinged <- s.Store.Ping(ctx) }()
	further := s.Service.Checks(ctx)
	records := ReadinessCheck{Name: "store", OK: true, Text: "records can be written"}
	if err := <-pinged; err != nil {
		records = ReadinessCheck{Name: "store", Text: "records cannot be written now; the log holds the reason"}
		if e := request.FromError(err); e.Status == nethttp.StatusInsufficientStorage {
			records.Text = e.Message
		}
		s.Logger.Warn("a readiness check failed, because the store cannot be written", exchange.KeyRequest, exchange.RequestID(c), exchange.KeyErr, err)
	}
	checks := append([]ReadinessCheck{records}, further...)
	if s.Service.Draining() {
		checks = append(checks, ReadinessCheck{Name: "draining", Text: "the node is about to stop and accepts no more jobs"})
	}
	return checks
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

func (s *Server) openAPI(c *gin.Context) {
	c.Header("Content-Length", strconv.Itoa(len(s.openapi)))
	c.Data(nethttp.StatusOK, exchange.JSON, s.openapi)
}

// metricsHandler returns the handler of GET /metrics. Without a Gatherer it answers 404: the
// node then serves its metrics at another address.
func (s *Server) metricsHandler() gin.HandlerFunc {
	if s.Gatherer == nil {
		return s.exchange.HandleRaw(func(*gin.Context) error {
			return request.Errorf(nethttp.StatusNotFound, "not_found", "metrics are not served at this address")
		})
	}
	return gin.WrapH(promhttp.HandlerFor(s.Gatherer, promhttp.HandlerOpts{EnableOpenMetrics: true}))
}

package http

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"io/fs"
	nethttp "net/http"
	"strconv"
	"strings"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"gopkg.in/yaml.v3"
)

// readyTimeout bounds the checks behind /readyz: an orchestrator's probe gives
// up after a second or little more, and should hear what is wrong before.
const readyTimeout = time.Second

//go:embed openapi.yaml
var openapiYAML []byte

// openAPIDocument turns the document into the JSON that is served.
func openAPIDocument(version string) ([]byte, error) {
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
	return text, nil
}

// livez says that the process runs; it asks nobody.
func (s *Server) livez(c *gin.Context) { c.String(nethttp.StatusOK, "ok\n") }

// readyz says whether jobs are accepted, with ?verbose why or why not.
func (s *Server) readyz(c *gin.Context) {
	ctx, cancel := context.WithTimeout(c.Request.Context(), readyTimeout)
	defer cancel()

	pinged := make(chan error, 1)
	go func() { pinged <- s.Store.Ping(ctx) }()
	further := s.Service.Checks(ctx)
	checks := []Check{{Name: "store", OK: true, Text: "records can be written"}}
	if err := <-pinged; err != nil {
		checks[0] = Check{Name: "store", Text: "records cannot be written now; the log holds the reason"}
		if e := describe(err); e.status == nethttp.StatusInsufficientStorage {
			checks[0].Text = e.message
		}
		s.Logger.Warn("store is not ready", keyRequest, requestID(c), keyErr, err)
	}
	checks = append(checks, further...)
	if s.Service.Draining() {
		checks = append(checks, Check{Name: "draining", Text: "the node is about to stop and takes no further jobs"})
	}

	status, text := nethttp.StatusOK, &strings.Builder{}
	for _, check := range checks {
		mark := "[+]"
		if !check.OK {
			mark, status = "[-]", nethttp.StatusServiceUnavailable
		}
		fmt.Fprintf(text, "%s %s: %s\n", mark, check.Name, oneLine(check.Text))
	}
	summary := "ready\n"
	if status != nethttp.StatusOK {
		summary = "not ready\n"
	}
	if _, verbose := c.GetQuery("verbose"); verbose {
		summary = text.String() + summary
	}
	c.Header("Cache-Control", "no-store")
	c.String(status, "%s", summary)
}

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

func (s *Server) version(c *gin.Context) { answer(c, nethttp.StatusOK, s.Version) }

func (s *Server) openAPI(c *gin.Context) {
	c.Header("Content-Length", strconv.Itoa(len(s.openapi)))
	c.Data(nethttp.StatusOK, jsonType, s.openapi)
}

// metrics serves the gatherer's metrics, or 404 where there is none because
// they have an address of their own.
func (s *Server) metrics() gin.HandlerFunc {
	if s.Gatherer == nil {
		return func(c *gin.Context) {
			s.fail(c, errorf(nethttp.StatusNotFound, "not_found", "metrics are not served at this address"))
		}
	}
	return gin.WrapH(promhttp.HandlerFor(s.Gatherer, promhttp.HandlerOpts{}))
}

// console serves the web page's files.
func (s *Server) console() gin.HandlerFunc {
	if s.Console == nil {
		return func(c *gin.Context) {
			c.String(nethttp.StatusNotFound, "This Rowmill has no web console. The API is described at /openapi.json.\n")
		}
	}
	files := nethttp.StripPrefix("/console", nethttp.FileServerFS(s.Console))
	return func(c *gin.Context) {
		name := strings.Trim(c.Param("path"), "/")
		if name == "" {
			name = "."
		}
		if _, err := fs.Stat(s.Console, name); err != nil {
			c.String(nethttp.StatusNotFound, "The console has no such page.\n")
			return
		}
		files.ServeHTTP(c.Writer, c.Request)
	}
}

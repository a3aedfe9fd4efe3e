package http

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/client"
	"github.com/rowmill/rowmill/internal/must"
)

func TestErrors_EveryBodyIsJSONWithTheSameFields(t *testing.T) {
	t.Parallel()
	w := setup(t)
	for name, answer := range map[string]*answered{
		"UnknownRoute": w.get("/v1/nothing").wantError(404, "unknown_route", "/openapi.json"),
		"Root":         w.get("/").wantError(404, "unknown_route", "GET /"),
		"NoRedirect":   w.get("/v1/list-jobs/").wantError(404, "unknown_route", ""),
		"WrongMethod":  w.do("DELETE", "/v1/list-jobs", "").wantError(405, "method_not_allowed", "use GET"),
		"Unauthorized": w.get("/v1/list-jobs", bare...).wantError(401, "missing_key", "Key"),
		"Validation":   w.post(`{}`).wantError(400, "invalid_request", "inputs"),
		"UnknownJob":   w.get("/v1/jobs/x").wantError(404, "job_not_found", "x"),
	} {
		body := answer.json()
		if body["message"] == "" || body["detail"] != body["message"] || body["request_id"] != answer.header.Get("X-Request-Id") {
			t.Errorf("%s: body %v, header %v", name, body, answer.header)
		}
		if got := answer.header.Get("Content-Type"); !strings.HasPrefix(got, "application/json") {
			t.Errorf("%s: content type %s", name, got)
		}
	}
}

func TestErrors_WrongMethodNamesTheRightOne(t *testing.T) {
	t.Parallel()
	w := setup(t)
	if got := w.get("/v1/batch-inference").want(405).header.Get("Allow"); got != "POST" {
		t.Errorf("Allow %q", got)
	}
}

func TestErrors_HeaderTooLarge(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.get("/v1/list-jobs", "X-Long", strings.Repeat("a", 70_000)).wantError(431, "header_too_large", "65536")
	w.get("/v1/list-jobs?x="+strings.Repeat("a", 70_000)).wantError(431, "header_too_large", "65536")
}

func TestRequestID_TheClientsIfPlainElseANewOne(t *testing.T) {
	t.Parallel()
	w := setup(t)
	if got := w.get("/livez", "X-Request-Id", "abc-123_X.y:z").header.Get("X-Request-Id"); got != "abc-123_X.y:z" {
		t.Errorf("got %s", got)
	}
	for _, bad := range []string{"a b", "é", strings.Repeat("a", 129), `"><script>`} {
		if got := w.get("/livez", "X-Request-Id", bad).header.Get("X-Request-Id"); got == bad || len(got) != 36 {
			t.Errorf("%q became %q", bad, got)
		}
	}
}

// withRoute adds a route that is not in the OpenAPI document.
func (w *world) withRoute(path string, handler gin.HandlerFunc) { w.engine.GET(path, handler) }

func TestErrors_PanicIs500(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.withRoute("/panic", func(*gin.Context) { panic("a secret") })
	body := w.get("/panic").wantError(500, "internal_error", "request_id").json()
	if strings.Contains(fmt.Sprint(body), "secret") || !strings.Contains(w.logs.String(), "a secret") {
		t.Errorf("body %v, logs %s", body, w.logs)
	}
	w.get("/livez").want(200)
}

func TestStream_ErrorAfterTheBeginningBreaksTheConnection(t *testing.T) {
	t.Parallel()
	w := setup(t)
	size := 10
	w.withRoute("/stream", w.exchange.HandleRaw(func(c *gin.Context) error {
		return w.exchange.Stream(c, "text/plain", "", func(b *bufio.Writer) error {
			_, _ = b.WriteString(strings.Repeat("a", size))
			return errors.New("broken")
		})
	}))
	// An error before the first byte gets its own status.
	w.get("/stream").wantError(500, "internal_error", "")
	size = 1 << 20 // more than the buffer holds
	response, err := w.client.Do(w.request("GET", "/stream", ""))
	must.Succeed(t, err)
	defer response.Body.Close()
	if _, err := io.ReadAll(response.Body); err == nil {
		t.Error("half an answer was read without an error")
	}
	w.get("/livez").want(200)
}

func TestConfig_ValidateNamesTheField(t *testing.T) {
	t.Parallel()
	w := setup(t)
	for field, change := range map[string]func(*Config){
		"Store":          func(c *Config) { c.Store = nil },
		"Bucket":         func(c *Config) { c.Bucket = nil },
		"Catalog":        func(c *Config) { c.Catalog = nil },
		"Service":        func(c *Config) { c.Service = nil },
		"MaxBodyBytes":   func(c *Config) { c.MaxBodyBytes = -1 },
		"MaxRowBytes":    func(c *Config) { c.MaxRowBytes = -1 },
		"MaxInlineBytes": func(c *Config) { c.MaxInlineBytes = -1 },
		"MaxHeaderBytes": func(c *Config) { c.MaxHeaderBytes = 1 },
		"StallTimeout":   func(c *Config) { c.StallTimeout = -1 },
		"IdempotencyTTL": func(c *Config) { c.IdempotencyTTL = -time.Second },
		"Quotas":         func(c *Config) { c.Quotas = []client.Quota{{Priority: rowmill.Lowest + 1}} },

		"JobWait": func(c *Config) { c.JobWait = -time.Second },
	} {
		config := w.Config
		change(&config)
		if _, err := New(config); err == nil || !strings.Contains(err.Error(), "Config."+field) {
			t.Errorf("%s: error %v", field, err)
		}
	}
}

// A query that cannot be parsed is an error.
func TestErrors_InvalidQuery(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.get("/v1/list-jobs?limit=1&x=2").want(200)
	for _, query := range []string{"limit=1;x=2", "limit=%zz", "limit=1&%", "limit=1&x=%f"} {
		if got := w.get("/v1/list-jobs?" + query).want(400).json(); got["code"] != "invalid_query" || got["message"] == "" {
			t.Errorf("%s: %v", query, got)
		}
	}
}

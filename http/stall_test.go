package http

import (
	"fmt"
	"io"
	"net"
	nethttp "net/http"
	"strings"
	"testing"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/rowmill/rowmill/http/exchange"
	"github.com/rowmill/rowmill/internal/must"
)

func TestSubmit_BodyThatStallsIsRefused(t *testing.T) {
	t.Parallel()
	w := setup(t, func(c *Config) { c.StallTimeout, c.MaxInlineBytes = 50*time.Millisecond, 10 })
	address := strings.TrimPrefix(w.http.URL, "http://")
	connection, err := net.Dial("tcp", address)
	must.Succeed(t, err)
	defer connection.Close()
	fmt.Fprintf(connection, "POST /v1/batch-inference HTTP/1.1\r\nHost: %s\r\nAuthorization: Key %s\r\nContent-Length: 1000\r\n\r\n{\"inputs\":[\"a row that is spooled\",", address, adminKey)
	text, err := io.ReadAll(connection) // until the server closes the connection
	if err != nil || !strings.HasPrefix(string(text), "HTTP/1.1 408") || !strings.Contains(string(text), "body_stalled") {
		t.Errorf("answer %q, %v", text, err)
	}
	w.noJobs()
	if w.bucket.writing != 0 {
		t.Errorf("%d writers are open", w.bucket.writing)
	}
}

func TestAuth_StalledBodyWithoutAKeyIsCut(t *testing.T) {
	t.Parallel()
	w := setup(t, func(c *Config) { c.StallTimeout = 50 * time.Millisecond })
	address := strings.TrimPrefix(w.http.URL, "http://")
	connection, err := net.Dial("tcp", address)
	must.Succeed(t, err)
	defer connection.Close()
	fmt.Fprintf(connection, "POST /v1/batch-inference HTTP/1.1\r\nHost: %s\r\nContent-Length: 1000\r\n\r\n{", address)
	text, err := io.ReadAll(connection) // until the server closes the connection
	if err != nil || !strings.HasPrefix(string(text), "HTTP/1.1 401") {
		t.Errorf("answer %q, %v", text, err)
	}
}

func TestSubmit_KeptConnectionOutlivesTheBodysDeadline(t *testing.T) {
	t.Parallel()
	const stallTimeout = 2 * time.Second
	w := setup(t, func(c *Config) { c.StallTimeout = stallTimeout })
	w.withRoute("/wait", func(c *gin.Context) {
		select {
		case <-time.After(stallTimeout + 100*time.Millisecond):
			exchange.SendJSON(c, 200, gin.H{})
		case <-c.Request.Context().Done():
			exchange.SendJSON(c, 500, gin.H{})
		}
	})
	w.submitted(`{"inputs":["a"]}`)
	r := w.request("GET", "/wait", "")
	response, err := (&nethttp.Client{Transport: w.client.Transport.(*contract).next}).Do(r)
	must.Succeed(t, err)
	defer response.Body.Close()
	if response.StatusCode != 200 {
		t.Errorf("status %d", response.StatusCode)
	}
}

package console

import (
	"net/http/httptest"
	"testing"

	"github.com/gin-gonic/gin"
)

func TestTakesGzip(t *testing.T) {
	t.Parallel()
	for accepted, want := range map[string]bool{
		"": false, "identity": false, "gzip": true, "br, GZIP;q=0.5": true, "deflate,gzip; q=1": true, "gzip;q=0": false, "gzip;q=0.0, br": false, "xgzip": false,
	} {
		c := &gin.Context{Request: httptest.NewRequest("GET", "/", nil)}
		c.Request.Header.Set("Accept-Encoding", accepted)
		if got := acceptsGzip(c); got != want {
			t.Errorf("%q: %v", accepted, got)
		}
	}
}

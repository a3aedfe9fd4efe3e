package exchange

import (
	"io"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"
)

const (
	// lingerTime is how long the server reads the rest of a refused body. This time is
	// enough for any round trip and for some megabytes on a slow line. It is short, because
	// any client can keep a connection open for this long.
	lingerTime = 5 * time.Second
	// lingerBytes is how many bytes of a refused body the server reads: more than the
	// buffers of a connection hold (about 10 MiB), and the whole body of most clients that
	// send everything before they read the answer.
	lingerBytes = 64 << 20
)

// DrainRefusedBody is a middleware that runs around all other handlers. It limits how long the server
// waits for a body that no handler reads, such as the body of a request without a key. It
// also makes sure that a client that still sends its body can read a refusal.
//
// If the server closes a connection while received bytes are unread, TCP resets the
// connection and the client loses the answer. So DrainRefusedBody sends the answer, and then reads
// and drops the client's bytes for a while (RFC 9112, 9.6). The server of net/http waits
// half a second without reading, and does not wait at all after "Expect: 100-continue",
// which curl adds to larger bodies.
func (x *Exchange) DrainRefusedBody(c *gin.Context) {
	if c.Request.ContentLength == 0 {
		return
	}
	control := http.NewResponseController(c.Writer)
	_ = control.SetReadDeadline(time.Now().Add(x.StallTimeout))
	c.Next()
	// HTTP/2 ends one stream without closing the connection, so the client does not lose
	// the answer.
	if c.Writer.Status() < http.StatusBadRequest || c.Request.ProtoMajor > 1 {
		return
	}
	if control.Flush() != nil {
		return
	}
	_ = control.SetReadDeadline(time.Now().Add(min(lingerTime, x.StallTimeout)))
	_, _ = io.CopyN(io.Discard, c.Request.Body, lingerBytes)
}

package exchange

import (
	"io"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"
)

const (
	// lingerTime is how long the rest of a refused body is read: enough for
	// any round trip and for some megabytes of a slow line, and short for a
	// connection that a stranger may hold.
	lingerTime = 5 * time.Second
	// lingerBytes is how much of it: more than the buffers of a connection
	// hold (some 10 MiB), and the whole of what most clients send that write
	// to the end before they read.
	lingerBytes = 64 << 20
)

// Linger surrounds all other handlers. It bounds how long the server waits for
// a body that no handler reads, such as that of a request without a key, and
// sees to it that a client that is refused while it still sends can read why.
//
// A connection that is closed while bytes wait on it is reset, and the reset
// takes the answer with it. So the answer goes out, and what the client is
// still sending is read and dropped for a while (RFC 9112, 9.6). The server of
// net/http waits half a second without reading, and not even that with
// "Expect: 100-continue", which curl adds to larger bodies.
func (x *Exchange) Linger(c *gin.Context) {
	if c.Request.ContentLength == 0 {
		return
	}
	control := http.NewResponseController(c.Writer)
	_ = control.SetReadDeadline(time.Now().Add(x.Patience))
	c.Next()
	// HTTP/2 ends a stream in both directions by itself.
	if c.Writer.Status() < http.StatusBadRequest || c.Request.ProtoMajor > 1 {
		return
	}
	if control.Flush() != nil {
		return
	}
	_ = control.SetReadDeadline(time.Now().Add(min(lingerTime, x.Patience)))
	_, _ = io.CopyN(io.Discard, c.Request.Body, lingerBytes)
}

package http

import (
	"errors"
	"io"
	nethttp "net/http"
	"os"
	"time"

	"github.com/gin-gonic/gin"
)

// A patientReader reads a body whose client must send something within each
// span of patience, however long the whole takes. Without it a client that
// stops in the middle would hold its rows for ever.
type patientReader struct {
	io.Reader
	control  *nethttp.ResponseController
	patience time.Duration
}

func (r *patientReader) Read(p []byte) (int, error) {
	// A connection without deadlines, as in a test, waits without an end.
	_ = r.control.SetReadDeadline(time.Now().Add(r.patience))
	n, err := r.Reader.Read(p)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		e := errorf(nethttp.StatusRequestTimeout, "body_stalled", "nothing of the body arrived for %v; send it again", r.patience)
		e.header = map[string]string{"Connection": "close"}
		err = e
	}
	return n, err
}

// done lifts the deadline once the body was read whole: the server goes on
// reading the connection, to see whether the client is still there. The
// deadline of a body that was not read to its end stays, and bounds how long
// the server tries to skip the rest.
func (r *patientReader) done() { _ = r.control.SetReadDeadline(time.Time{}) }

// boundBody bounds how long the server waits for a body that no handler reads,
// such as that of a request without a key.
func (s *Server) boundBody(c *gin.Context) {
	if c.Request.ContentLength != 0 {
		_ = nethttp.NewResponseController(c.Writer).SetReadDeadline(time.Now().Add(s.Patience))
	}
}

// A patientWriter is the same for a client that must take an answer.
type patientWriter struct {
	nethttp.ResponseWriter
	patience time.Duration
}

func (w *patientWriter) Write(p []byte) (int, error) {
	_ = nethttp.NewResponseController(w.ResponseWriter).SetWriteDeadline(time.Now().Add(w.patience))
	return w.ResponseWriter.Write(p)
}

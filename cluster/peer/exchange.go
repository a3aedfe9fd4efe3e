package peer

import (
	"io"
	"net/http"
)

// A serverExchange is a request in progress at a Responder: the body of the request, and the
// writer of the reply.
type serverExchange struct {
	http.ResponseWriter
	body io.ReadCloser
	kind string // name of the request in metrics and logs; empty if this node does not know the request

	read, written int64    // bytes read of the request, and written of the reply
	status        int      // HTTP status of the reply; 0 before the reply starts
	refusal       *Refusal // why the request was refused; nil if it succeeded
	failed        error    // why the reply could not be sent; nil if it was sent
}

type exchangeKey struct{}

// framing is the length in bytes of the prefix that gRPC puts before a message.
const framing = 5

// unread is the initial refusal of each exchange. It remains if the request never
// reaches its handler.
var unread = &Refusal{Code: CodeInvalid, Message: "the request could not be read"}

func newExchange(w http.ResponseWriter, r *http.Request, kind string, maxBody int64) *serverExchange {
	return &serverExchange{ResponseWriter: w, body: http.MaxBytesReader(w, r.Body, maxBody+framing), kind: kind, refusal: unread}
}

// recordRefusal stores a refusal in the exchange and returns the refusal as a Connect error.
func (e *serverExchange) recordRefusal(refusal *Refusal) error {
	e.refusal = refusal
	return refusal.toConnectError()
}

func (e *serverExchange) Read(p []byte) (int, error) {
	n, err := e.body.Read(p)
	e.read += int64(n)
	return n, err
}

func (e *serverExchange) Close() error { return e.body.Close() }

// WriteHeader starts the reply and stores its status.
func (e *serverExchange) WriteHeader(status int) {
	e.status = status
	e.ResponseWriter.WriteHeader(status)
}

// Write writes a section of the reply and counts its bytes.
func (e *serverExchange) Write(p []byte) (int, error) {
	n, err := e.ResponseWriter.Write(p)
	e.written += int64(n)
	if err != nil {
		e.failed = err
	}
	return n, err
}

// Unwrap returns the wrapped writer, which http.ResponseController needs.
func (e *serverExchange) Unwrap() http.ResponseWriter { return e.ResponseWriter }

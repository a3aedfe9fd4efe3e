package peer

import (
	"io"
	"net/http"
)

// An exchange is a request that is being answered: its body, and where the reply goes.
type exchange struct {
	http.ResponseWriter
	body io.ReadCloser
	kind string // empty where this node knows no such request

	read, written int64
	status        int
	refusal       *Refusal // why it was not done; nil where it was
	failed        error    // why the reply was not sent
}

type exchangeKey struct{}

// framing is what gRPC may put before a message, in bytes.
const framing = 5

// unread is what a request fails of that does not come to be handled.
var unread = &Refusal{Code: CodeInvalid, Message: "the request could not be read"}

func newExchange(w http.ResponseWriter, r *http.Request, kind string, maxBody int64) *exchange {
	return &exchange{ResponseWriter: w, body: http.MaxBytesReader(w, r.Body, maxBody+framing), kind: kind, refusal: unread}
}

// refused notes a refusal and returns it as it travels.
func (e *exchange) refused(refusal *Refusal) error {
	e.refusal = refusal
	return refusal.wire()
}

// Read reads the request.
func (e *exchange) Read(p []byte) (int, error) {
	n, err := e.body.Read(p)
	e.read += int64(n)
	return n, err
}

// Close closes the request.
func (e *exchange) Close() error { return e.body.Close() }

// WriteHeader begins the reply.
func (e *exchange) WriteHeader(status int) {
	e.status = status
	e.ResponseWriter.WriteHeader(status)
}

// Write writes some of the reply.
func (e *exchange) Write(p []byte) (int, error) {
	n, err := e.ResponseWriter.Write(p)
	e.written += int64(n)
	if err != nil {
		e.failed = err
	}
	return n, err
}

// Unwrap is for http.ResponseController.
func (e *exchange) Unwrap() http.ResponseWriter { return e.ResponseWriter }

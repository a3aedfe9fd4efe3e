package peer

import (
	"io"
	"net/http"
)

// An exchange is a request in progress: its body, and the writer of the reply.
type exchange struct {
	http.ResponseWriter
	body io.ReadCloser
	kind string // empty when this node does not know the request

	read, written int64    // bytes
	status        int      // of the reply
	refusal       *Refusal // why the request was refused; nil when it succeeded
	failed        error    // why the reply was not sent
}

type exchangeKey struct{}

// framing is the length in bytes of the prefix that gRPC may put before a message.
const framing = 5

// unread is the refusal of each new exchange. It stays if the request does not reach its
// handler.
var unread = &Refusal{Code: CodeInvalid, Message: "the request could not be read"}

func newExchange(w http.ResponseWriter, r *http.Request, kind string, maxBody int64) *exchange {
	return &exchange{ResponseWriter: w, body: http.MaxBytesReader(w, r.Body, maxBody+framing), kind: kind, refusal: unread}
}

// refused records a refusal and returns it in the form for the wire.
func (e *exchange) refused(refusal *Refusal) error {
	e.refusal = refusal
	return refusal.wire()
}

func (e *exchange) Read(p []byte) (int, error) {
	n, err := e.body.Read(p)
	e.read += int64(n)
	return n, err
}

func (e *exchange) Close() error { return e.body.Close() }

// WriteHeader starts the reply.
func (e *exchange) WriteHeader(status int) {
	e.status = status
	e.ResponseWriter.WriteHeader(status)
}

// Write writes a part of the reply.
func (e *exchange) Write(p []byte) (int, error) {
	n, err := e.ResponseWriter.Write(p)
	e.written += int64(n)
	if err != nil {
		e.failed = err
	}
	return n, err
}

// Unwrap is needed by http.ResponseController.
func (e *exchange) Unwrap() http.ResponseWriter { return e.ResponseWriter }

// Package anthropic answers in the dialect of Anthropic's clients: Message Batches. It
// defines the form of a batch, of its results and of errors. The work of a batch is a
// normal job; each row of the job is a request body.
//
//	POST /v1/messages/batches ──► lines of requests, record of a job ──► the pipeline
//	GET /v1/messages/batches/{id} ◄── the job's record; when it has ended, its results are made
//	GET /v1/messages/batches/{id}/results ◄── an artifact of the job
//
// The requests and expectations of clients come from the sources of anthropic 2.12.0 and
// 0.75.0 for Python and of @anthropic-ai/sdk 1.12.0.
package anthropic

import (
	"maps"
	"net/http"
	"slices"

	"github.com/gin-gonic/gin"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/http/batch"
	"github.com/rowmill/rowmill/http/exchange"
	"github.com/rowmill/rowmill/http/request"
)

// Dialect answers the requests of Anthropic's clients.
type Dialect struct {
	batch.Config

	batches *batch.Batches
}

// prefixBatch is the beginning of the ids of batches.
const prefixBatch = "msgbatch_"

// Route adds the routes of batches.
func (d *Dialect) Route(v1 gin.IRoutes) {
	d.batches = &batch.Batches{Config: d.Config, Dialect: rowmill.DialectAnthropic, Prefix: prefixBatch, Outcomes: d.outcomes}
	handle := d.Exchange.Handle
	v1.POST("/messages/batches", handle(d.create))
	v1.GET("/messages/batches", handle(d.list))
	v1.GET("/messages/batches/:message_batch_id", handle(d.show))
	v1.DELETE("/messages/batches/:message_batch_id", handle(d.remove))
	v1.POST("/messages/batches/:message_batch_id/cancel", handle(d.cancel))
	v1.GET("/messages/batches/:message_batch_id/results", d.Exchange.Do(d.results))
}

const (
	// Scheme is the word before a key in the header Authorization.
	Scheme = "Bearer"
	// HeaderKey is the header in which older clients send the key.
	HeaderKey = "X-Api-Key"
	// HeaderVersion is a header that all clients of the dialect send.
	HeaderVersion = "Anthropic-Version"
	// headerRequestID is the header in which clients read the id of a request.
	headerRequestID = "Request-Id"
)

// SetRequestID is a middleware that adds the request's id to the answer, in the header that
// clients of the dialect read.
func SetRequestID(c *gin.Context) { c.Header(headerRequestID, exchange.RequestID(c)) }

// typeServer is the type of errors that the service caused.
const typeServer = "api_error"

// types has the error types that other dialects do not have, by HTTP status.
var types = map[int]string{
	http.StatusRequestEntityTooLarge: "request_too_large",
	http.StatusServiceUnavailable:    "overloaded_error",
	http.StatusGatewayTimeout:        "timeout_error",
	529:                              "overloaded_error",
}

// isType reports whether kind is an error type of the dialect.
func isType(kind string) bool {
	return kind == typeServer || batch.IsErrorType(kind) || slices.Contains(slices.Collect(maps.Values(types)), kind)
}

// typeOf returns the error type for an HTTP status.
func typeOf(status int) string {
	if kind, known := types[status]; known {
		return kind
	}
	return batch.ErrorType(status, typeServer)
}

// errorBody is an error in the dialect.
type errorBody struct {
	Type      string  `json:"type"` // "error"
	Error     failure `json:"error"`
	RequestID string  `json:"request_id"`
}

type failure struct {
	Type    string `json:"type"`
	Message string `json:"message"`
}

// Error returns the body of the answer to a failed request.
func Error(c *gin.Context, e *request.Error) any {
	return errorBody{"error", failure{typeOf(e.Status), e.Message}, exchange.RequestID(c)}
}

// Package anthropic answers requests of Anthropic's clients for Message Batches. It
// defines the JSON form of a batch, of its results and of errors. Each batch runs as a
// normal job; each row of the job is a request body.
//
//	POST /v1/messages/batches ──► lines of requests, record of a job ──► the pipeline
//	GET /v1/messages/batches/{id} ◄── the job's record; when it has ended, its results are made
//	GET /v1/messages/batches/{id}/results ◄── an artifact of the job
//
// What clients send and expect was taken from their source code: anthropic 2.12.0 and
// 0.75.0 for Python, and @anthropic-ai/sdk 1.12.0.
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

// prefixBatch is the beginning of every batch id.
const prefixBatch = "msgbatch_"

// Route adds the routes of Message Batches to the router.
func (d *Dialect) Route(v1 gin.IRoutes) {
	d.batches = &batch.Batches{Config: d.Config, Dialect: rowmill.DialectAnthropic, Prefix: prefixBatch, Outcomes: d.describeResultFiles}
	handle := d.Exchange.Handle
	v1.POST("/messages/batches", handle(d.create))
	v1.GET("/messages/batches", handle(d.list))
	v1.GET("/messages/batches/:message_batch_id", handle(d.show))
	v1.DELETE("/messages/batches/:message_batch_id", handle(d.remove))
	v1.POST("/messages/batches/:message_batch_id/cancel", handle(d.cancel))
	v1.GET("/messages/batches/:message_batch_id/results", d.Exchange.HandleRaw(d.sendResults))
}

const (
	// Scheme is the word before a key in the header Authorization.
	Scheme = "Bearer"
	// HeaderKey is the header in which older clients send the key.
	HeaderKey = "X-Api-Key"
	// HeaderVersion is the header with the API version that all Anthropic clients send.
	HeaderVersion = "Anthropic-Version"
	// headerRequestID is the header in which clients read the id of a request.
	headerRequestID = "Request-Id"
)

// SetRequestID is a middleware that adds the request's id to the answer, in the header
// in which Anthropic's clients look for it.
func SetRequestID(c *gin.Context) { c.Header(headerRequestID, exchange.RequestID(c)) }

// typeServer is the type of errors that the service caused.
const typeServer = "api_error"

// types maps an HTTP status to an error type that only this dialect has.
// batch.ErrorType returns the error types that all dialects share.
var types = map[int]string{
	http.StatusRequestEntityTooLarge: "request_too_large",
	http.StatusServiceUnavailable:    "overloaded_error",
	http.StatusGatewayTimeout:        "timeout_error",
	529:                              "overloaded_error",
}

// isErrorType reports whether kind is an error type of Anthropic's API.
func isErrorType(kind string) bool {
	return kind == typeServer || batch.IsErrorType(kind) || slices.Contains(slices.Collect(maps.Values(types)), kind)
}

// errorTypeOf returns Anthropic's error type for an HTTP status.
func errorTypeOf(status int) string {
	if kind, known := types[status]; known {
		return kind
	}
	return batch.ErrorType(status, typeServer)
}

// errorBody is the JSON body of an error, as Anthropic's clients expect it.
type errorBody struct {
	Type      string      `json:"type"` // "error"
	Error     errorDetail `json:"error"`
	RequestID string      `json:"request_id"`
}

type errorDetail struct {
	Type    string `json:"type"`
	Message string `json:"message"`
}

// NewErrorBody returns the body of the answer to a failed request, as Anthropic's clients
// expect it.
func NewErrorBody(c *gin.Context, e *request.Error) any {
	return errorBody{"error", errorDetail{errorTypeOf(e.Status), e.Message}, exchange.RequestID(c)}
}

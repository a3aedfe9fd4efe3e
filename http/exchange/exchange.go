// Package exchange reads the bodies of requests and writes or streams answers, for all
// resources and dialects. It knows no route and no resource. Package request defines the
// content of errors.
package exchange

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/http/request"
	"github.com/rowmill/rowmill/internal/textfmt"
	"github.com/rowmill/rowmill/store"
)

// In any other mode gin prints to standard output. gin keeps the mode in a variable without
// a lock, so the mode must be set before servers run.
func init() { gin.SetMode(gin.ReleaseMode) }

// Keys of log attributes.
const (
	KeyRequest = "request"
	KeyRoute   = "route"
	KeyJob     = "job"
	KeyErr     = "err"
)

// Names of values in a request's context.
const (
	contextRequestID = "rowmill.request"
	contextShape     = "rowmill.shape"
)

// A Shape returns the body of an error in the form of a dialect.
type Shape func(*gin.Context, *request.Error) any

// Shaped is a middleware: handlers after it answer errors in the form of a dialect.
func Shaped(shape Shape) gin.HandlerFunc {
	return func(c *gin.Context) { c.Set(contextShape, shape) }
}

// SetRequestID stores the id of a request.
func SetRequestID(c *gin.Context, id string) { c.Set(contextRequestID, id) }

// RequestID returns the id of a request. The answer and the log show this id.
func RequestID(c *gin.Context) string { return c.GetString(contextRequestID) }

// Exchange reads bodies and writes answers.
type Exchange struct {
	Logger *slog.Logger
	// StallTimeout is the longest time in which a client neither sends nor accepts a byte
	// of a body.
	StallTimeout time.Duration
	// MaxBody limits the size of a body, in bytes.
	MaxBody int64
}

// Handle returns a gin handler for a function that returns the body of an answer with
// status 200, or an error.
func (x *Exchange) Handle(handler func(*gin.Context) (any, error)) gin.HandlerFunc {
	return func(c *gin.Context) {
		body, err := handler(c)
		if err != nil {
			x.Fail(c, err)
			return
		}
		Answer(c, http.StatusOK, body)
	}
}

// Do returns a gin handler for a function that writes the answer itself, or returns an
// error.
func (x *Exchange) Do(handler func(*gin.Context) error) gin.HandlerFunc {
	return func(c *gin.Context) {
		if err := handler(c); err != nil {
			x.Fail(c, err)
		}
	}
}

// Fail answers with err and stops the chain of handlers. It logs only errors that the
// service caused.
func (x *Exchange) Fail(c *gin.Context, err error) {
	e := request.Describe(err)
	switch {
	case e.Status == http.StatusInternalServerError || e.Status == http.StatusInsufficientStorage:
		x.Logger.Error("request failed", KeyRequest, RequestID(c), KeyRoute, c.FullPath(), KeyErr, err)
	case errors.Is(err, rowmill.ErrUnavailable) || errors.Is(err, store.ErrOutcomeUnknown):
		x.Logger.Warn("request failed, because the storage did not answer", KeyRequest, RequestID(c), KeyRoute, c.FullPath(), KeyErr, err)
	}
	for name, value := range e.Header {
		c.Header(name, value)
	}
	shape := Shape(func(c *gin.Context, e *request.Error) any { return OwnError(c, e) })
	if dialectShape, is := c.Value(contextShape).(Shape); is {
		shape = dialectShape
	}
	Answer(c, e.Status, shape(c, e))
	c.Abort()
}

// OwnError returns the body of an error in the API's own form.
func OwnError(c *gin.Context, e *request.Error) gin.H {
	body := gin.H{}
	for name, value := range e.Extra {
		body[name] = value
	}
	body["message"], body["detail"] = e.Message, e.Message
	body["code"], body["request_id"] = e.Code, RequestID(c)
	if len(e.Fields) > 0 {
		body["errors"] = e.Fields
	}
	return body
}

// JSON is the media type of answers.
const JSON = "application/json; charset=utf-8"

// Answer writes v as JSON, with its length.
func Answer(c *gin.Context, status int, v any) {
	pieces, isEncoded := v.(Encoded)
	if !isEncoded {
		body, err := Encode(v)
		if err != nil {
			panic(fmt.Sprintf("encode an answer: %v", err)) // all types of answers can be encoded
		}
		pieces = Encoded{body}
	}
	length := 0
	for _, piece := range pieces {
		length += len(piece)
	}
	c.Header("Content-Length", strconv.Itoa(length))
	c.Header("Content-Type", JSON) // replaces a type that was set before an error
	c.Header("Cache-Control", "no-store")
	c.Status(status)
	for _, piece := range pieces {
		_, _ = c.Writer.Write(piece) // fails if the client has disconnected
	}
}

// Encoded is an answer in JSON, in pieces. The last piece ends with a line end.
type Encoded [][]byte

// Encode returns v as JSON with a line end, without HTML escapes.
func Encode(v any) ([]byte, error) {
	var body bytes.Buffer
	encoder := json.NewEncoder(&body)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(v)
	return body.Bytes(), err
}

// Decimal is a number that always has a decimal point or an exponent in JSON. So readers
// that guess the type of a column never take a column of Decimals for integers.
type Decimal float64

// MarshalJSON returns the shortest text that parses to the same number.
func (d Decimal) MarshalJSON() ([]byte, error) {
	return textfmt.AppendDecimal(nil, float64(d), 64), nil
}

// decimal32 is like Decimal, for the numbers of an embedding.
type decimal32 float32

// MarshalJSON returns the shortest text that parses to the same number.
func (d decimal32) MarshalJSON() ([]byte, error) {
	return textfmt.AppendDecimal(nil, float64(d), 32), nil
}

// Decimals converts an embedding for an answer; other outputs stay unchanged.
func Decimals(output any) any {
	vector, isVector := output.([]float32)
	if !isVector {
		return output
	}
	numbers := make([]decimal32, len(vector))
	for i, f := range vector {
		numbers[i] = decimal32(f)
	}
	return numbers
}

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

// init sets gin's release mode, because gin prints to standard output in any other
// mode. gin keeps the mode in a variable without a lock, so the mode must be set before
// servers run.
func init() { gin.SetMode(gin.ReleaseMode) }

// Names of the attributes in log lines.
const (
	KeyRequest = "request"
	KeyRoute   = "route"
	KeyJob     = "job"
	KeyErr     = "err"
)

// Names under which values are stored in a request's context.
const (
	contextRequestID = "rowmill.request"
	contextShape     = "rowmill.shape"
)

// An ErrorShape returns the body of an error in the form of a dialect.
type ErrorShape func(*gin.Context, *request.Error) any

// WithErrorShape returns a middleware. Handlers after this middleware send errors in the form
// that shape returns.
func WithErrorShape(shape ErrorShape) gin.HandlerFunc {
	return func(c *gin.Context) { c.Set(contextShape, shape) }
}

// SetRequestID stores the id of a request in the request's context.
func SetRequestID(c *gin.Context, id string) { c.Set(contextRequestID, id) }

// RequestID returns the id of a request. The answer and the log show this id.
func RequestID(c *gin.Context) string { return c.GetString(contextRequestID) }

// Exchange reads the bodies of requests and writes answers.
type Exchange struct {
	Logger *slog.Logger
	// StallTimeout is how long a client may neither send nor accept a byte of a body.
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
		SendJSON(c, http.StatusOK, body)
	}
}

// HandleRaw returns a gin handler for a function that writes the answer itself, or returns an
// error.
func (x *Exchange) HandleRaw(handler func(*gin.Context) error) gin.HandlerFunc {
	return func(c *gin.Context) {
		if err := handler(c); err != nil {
			x.Fail(c, err)
		}
	}
}

// Fail answers with err and stops the chain of handlers. It logs only errors that the
// service caused.
func (x *Exchange) Fail(c *gin.Context, err error) {
	e := request.FromError(err)
	switch {
	case e.Status == http.StatusInternalServerError || e.Status == http.StatusInsufficientStorage:
		x.Logger.Error("request failed", KeyRequest, RequestID(c), KeyRoute, c.FullPath(), KeyErr, err)
	case errors.Is(err, rowmill.ErrUnavailable) || errors.Is(err, store.ErrOutcomeUnknown):
		x.Logger.Warn("request failed, because the storage did not answer", KeyRequest, RequestID(c), KeyRoute, c.FullPath(), KeyErr, err)
	}
	for name, value := range e.Header {
		c.Header(name, value)
	}
	shape := ErrorShape(func(c *gin.Context, e *request.Error) any { return NativeErrorBody(c, e) })
	if dialectShape, is := c.Value(contextShape).(ErrorShape); is {
		shape = dialectShape
	}
	SendJSON(c, e.Status, shape(c, e))
	c.Abort()
}

// NativeErrorBody returns the body of an error in the API's own form.
func NativeErrorBody(c *gin.Context, e *request.Error) gin.H {
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

// SendJSON sends v as JSON, with the given status and the header Content-Length.
func SendJSON(c *gin.Context, status int, v any) {
	pieces, isEncoded := v.(EncodedJSON)
	if !isEncoded {
		body, err := Encode(v)
		if err != nil {
			panic(fmt.Sprintf("encode an answer: %v", err)) // all types of answers can be encoded
		}
		pieces = EncodedJSON{body}
	}
	length := 0
	for _, piece := range pieces {
		length += len(piece)
	}
	c.Header("Content-Length", strconv.Itoa(length))
	c.Header("Content-Type", JSON) // replaces the type that a handler set before it failed
	c.Header("Cache-Control", "no-store")
	c.Status(status)
	for _, piece := range pieces {
		_, _ = c.Writer.Write(piece) // fails if the client has disconnected
	}
}

// EncodedJSON is an answer in JSON, in pieces. The last piece ends with a line end.
type EncodedJSON [][]byte

// Encode returns v as JSON with a line end, without HTML escapes.
func Encode(v any) ([]byte, error) {
	var body bytes.Buffer
	encoder := json.NewEncoder(&body)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(v)
	return body.Bytes(), err
}

// Decimal is a number that always has a decimal point or an exponent in JSON. So
// readers that guess the type of a column never take a column of Decimals for a column
// of integers.
type Decimal float64

// MarshalJSON returns the shortest text that parses to the same number.
func (d Decimal) MarshalJSON() ([]byte, error) {
	return textfmt.AppendDecimal(nil, float64(d), 64), nil
}

// decimal32 is written to JSON like a Decimal. It holds a number of an embedding.
type decimal32 float32

// MarshalJSON returns the shortest text that parses to the same number.
func (d decimal32) MarshalJSON() ([]byte, error) {
	return textfmt.AppendDecimal(nil, float64(d), 32), nil
}

// ToDecimals converts an embedding to a list of decimal32 for an answer. It returns any
// other output unchanged.
func ToDecimals(output any) any {
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

// Package exchange owns the two ends of a request that handlers of every
// resource and dialect share: a body that is read while it arrives, and an
// answer that is written or streamed. It knows no route and no resource, and
// what an answer says of an error is package request's.
package exchange

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/http/request"
	"github.com/rowmill/rowmill/internal/spelling"
	"github.com/rowmill/rowmill/store"
)

// In any other mode gin prints to standard output. It keeps the mode in a variable without
// a lock, so nothing may set it once servers run.
func init() { gin.SetMode(gin.ReleaseMode) }

// The keys of log attributes.
const (
	KeyRequest = "request"
	KeyRoute   = "route"
	KeyJob     = "job"
	KeyErr     = "err"
)

// The names of values of a request.
const (
	contextRequestID = "rowmill.request"
	contextShape     = "rowmill.shape"
)

// A Shape is the body of an error in the form of a dialect.
type Shape func(*gin.Context, *request.Error) any

// Shaped is a middleware: what fails behind it is answered in the form of a dialect.
func Shaped(shape Shape) gin.HandlerFunc {
	return func(c *gin.Context) { c.Set(contextShape, shape) }
}

// SetRequestID gives a request its id.
func SetRequestID(c *gin.Context, id string) { c.Set(contextRequestID, id) }

// RequestID is the id of a request, which its answer and the log show.
func RequestID(c *gin.Context) string { return c.GetString(contextRequestID) }

// Exchange reads bodies and writes answers.
type Exchange struct {
	Logger *slog.Logger
	// Patience is how long a client may neither send nor take a byte.
	Patience time.Duration
	// MaxBody bounds a body, bytes.
	MaxBody int64
}

// Handle makes a gin handler of one that returns what to answer with status
// 200, or an error.
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

// Do makes a gin handler of one that answers by itself unless it returns an
// error.
func (x *Exchange) Do(handler func(*gin.Context) error) gin.HandlerFunc {
	return func(c *gin.Context) {
		if err := handler(c); err != nil {
			x.Fail(c, err)
		}
	}
}

// Fail answers with err and stops the chain. Only errors of the service itself
// are logged: all others are the client's to read.
func (x *Exchange) Fail(c *gin.Context, err error) {
	e := request.Describe(err)
	switch {
	case e.Status == http.StatusInternalServerError || e.Status == http.StatusInsufficientStorage:
		x.Logger.Error("request failed", KeyRequest, RequestID(c), KeyRoute, c.FullPath(), KeyErr, err)
	case errors.Is(err, rowmill.ErrUnavailable) || errors.Is(err, store.ErrOutcomeUnknown):
		x.Logger.Warn("request failed for now", KeyRequest, RequestID(c), KeyRoute, c.FullPath(), KeyErr, err)
	}
	for name, value := range e.Header {
		c.Header(name, value)
	}
	shape := Shape(func(c *gin.Context, e *request.Error) any { return Own(c, e) })
	if dialects, is := c.Value(contextShape).(Shape); is {
		shape = dialects
	}
	Answer(c, e.Status, shape(c, e))
	c.Abort()
}

// Own is the body of an error in the API's own form.
func Own(c *gin.Context, e *request.Error) gin.H {
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

// An Appender is an answer that spells itself: it appends its JSON and a line's end.
type Appender func(to []byte) ([]byte, error)

// Answer writes v as JSON with its length.
func Answer(c *gin.Context, status int, v any) {
	buffer, _ := buffers.Get().(*bytes.Buffer)
	defer func() {
		if buffer.Cap() <= mostKept {
			buffer.Reset()
			buffers.Put(buffer)
		}
	}()
	if err := encode(buffer, v); err != nil {
		panic(fmt.Sprintf("encode an answer: %v", err)) // all our types encode
	}
	send(c, status, buffer.Bytes())
}

func send(c *gin.Context, status int, body []byte) {
	c.Header("Content-Length", strconv.Itoa(len(body)))
	c.Header("Content-Type", JSON) // gin would keep what was set before an error
	c.Header("Cache-Control", "no-store")
	c.Data(status, JSON, body)
}

// Encode is JSON without HTML escapes, and a line's end: texts travel as they
// are.
func Encode(v any) ([]byte, error) {
	var body bytes.Buffer
	err := encode(&body, v)
	return body.Bytes(), err
}

func encode(into *bytes.Buffer, v any) error {
	if own, is := v.(Appender); is {
		text, err := own(into.AvailableBuffer())
		into.Write(text)
		return err
	}
	encoder := json.NewEncoder(into)
	encoder.SetEscapeHTML(false)
	return encoder.Encode(v)
}

// buffers are for the bodies of answers, which grow anew to the size of a page of a
// list each time otherwise. Those beyond mostKept bytes are not kept: pages are not
// as large.
var buffers = sync.Pool{New: func() any { return new(bytes.Buffer) }}

const mostKept = 256 << 10

// Decimal is a number that always has a decimal point or exponent in JSON, so
// that a column of them never looks like integers to a reader that guesses.
type Decimal float64

// MarshalJSON writes the shortest text that reads back.
func (d Decimal) MarshalJSON() ([]byte, error) {
	return spelling.AppendDecimal(nil, float64(d), 64), nil
}

// decimal32 is the same for the numbers of an embedding.
type decimal32 float32

// MarshalJSON writes the shortest text that reads back.
func (d decimal32) MarshalJSON() ([]byte, error) {
	return spelling.AppendDecimal(nil, float64(d), 32), nil
}

// Decimals makes the numbers of an embedding decimals, and leaves any other
// output of a row as it is.
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

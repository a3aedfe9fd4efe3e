package exchange

import (
	"errors"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/rowmill/rowmill/http/request"
	"github.com/rowmill/rowmill/internal/textfmt"
)

// SmallObject is the size limit of a body with one small object, in bytes.
const SmallObject = 64 << 10

// CheckHeaders returns an error if the headers already show that the body cannot be
// accepted: it is compressed or too large.
func (x *Exchange) CheckHeaders(c *gin.Context) error {
	if coding := c.GetHeader("Content-Encoding"); coding != "" && !strings.EqualFold(coding, "identity") {
		return request.Errorf(http.StatusUnsupportedMediaType, "unsupported_encoding",
			"a body with Content-Encoding %s is not accepted; send plain JSON", textfmt.Shorten(coding, 64))
	}
	if c.Request.ContentLength > x.MaxBody {
		return &http.MaxBytesError{Limit: x.MaxBody}
	}
	return nil
}

// A Body is a request body with a timeout. Read fails if the client sends no byte for
// stallTimeout; the whole body may take any time. Without this timeout, a client that
// stops in the middle would make the server keep the received rows in memory forever.
type Body struct {
	from         io.Reader
	control      *http.ResponseController
	stallTimeout time.Duration
}

// Body returns the body of a request, with a size limit.
func (x *Exchange) Body(c *gin.Context, limit int64) *Body {
	return &Body{http.MaxBytesReader(c.Writer, c.Request.Body, limit), http.NewResponseController(c.Writer), x.StallTimeout}
}

// Read reads from the body, and returns a *request.Error if no byte arrived in time.
func (b *Body) Read(p []byte) (int, error) {
	// Some connections in tests do not support deadlines. Reads from them wait without
	// limit.
	_ = b.control.SetReadDeadline(time.Now().Add(b.stallTimeout))
	n, err := b.from.Read(p)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = request.Errorf(http.StatusRequestTimeout, "body_stalled", "nothing of the body arrived for %v; send it again", b.stallTimeout).CloseConnection()
	}
	return n, err
}

// ClearReadDeadline removes the read deadline. Call ClearReadDeadline when the whole body
// was read: the server then still reads from the connection, to notice when the client
// disconnects. If the body was not read completely, do not call ClearReadDeadline: the
// deadline then limits how long the server skips the rest of the body.
func (b *Body) ClearReadDeadline() { _ = b.control.SetReadDeadline(time.Time{}) }

// ReadObject reads a body that is one JSON object of up to limit bytes.
func (x *Exchange) ReadObject(c *gin.Context, limit int64) (request.JSONObject, error) {
	if err := x.CheckHeaders(c); err != nil {
		return request.JSONObject{}, err
	}
	body := x.Body(c, limit)
	read, err := io.ReadAll(body)
	if tooLarge := new(http.MaxBytesError); errors.As(err, &tooLarge) {
		return request.JSONObject{}, request.Errorf(http.StatusRequestEntityTooLarge, "body_too_large", "the body is larger than %d bytes", tooLarge.Limit)
	}
	if stalled := new(request.Error); err != nil && !errors.As(err, &stalled) {
		err = request.BodyInterrupted("")
	}
	if err != nil {
		return request.JSONObject{}, err
	}
	body.ClearReadDeadline()
	return request.ReadObject(read)
}

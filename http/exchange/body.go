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
	"github.com/rowmill/rowmill/internal/spelling"
)

// SmallObject bounds a body that is one small object, bytes.
const SmallObject = 64 << 10

// CheckHeaders refuses what can be refused before a body is read.
func (x *Exchange) CheckHeaders(c *gin.Context) error {
	if coding := c.GetHeader("Content-Encoding"); coding != "" && !strings.EqualFold(coding, "identity") {
		return request.Errorf(http.StatusUnsupportedMediaType, "unsupported_encoding",
			"a body with Content-Encoding %s is not accepted; send plain JSON", spelling.Shorten(coding, 64))
	}
	if c.Request.ContentLength > x.MaxBody {
		return &http.MaxBytesError{Limit: x.MaxBody}
	}
	return nil
}

// A Body is the body of a request whose client must send something within each
// span of patience, however long the whole takes. Without it a client that
// stops in the middle would hold its rows for ever.
type Body struct {
	from     io.Reader
	control  *http.ResponseController
	patience time.Duration
}

// Body returns the body of a request, bounded.
func (x *Exchange) Body(c *gin.Context, limit int64) *Body {
	return &Body{http.MaxBytesReader(c.Writer, c.Request.Body, limit), http.NewResponseController(c.Writer), x.Patience}
}

// Read reads on, and says so where nothing comes.
func (b *Body) Read(p []byte) (int, error) {
	// A connection without deadlines, as in a test, waits without an end.
	_ = b.control.SetReadDeadline(time.Now().Add(b.patience))
	n, err := b.from.Read(p)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = request.Errorf(http.StatusRequestTimeout, "body_stalled", "nothing of the body arrived for %v; send it again", b.patience).Closing()
	}
	return n, err
}

// Done lifts the deadline once the body was read whole: the server goes on
// reading the connection, to see whether the client is still there. The
// deadline of a body that was not read to its end stays, and bounds how long
// the server tries to skip the rest.
func (b *Body) Done() { _ = b.control.SetReadDeadline(time.Time{}) }

// ReadObject reads a body of up to limit bytes that is one object.
func (x *Exchange) ReadObject(c *gin.Context, limit int64, problems *request.Problems) (request.Object, error) {
	if err := x.CheckHeaders(c); err != nil {
		return request.Object{}, err
	}
	body := x.Body(c, limit)
	read, err := io.ReadAll(body)
	if tooLarge := new(http.MaxBytesError); errors.As(err, &tooLarge) {
		return request.Object{}, request.Errorf(http.StatusRequestEntityTooLarge, "body_too_large", "the body is larger than %d bytes", tooLarge.Limit)
	}
	if stalled := new(request.Error); err != nil && !errors.As(err, &stalled) {
		err = request.BodyBroke("")
	}
	if err != nil {
		return request.Object{}, err
	}
	body.Done()
	return request.ReadObject(read, problems)
}

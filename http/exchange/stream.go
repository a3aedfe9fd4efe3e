package exchange

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/rowmill/rowmill/blob"
	"github.com/rowmill/rowmill/http/request"
)

// streamBuffer is how many bytes are buffered before an answer begins. An error in this
// part still gets its own status.
const streamBuffer = 64 << 10

// Stream answers with the output of write and does not hold all output in memory. An error
// before the answer begins is returned. A later error breaks the connection, so that no
// client takes half an answer for a complete one. filename, if not empty, is the name in
// the header Content-Disposition.
func (x *Exchange) Stream(c *gin.Context, contentType, filename string, write func(*bufio.Writer) error) error {
	late := &lateWriter{c: c, out: x.Writer(c), contentType: contentType, filename: filename}
	buffered := bufio.NewWriterSize(late, streamBuffer)
	err := write(buffered)
	if err == nil {
		err = buffered.Flush()
	}
	if err == nil || !late.begun {
		return err
	}
	if c.Request.Context().Err() == nil {
		x.Logger.Error("sending an answer failed after it had begun, the connection was closed", KeyRequest, RequestID(c), KeyRoute, c.FullPath(), KeyErr, err)
	}
	panic(http.ErrAbortHandler)
}

// List answers with an object that ends in an array. head is its text up to the array.
// each yields the elements; one is in memory at a time.
func (x *Exchange) List(c *gin.Context, head string, each func(yield func(element any) error) error) error {
	return x.Stream(c, JSON, "", func(w *bufio.Writer) error {
		_, _ = w.WriteString(head)
		separator := "["
		err := each(func(element any) error {
			text, err := Encode(element)
			if err != nil {
				return fmt.Errorf("encode an element of a list: %w", err)
			}
			_, _ = w.WriteString(separator)
			separator = ","
			_, err = w.Write(text)
			return err
		})
		if err != nil {
			return err
		}
		if separator == "[" {
			_, _ = w.WriteString(separator)
		}
		_, err = w.WriteString("]}\n")
		return err
	})
}

// A lateWriter sends the headers with the first byte.
type lateWriter struct {
	c                     *gin.Context
	out                   io.Writer
	contentType, filename string
	begun                 bool
}

func (w *lateWriter) Write(p []byte) (int, error) {
	if !w.begun {
		w.begun = true
		w.c.Header("Content-Type", w.contentType)
		w.c.Header("Cache-Control", "no-store")
		if w.filename != "" {
			w.c.Header("Content-Disposition", blob.Disposition(w.filename))
		}
		w.c.Status(http.StatusOK)
	}
	return w.out.Write(p)
}

// Writer returns a writer that fails if the client accepts no byte for StallTimeout.
func (x *Exchange) Writer(c *gin.Context) http.ResponseWriter {
	return &stallWriter{ResponseWriter: c.Writer, stallTimeout: x.StallTimeout}
}

type stallWriter struct {
	http.ResponseWriter
	stallTimeout time.Duration
}

func (w *stallWriter) Write(p []byte) (int, error) {
	_ = http.NewResponseController(w.ResponseWriter).SetWriteDeadline(time.Now().Add(w.stallTimeout))
	return w.ResponseWriter.Write(p)
}

// Object answers with an object or with the requested range.
func (x *Exchange) Object(c *gin.Context, object blob.Object, contentType, filename string) {
	info := object.Info()
	c.Header("Content-Type", contentType)
	c.Header("Content-Disposition", blob.Disposition(filename))
	c.Header("Cache-Control", "private, no-cache")
	c.Header("ETag", info.ETag)
	http.ServeContent(&jsonErrors{ResponseWriter: x.Writer(c), x: x, c: c}, c.Request, "", info.Modified, blob.NewReader(object))
}

// jsonErrors replaces the text that net/http sends for an invalid Range.
type jsonErrors struct {
	http.ResponseWriter
	x        *Exchange
	c        *gin.Context
	replaced bool
}

// WriteHeader sends the status. For 416 it sends an error in JSON.
func (w *jsonErrors) WriteHeader(status int) {
	if status != http.StatusRequestedRangeNotSatisfiable {
		w.ResponseWriter.WriteHeader(status)
		return
	}
	w.replaced = true
	w.Header().Del("Content-Disposition")
	w.Header().Del("ETag")
	w.Header().Del("Last-Modified")
	w.x.Fail(w.c, request.Errorf(status, "range_not_satisfiable", "the range lies outside the file; ask for one within its size"))
}

// Write sends the file.
func (w *jsonErrors) Write(p []byte) (int, error) {
	if w.replaced {
		return len(p), nil
	}
	return w.ResponseWriter.Write(p)
}

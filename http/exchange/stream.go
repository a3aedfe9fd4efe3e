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

// streamBuffer is how many bytes are buffered before an answer begins. If an error
// happens before the buffer is full, the answer can still have the status of the error.
const streamBuffer = 64 << 10

// Stream answers with the output of write, and does not hold all output in memory. If
// an error happens before the answer begins, Stream returns the error. A later error
// breaks the connection, so that no client takes half an answer for a complete one.
// filename, if not empty, is the file name in the header Content-Disposition.
func (x *Exchange) Stream(c *gin.Context, contentType, filename string, write func(*bufio.Writer) error) error {
	late := &lazyHeaderWriter{c: c, out: x.Writer(c), contentType: contentType, filename: filename}
	buffered := bufio.NewWriterSize(late, streamBuffer)
	err := write(buffered)
	if err == nil {
		err = buffered.Flush()
	}
	if err == nil || !late.begun {
		return err
	}
	if c.Request.Context().Err() == nil {
		x.Logger.Error("an answer failed after its beginning was sent, so the connection was closed", KeyRequest, RequestID(c), KeyRoute, c.FullPath(), KeyErr, err)
	}
	panic(http.ErrAbortHandler)
}

// StreamList answers with a JSON object that has an array as its last field. head is the text of
// the object before the array. each yields the elements; only one is in memory at a time.
func (x *Exchange) StreamList(c *gin.Context, head string, each func(yield func(element any) error) error) error {
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

// A lazyHeaderWriter sets the headers of the answer only when the first byte is written.
type lazyHeaderWriter struct {
	c                     *gin.Context
	out                   io.Writer
	contentType, filename string
	begun                 bool
}

func (w *lazyHeaderWriter) Write(p []byte) (int, error) {
	if !w.begun {
		w.begun = true
		w.c.Header("Content-Type", w.contentType)
		w.c.Header("Cache-Control", "no-store")
		if w.filename != "" {
			w.c.Header("Content-Disposition", blob.ContentDisposition(w.filename))
		}
		w.c.Status(http.StatusOK)
	}
	return w.out.Write(p)
}

// Writer returns a writer to the client. Write fails if the client accepts no byte for
// StallTimeout.
func (x *Exchange) Writer(c *gin.Context) http.ResponseWriter {
	return &deadlineWriter{ResponseWriter: c.Writer, stallTimeout: x.StallTimeout}
}

type deadlineWriter struct {
	http.ResponseWriter
	stallTimeout time.Duration
}

func (w *deadlineWriter) Write(p []byte) (int, error) {
	_ = http.NewResponseController(w.ResponseWriter).SetWriteDeadline(time.Now().Add(w.stallTimeout))
	return w.ResponseWriter.Write(p)
}

// SendObject answers with a file from the bucket, or with the range of it that the client asks
// for.
func (x *Exchange) SendObject(c *gin.Context, object blob.Object, contentType, filename string) {
	info := object.Info()
	c.Header("Content-Type", contentType)
	c.Header("Content-Disposition", blob.ContentDisposition(filename))
	c.Header("Cache-Control", "private, no-cache")
	c.Header("ETag", info.ETag)
	http.ServeContent(&jsonErrorWriter{ResponseWriter: x.Writer(c), x: x, c: c}, c.Request, "", info.Modified, blob.NewReader(object))
}

// jsonErrorWriter is a ResponseWriter for http.ServeContent. For an invalid header Range it
// sends an error in JSON in place of the text of net/http.
type jsonErrorWriter struct {
	http.ResponseWriter
	x        *Exchange
	c        *gin.Context
	replaced bool
}

// WriteHeader sends the status. For 416 it sends an error in JSON.
func (w *jsonErrorWriter) WriteHeader(status int) {
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

// Write sends a piece of the file. It drops the text that net/http sends with status 416.
func (w *jsonErrorWriter) Write(p []byte) (int, error) {
	if w.replaced {
		return len(p), nil
	}
	return w.ResponseWriter.Write(p)
}

package http

import (
	"bufio"
	"io"
	nethttp "net/http"

	"github.com/gin-gonic/gin"
)

// streamBuffer is held back before an answer begins, so that an error found
// before it is full can still be told properly.
const streamBuffer = 64 << 10

// stream answers with what write produces, without holding it. An error after
// the answer has begun breaks the connection, so that no client takes half an
// answer for a whole one. filename becomes the Content-Disposition.
func (s *Server) stream(c *gin.Context, contentType, filename string, write func(*bufio.Writer) error) {
	late := &lateWriter{c: c, out: &patientWriter{ResponseWriter: c.Writer, patience: s.Patience}, contentType: contentType, filename: filename}
	buffered := bufio.NewWriterSize(late, streamBuffer)
	err := write(buffered)
	if err == nil {
		err = buffered.Flush()
	}
	if err == nil {
		return
	}
	if !late.begun {
		s.fail(c, err)
		return
	}
	if c.Request.Context().Err() == nil {
		s.Logger.Error("answer broke off", keyRequest, requestID(c), keyRoute, c.FullPath(), keyErr, err)
	}
	panic(nethttp.ErrAbortHandler)
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
			w.c.Header("Content-Disposition", disposition(w.filename))
		}
		w.c.Status(nethttp.StatusOK)
	}
	return w.out.Write(p)
}

// disposition offers a file name of ours, which needs no escapes.
func disposition(filename string) string { return `attachment; filename="` + filename + `"` }

var _ io.Writer = (*lateWriter)(nil)

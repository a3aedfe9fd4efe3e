package hostile

import (
	"bufio"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"time"
)

const (
	// MostBytes is the largest number of bytes in the answer of a bulky kind. It is
	// above the 128 MiB that a client accepts by default.
	MostBytes = 192 << 20
	// mostTime is the longest duration of an answer, also for a kind that waits.
	mostTime = 20 * time.Second
)

// An answerWriter writes one bad answer to a connection. After an error it writes nothing more.
type answerWriter struct {
	Request
	conn net.Conn
	out  *bufio.Writer
	dice *rand.Rand
	sent int64
	err  error
}

func newAnswerWriter(conn net.Conn, r Request) *answerWriter {
	_ = conn.SetDeadline(time.Now().Add(mostTime)) // if this fails, MostBytes still ends the answer
	return &answerWriter{Request: r, conn: conn, out: bufio.NewWriterSize(conn, 64<<10), dice: newRand(r.Seed)}
}

var errEnough = errors.New("the answer has reached MostBytes")

// writeText writes the parts unchanged.
func (w *answerWriter) writeText(parts ...string) {
	for _, part := range parts {
		if w.err != nil {
			return
		}
		if w.sent += int64(len(part)); w.sent > MostBytes {
			w.err = errEnough
			return
		}
		_, w.err = w.out.WriteString(part)
	}
}

// flush sends the buffered bytes immediately.
func (w *answerWriter) flush() {
	if w.err == nil {
		w.err = w.out.Flush()
	}
}

// writeEndless repeats a text until the client stops reading, or until MostBytes or mostTime
// ends the answer.
func (w *answerWriter) writeEndless(piece string) {
	piece = strings.Repeat(piece, max(1, 4096/len(piece)))
	for w.err == nil {
		w.writeText(piece)
	}
}

// close sends the buffered bytes and closes the connection.
func (w *answerWriter) close() {
	if w.err == nil || errors.Is(w.err, errEnough) {
		_ = w.out.Flush() // the client may have disconnected
	}
	_ = w.conn.Close()
}

// wait returns after the client has disconnected, or after mostTime.
func (w *answerWriter) wait() {
	w.flush()
	_, _ = io.Copy(io.Discard, w.conn)
}

// writeStatus writes the status line and the headers of every answer.
func (w *answerWriter) writeStatus(code int) {
	w.writeText("HTTP/1.1 ", strconv.Itoa(code), " Something\r\nServer: rowmill-sim\r\nX-Simulated: true\r\n")
}

func (w *answerWriter) writeHeader(name, value string) { w.writeText(name, ": ", value, "\r\n") }

// writeHead writes the status line and headers of an answer with status 200 and a body of
// length bytes. If length is negative, writeHead omits the header Content-Length.
func (w *answerWriter) writeHead(length int) {
	w.writeStatus(200)
	w.writeHeader("Content-Type", w.Type)
	if length >= 0 {
		w.writeHeader("Content-Length", strconv.Itoa(length))
	}
	w.writeText("\r\n")
}

// writeBody writes a complete answer with status 200 and this body.
func (w *answerWriter) writeBody(text string) {
	w.writeHead(len(text))
	w.writeText(text)
}

// startChunked starts an answer with chunked transfer encoding.
func (w *answerWriter) startChunked() {
	w.writeStatus(200)
	w.writeHeader("Content-Type", w.Type)
	w.writeHeader("Transfer-Encoding", "chunked")
	w.writeText("\r\n")
}

func (w *answerWriter) writeChunk(text string) {
	w.writeText(strconv.FormatInt(int64(len(text)), 16), "\r\n", text, "\r\n")
}

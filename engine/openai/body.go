package openai

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
)

// framing says how an HTTP body marks its end.
type framing uint8

const (
	byLength framing = iota // Content-Length
	byChunks                // Transfer-Encoding: chunked
	byClose                 // the server closes the connection
)

// maxTrailers limits the trailer lines after the last chunk of a body. Model servers
// send no trailer lines.
const maxTrailers = 32

// errBodyTooLarge reports a body larger than Config.MaxBodyBytes.
var errBodyTooLarge = errors.New("reply exceeds the limit on its size")

// errChunk reports malformed chunked encoding.
var errChunk = errors.New("reply has a malformed chunk")

// A replyBody returns the bytes of a reply's body as slices of the connection's read buffer.
// It implements windowSource.
type replyBody struct {
	in      *bufio.Reader
	framing framing
	left    int64 // byLength: unread bytes of the body; byChunks: unread bytes of the current chunk
	room    int64 // bytes that may still follow before the body exceeds its size limit
	held    int   // length of the slice that nextWindow returned last; its bytes are still in the read buffer
	begun   bool  // byChunks: the first chunk was read
	done    bool  // the whole body was read
}

// reset prepares b for the body of a new reply. length is the result of fasthttp's
// ContentLength: -1 means chunked, and a lower number means that the server closes the
// connection after the body. limit is the maximum size of the body in bytes.
func (b *replyBody) reset(in *bufio.Reader, length int, limit int64) {
	*b = replyBody{in: in, room: limit}
	switch {
	case length >= 0:
		b.left = int64(length)
		b.done = length == 0
	case length == -1:
		b.framing = byChunks
	default:
		b.framing = byClose
	}
}

// nextWindow returns the next bytes of the body, which are valid until the next call.
// io.EOF means that the body is complete.
func (b *replyBody) nextWindow() ([]byte, error) {
	if b.held > 0 {
		_, _ = b.in.Discard(b.held)
		b.held = 0
		if b.framing == byLength && b.left == 0 {
			b.done = true
		}
	}
	if b.done {
		return nil, io.EOF
	}
	if b.framing == byChunks && b.left == 0 {
		if err := b.readChunkSize(); err != nil {
			return nil, err
		}
	}
	if _, err := b.in.Peek(1); err != nil {
		if !errors.Is(err, io.EOF) {
			return nil, err
		}
		if b.framing == byClose {
			b.done = true
			return nil, io.EOF
		}
		return nil, fmt.Errorf("connection ends inside the reply: %w", io.ErrUnexpectedEOF)
	}
	n := b.in.Buffered()
	if b.framing != byClose {
		n = int(min(int64(n), b.left))
		b.left -= int64(n)
	}
	if b.room -= int64(n); b.room < 0 {
		return nil, errBodyTooLarge
	}
	b.held = n
	return b.in.Peek(n)
}

// readChunkSize reads the line with the size of the next chunk. It returns io.EOF at the
// end of the body.
func (b *replyBody) readChunkSize() error {
	if b.begun {
		line, err := b.readLine()
		if err != nil {
			return err
		}
		if len(line) > 0 {
			return errChunk
		}
	}
	b.begun = true
	line, err := b.readLine()
	if err != nil {
		return err
	}
	size, _, _ := bytes.Cut(line, []byte(";")) // ignore chunk extensions
	b.left, err = parseHex(bytes.TrimRight(size, " \t"))
	if err != nil || b.left > 0 {
		return err
	}
	for range maxTrailers {
		line, err := b.readLine()
		if err != nil {
			return err
		}
		if len(line) == 0 {
			b.done = true
			return io.EOF
		}
	}
	return errChunk
}

// readLine reads one line between chunks, without its line end. The line counts towards the
// size limit, because the size line of a one-byte chunk may have thousands of bytes.
func (b *replyBody) readLine() ([]byte, error) {
	line, err := b.in.ReadSlice('\n')
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errChunk, err)
	}
	if b.room -= int64(len(line)); b.room < 0 {
		return nil, errBodyTooLarge
	}
	return bytes.TrimSuffix(line[:len(line)-1], []byte("\r")), nil
}

func parseHex(b []byte) (int64, error) {
	n, err := strconv.ParseUint(string(b), 16, 60)
	if err != nil {
		return 0, errChunk
	}
	return int64(n), nil
}

// readUpTo returns the first limit bytes of the body. A shorter body is read to its
// end, so that the connection can be reused.
func (b *replyBody) readUpTo(limit int) ([]byte, error) {
	var out []byte
	for len(out) < limit {
		win, err := b.nextWindow()
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return out, err
		}
		out = append(out, win[:min(len(win), limit-len(out))]...)
	}
	return out, nil
}

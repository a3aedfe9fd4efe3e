package openai

import (
	"bytes"
	"errors"
	"io"
)

// An eventKind is the kind of a line in a stream.
type eventKind uint8

const (
	eventData  eventKind = iota + 1 // a chunk of the answer, or an error object with a key "error"
	eventError                      // the error object itself: llama.cpp before the end of 2025
	eventDone                       // [DONE]: the end of the answer
	eventBreak                      // an empty line, which ends an event
	eventEnd                        // the body ended without [DONE]
)

// byteOrderMark may come before a stream and is ignored.
const byteOrderMark = "\uFEFF"

// lineBreak separates the lines of a payload.
var lineBreak = []byte("\n")

// events reads server-sent events (WHATWG HTML, section 9.2.6). It is a source of the
// current payload only, so a scanner reads a payload like a body. While the JSON of a
// payload is incomplete, further data lines up to an empty line belong to the payload.
// Once the JSON is complete, the next data line starts the next payload, because some
// gateways leave out the empty lines.
type events struct {
	src   source
	rest  []byte // rest of the source's current window
	begun bool   // the stream's first line has begun
	open  bool   // the current line continues in rest
	whole bool   // the current payload is complete
	cr    bool   // the line before ended in a CR; a following LF belongs to it
	over  bool   // the source is complete
}

// next moves to the next payload. It skips comments, other fields and the rest of the
// current payload.
func (e *events) next() (eventKind, error) {
	if err := e.begin(); err != nil && !errors.Is(err, io.EOF) {
		return 0, err
	}
	for e.whole = false; ; {
		if err := e.skipLine(); err != nil {
			return 0, err
		}
		kind, err := e.field()
		if errors.Is(err, io.EOF) {
			return eventEnd, nil
		}
		if err != nil || kind != 0 && kind != eventBreak {
			return kind, err
		}
	}
}

// begin skips a byte-order mark before the first line. A line that begins with part of
// a mark has an unknown field name and is ignored.
func (e *events) begin() error {
	for i := 0; !e.begun && i < len(byteOrderMark); i++ {
		if err := e.more(); err != nil {
			return err
		}
		if e.rest[0] != byteOrderMark[i] {
			e.begun, e.open = true, i > 0
			return nil
		}
		e.rest = e.rest[1:]
	}
	e.begun = true
	return nil
}

// field reads the field name of a line, up to the payload. It returns 0 if the line has
// no known field.
func (e *events) field() (eventKind, error) {
	const longest = len("error")
	var name [longest]byte
	length := 0
	for {
		c, err := e.byte()
		switch {
		case err != nil:
			return 0, err
		case c == '\n' || c == '\r':
			e.cr = c == '\r'
			if length == 0 {
				return eventBreak, nil
			}
			return 0, nil
		case c != ':' && length < longest:
			name[length] = c
			length++
			continue
		}
		e.open = true
		switch {
		case c == ':' && string(name[:length]) == "data":
			return e.dataKind()
		case c == ':' && string(name[:length]) == "error":
			return eventError, nil
		}
		return 0, nil
	}
}

// dataKind distinguishes a chunk, which is an object, from the word that ends a stream.
func (e *events) dataKind() (eventKind, error) {
	for {
		if err := e.more(); err != nil {
			return 0, err
		}
		switch e.rest[0] {
		case ' ':
			e.rest = e.rest[1:]
		case '[':
			return eventDone, nil
		case '\r', '\n':
			return 0, nil // an empty payload
		default:
			return eventData, nil
		}
	}
}

// window returns the next bytes of the current payload; io.EOF means its end.
func (e *events) window() ([]byte, error) {
	if e.open {
		if win, err := e.line(); err == nil || e.open {
			return win, err
		}
	}
	if e.whole {
		return nil, io.EOF
	}
	if err := e.nextLine(); err != nil {
		return nil, err
	}
	return lineBreak, nil
}

// nextLine moves to the next line of the current payload; io.EOF means that there is
// none.
func (e *events) nextLine() error {
	for {
		if err := e.skipLine(); err != nil {
			return err
		}
		switch kind, err := e.field(); {
		case err != nil:
			return err
		case kind == eventData || kind == eventDone: // a part may begin with a bracket
			return nil
		case kind != 0:
			e.whole = true
			return io.EOF
		}
	}
}

// line returns the next bytes of the current line. io.EOF means the end of the line, or
// the end of the stream if open is still true.
func (e *events) line() ([]byte, error) {
	if err := e.more(); err != nil {
		return nil, err
	}
	win := e.rest
	end := bytes.IndexByte(win, '\n')
	if cr := bytes.IndexByte(win[:max(end, 0)], '\r'); cr >= 0 {
		end = cr
	} else if end < 0 {
		end = bytes.IndexByte(win, '\r')
	}
	if end < 0 {
		e.rest = nil
		return win, nil
	}
	win, e.rest, e.open, e.cr = win[:end], win[end+1:], false, win[end] == '\r'
	if end == 0 {
		return nil, io.EOF
	}
	return win, nil
}

// skipLine skips the rest of the current line.
func (e *events) skipLine() error {
	for e.open {
		if _, err := e.line(); err != nil && !errors.Is(err, io.EOF) {
			return err
		} else if err != nil {
			e.open = false
		}
	}
	return nil
}

// byte consumes one byte.
func (e *events) byte() (byte, error) {
	if err := e.more(); err != nil {
		return 0, err
	}
	c := e.rest[0]
	e.rest = e.rest[1:]
	return c, nil
}

// more makes sure that rest has at least one byte, and skips the LF of a CR LF.
func (e *events) more() error {
	for {
		if e.cr && len(e.rest) > 0 {
			e.cr = false
			e.rest = bytes.TrimPrefix(e.rest, lineBreak)
		}
		switch {
		case len(e.rest) > 0:
			return nil
		case e.over:
			return io.EOF
		}
		win, err := e.src.window()
		if err != nil {
			e.over = errors.Is(err, io.EOF)
			return err
		}
		e.rest = win
	}
}

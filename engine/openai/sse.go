package openai

import (
	"bytes"
	"errors"
	"io"
)

// An eventKind is the kind of a line in a stream of server-sent events.
type eventKind uint8

const (
	eventData  eventKind = iota + 1 // a data line: a chunk of the answer, or an error object with a key "error"
	eventError                      // an error line with an error object: llama.cpp before the end of 2025
	eventDone                       // the data line [DONE]: the end of the answer
	eventBreak                      // an empty line, which ends an event
	eventEnd                        // the body ended without [DONE]
)

// byteOrderMark is a character that some servers send before a stream. eventReader ignores
// it.
const byteOrderMark = "\uFEFF"

// lineBreak is the byte between two lines of a payload.
var lineBreak = []byte("\n")

// eventReader reads a stream of server-sent events (WHATWG HTML, section 9.2.6). As a
// windowSource, it returns only the bytes of the current payload, so a scanner can read one
// payload like a whole body. While the JSON of a payload is incomplete, the following data
// lines up to an empty line belong to the same payload. When the JSON is complete, the next
// data line starts the next payload, because some gateways leave out the empty lines.
type eventReader struct {
	src   windowSource
	rest  []byte // unread bytes of the current window of src
	begun bool   // the first line of the stream has begun
	open  bool   // the current line continues in rest
	whole bool   // the current payload is complete
	cr    bool   // the previous line ended in CR; if LF follows, it belongs to that line end
	over  bool   // src has no more bytes
}

// nextPayload moves to the next payload and returns the kind of its first line. It skips the
// rest of the current payload, comments and unknown fields.
func (e *eventReader) nextPayload() (eventKind, error) {
	if err := e.skipByteOrderMark(); err != nil && !errors.Is(err, io.EOF) {
		return 0, err
	}
	for e.whole = false; ; {
		if err := e.skipLine(); err != nil {
			return 0, err
		}
		kind, err := e.readFieldName()
		if errors.Is(err, io.EOF) {
			return eventEnd, nil
		}
		if err != nil || kind != 0 && kind != eventBreak {
			return kind, err
		}
	}
}

// skipByteOrderMark skips a byte-order mark before the first line of the stream. A line
// that begins with only a part of the mark has an unknown field name, so eventReader
// ignores the line.
func (e *eventReader) skipByteOrderMark() error {
	for i := 0; !e.begun && i < len(byteOrderMark); i++ {
		if err := e.fillRest(); err != nil {
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

// readFieldName consumes the field name of a line and its colon, and returns the kind of the
// line. It returns 0 if the field is unknown.
func (e *eventReader) readFieldName() (eventKind, error) {
	const longest = len("error")
	var name [longest]byte
	length := 0
	for {
		c, err := e.readByte()
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

// dataKind returns the kind of a data line: a chunk begins with a brace, the word
// [DONE] begins with a bracket.
func (e *eventReader) dataKind() (eventKind, error) {
	for {
		if err := e.fillRest(); err != nil {
			return 0, err
		}
		switch e.rest[0] {
		case ' ':
			e.rest = e.rest[1:]
		case '[':
			return eventDone, nil
		case '\r', '\n':
			return 0, nil // the data line is empty
		default:
			return eventData, nil
		}
	}
}

// nextWindow returns the next bytes of the current payload; io.EOF means the end of the
// payload.
func (e *eventReader) nextWindow() ([]byte, error) {
	if e.open {
		if win, err := e.readLinePart(); err == nil || e.open {
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

// nextLine moves to the next data line of the current payload; io.EOF means that the
// payload has no further line.
func (e *eventReader) nextLine() error {
	for {
		if err := e.skipLine(); err != nil {
			return err
		}
		switch kind, err := e.readFieldName(); {
		case err != nil:
			return err
		case kind == eventData || kind == eventDone: // a part of the JSON may begin with a bracket, like [DONE]
			return nil
		case kind != 0:
			e.whole = true
			return io.EOF
		}
	}
}

// readLinePart returns the next bytes of the current line. io.EOF means the end of the line,
// or, if e.open is still true, the end of the stream.
func (e *eventReader) readLinePart() ([]byte, error) {
	if err := e.fillRest(); err != nil {
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
func (e *eventReader) skipLine() error {
	for e.open {
		if _, err := e.readLinePart(); err != nil && !errors.Is(err, io.EOF) {
			return err
		} else if err != nil {
			e.open = false
		}
	}
	return nil
}

// readByte consumes and returns the next byte of the stream.
func (e *eventReader) readByte() (byte, error) {
	if err := e.fillRest(); err != nil {
		return 0, err
	}
	c := e.rest[0]
	e.rest = e.rest[1:]
	return c, nil
}

// fillRest gets the next window if rest is empty, so that rest has at least one byte. It
// also skips the LF of a CR LF.
func (e *eventReader) fillRest() error {
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
		win, err := e.src.nextWindow()
		if err != nil {
			e.over = errors.Is(err, io.EOF)
			return err
		}
		e.rest = win
	}
}

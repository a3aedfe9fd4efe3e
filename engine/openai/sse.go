package openai

import (
	"bytes"
	"errors"
	"io"
)

// An eventKind says what a line of a stream holds.
type eventKind uint8

const (
	eventData  eventKind = iota + 1 // a chunk of the answer, or an error object with a key "error"
	eventError                      // the error object itself: llama.cpp before 2025's end
	eventDone                       // [DONE]: nothing more comes
	eventEnd                        // the body ended without [DONE]
)

// events reads server-sent events (WHATWG HTML, section 9.2.6). It is a source
// that ends with the payload of the current line, so that a scanner reads one
// payload as it reads one body. A payload over several lines, which the format
// allows, is written by no server and ends as truncated JSON.
type events struct {
	src  source
	rest []byte // of the source's current window
	open bool   // the current payload goes on in rest
	over bool   // the source has ended where it should
}

// next goes on to the next payload, over comments, other fields and what was
// left of the current one.
func (e *events) next() (eventKind, error) {
	for {
		if err := e.skipLine(); err != nil {
			return 0, err
		}
		kind, err := e.field()
		if errors.Is(err, io.EOF) {
			return eventEnd, nil
		}
		if err != nil || kind != 0 {
			return kind, err
		}
	}
}

// field reads the name of a line's field, up to the payload. It returns 0 where
// the line holds none that matters.
func (e *events) field() (eventKind, error) {
	const longest = len("error")
	var name [longest]byte
	length := 0
	for {
		c, err := e.byte()
		switch {
		case err != nil:
			return 0, err
		case c == '\n':
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

// dataKind tells a chunk, which is an object, from the word that ends a stream.
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

// window returns the bytes of the current payload; io.EOF is its end.
func (e *events) window() ([]byte, error) {
	if !e.open {
		return nil, io.EOF
	}
	if err := e.more(); err != nil {
		return nil, err
	}
	win := e.rest
	if end := bytes.IndexByte(win, '\n'); end >= 0 {
		win, e.rest, e.open = win[:end], win[end+1:], false
		if end == 0 {
			return nil, io.EOF
		}
		return win, nil
	}
	e.rest = nil
	return win, nil
}

// skipLine drops what is left of the current payload.
func (e *events) skipLine() error {
	for e.open {
		if _, err := e.window(); err != nil && !errors.Is(err, io.EOF) {
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

// more makes rest hold at least one byte.
func (e *events) more() error {
	for len(e.rest) == 0 {
		if e.over {
			return io.EOF
		}
		win, err := e.src.window()
		if err != nil {
			e.over = errors.Is(err, io.EOF)
			return err
		}
		e.rest = win
	}
	return nil
}

package input

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
)

// lineBuffer is how many bytes are read at a time.
const lineBuffer = 256 << 10

// lines splits a text at line feeds. It removes a carriage return before a line
// feed, and a byte order mark at the beginning.
type lines struct {
	src      *bufio.Reader
	maxBytes int64 // longest line in bytes, with its end
	number   int64 // number of the current line, from 1
	line     []byte
}

func newLines(src io.Reader, maxBytes int64) *lines {
	return &lines{src: bufio.NewReaderSize(src, lineBuffer), maxBytes: maxBytes}
}

// next reads a line, which is valid until the next call. whole is false if the
// line was too long and was skipped. After the last line the error is io.EOF.
func (l *lines) next() (line []byte, whole bool, err error) {
	l.number++
	l.line, whole = l.line[:0], true
	for {
		part, err := l.src.ReadSlice('\n')
		if whole = whole && int64(len(l.line)+len(part)) <= l.maxBytes; whole {
			l.line = append(l.line, part...)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case errors.Is(err, io.EOF) && len(l.line) > 0, errors.Is(err, io.EOF) && !whole:
		case err != nil:
			return nil, false, err
		}
		line = l.line
		if l.number == 1 {
			line = bytes.TrimPrefix(line, byteOrderMark)
		}
		return bytes.TrimRight(line, "\r\n"), whole, nil
	}
}

// place returns the position of the current line, for messages.
func (l *lines) place() string { return fmt.Sprintf(" (line %d)", l.number) }

var byteOrderMark = []byte("\xEF\xBB\xBF")

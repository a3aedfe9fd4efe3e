package input

import (
	"bufio"
	"bytes"
	"errors"
	"io"
)

// lineBuffer is how much is read at a time, bytes.
const lineBuffer = 256 << 10

// lines cuts a text at line feeds; a carriage return before one, and a byte order
// mark before all of them, belong to no line.
type lines struct {
	src    *bufio.Reader
	most   int64 // bytes of a line with its end
	number int64 // of the line that was read, from 1
	line   []byte
}

func newLines(src io.Reader, most int64) *lines {
	return &lines{src: bufio.NewReaderSize(src, lineBuffer), most: most}
}

// next reads a line, which is valid until the next one is; whole is false where it
// is too long and was passed over. After the last it is io.EOF.
func (l *lines) next() (line []byte, whole bool, err error) {
	l.number++
	l.line, whole = l.line[:0], true
	for {
		part, err := l.src.ReadSlice('\n')
		if whole = whole && int64(len(l.line)+len(part)) <= l.most; whole {
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

var byteOrderMark = []byte("\xEF\xBB\xBF")

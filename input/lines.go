package input

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"iter"
)

// lineBuffer is the size of the read buffer, in bytes.
const lineBuffer = 256 << 10

// lineReader splits a text into lines at line feeds. It removes a carriage return before a
// line feed, and a byte order mark at the beginning of the text.
type lineReader struct {
	src      *bufio.Reader
	maxBytes int64  // longest line with its line end, in bytes
	number   int64  // number of the current line, from 1
	line     []byte // buffer for the current line
}

func newLines(src io.Reader, maxBytes int64) *lineReader {
	size := lineBuffer
	if text, ok := src.(*textReader); ok {
		size = text.bufferSize(size)
	}
	return &lineReader{src: bufio.NewReaderSize(src, size), maxBytes: maxBytes}
}

// readLine reads a line without its line end. The line is valid until the next call. If the
// line is too long, readLine skips it and whole is false. After the last line the error is
// io.EOF.
func (l *lineReader) readLine() (line []byte, whole bool, err error) {
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

// Lines returns the lines of a text file without their line ends; a gzip or zstd file is unpacked. A
// line is valid until the next one. After an error there are no more lines.
func Lines(r io.ReaderAt, size int64, limits Limits) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		opts, file, packed, err := openSource(r, size, Options{Limits: limits})
		if err != nil {
			yield(nil, err)
			return
		}
		text, err := openText(file, packed, opts)
		if err != nil {
			yield(nil, err)
			return
		}
		defer text.close()
		for lines := newLines(text, opts.Limits.MaxRecordBytes); ; {
			line, whole, err := lines.readLine()
			switch {
			case errors.Is(err, io.EOF) && file.err == nil:
				return
			case err != nil:
				err = text.convertReadError(err)
			case !whole:
				err = invalidFileError("Line %d of the input has more than %d bytes. Shorten it.", lines.number, opts.Limits.MaxRecordBytes)
			}
			if !yield(line, err) || err != nil {
				return
			}
		}
	}
}

// describePosition returns the position of the current line for error messages, such as " (line
// 3)".
func (l *lineReader) describePosition() string { return fmt.Sprintf(" (line %d)", l.number) }

var byteOrderMark = []byte("\xEF\xBB\xBF")

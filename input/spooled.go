package input

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/rowmill/rowmill"
)

// maxSpoolLine is the longest line of a spooled submission, in bytes: a row of 64 MiB,
// the longest in a submission, with every byte written as \u00XX.
const maxSpoolLine = 6*(64<<20) + 3

// NewSpooledReader returns a Reader of rows that this program spooled, with one JSON string per
// line. The program checks rows before it spools them. So a bad line is not the
// client's fault, and its error is not a *rowmill.Failure.
func NewSpooledReader(src io.Reader) Reader { return NewSpooledObjectReader(src, nil) }

// NewSpooledObjectReader is like NewSpooledReader, but a line can also be a JSON object. The
// function object returns the text and the fields of such a line; it must not keep the
// line. If it returns a *rowmill.Failure, reading ends with that Failure.
func NewSpooledObjectReader(src io.Reader, convert func(row int64, convert []byte) (text, fields string, err error)) Reader {
	return &spooledRowReader{src: bufio.NewReaderSize(src, 256<<10), object: convert}
}

// spooledRowReader is the Reader for rows that this program spooled.
type spooledRowReader struct {
	src    *bufio.Reader
	object func(row int64, object []byte) (text, fields string, err error) // converts a JSON object; nil if there are none
	line   []byte                                                          // buffer for a line that is longer than src's buffer
	next   int64                                                           // index of the next row
}

func (r *spooledRowReader) Next(row *rowmill.Row) error {
	line, err := r.readLine()
	if errors.Is(err, io.EOF) {
		return io.EOF
	}
	if err != nil {
		return fmt.Errorf("read spooled row %d: %w", r.next, err)
	}
	var text, fields string
	if r.object != nil && len(line) > 0 && line[0] == '{' {
		text, fields, err = r.object(r.next, line)
	} else {
		text, err = unquote(line)
	}
	if failure := (*rowmill.Failure)(nil); errors.As(err, &failure) {
		return failure
	}
	if err != nil {
		return fmt.Errorf("read spooled row %d: %w", r.next, err)
	}
	*row = rowmill.Row{Index: r.next, Text: text, Fields: fields}
	r.next++
	return nil
}

// readLine returns the next line without its line end. The line is valid until the next
// call.
func (r *spooledRowReader) readLine() ([]byte, error) {
	line, err := r.src.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		r.line = r.line[:0]
		for errors.Is(err, bufio.ErrBufferFull) {
			if r.line = append(r.line, line...); len(r.line) > maxSpoolLine {
				return nil, fmt.Errorf("the line has more than %d bytes", maxSpoolLine)
			}
			line, err = r.src.ReadSlice('\n')
		}
		r.line = append(r.line, line...)
		line = r.line
	}
	switch {
	case errors.Is(err, io.EOF) && len(line) > 0:
		return nil, io.ErrUnexpectedEOF
	case err != nil:
		return nil, err
	}
	return line[:len(line)-1], nil
}

// unquote decodes a JSON string. It is fast for strings without escapes, which are the
// most common.
func unquote(line []byte) (string, error) {
	n := len(line)
	if n >= 2 && line[0] == '"' && line[n-1] == '"' && bytes.IndexByte(line, '\\') < 0 {
		return string(line[1 : n-1]), nil
	}
	var text string
	if err := json.Unmarshal(line, &text); err != nil {
		// The decoder's message would contain data of the row, so it is not wrapped.
		return "", errors.New("the line is not a JSON string")
	}
	return text, nil
}

func (r *spooledRowReader) IDType() rowmill.IDType { return rowmill.IDType{} }

func (r *spooledRowReader) Close() error { return nil }

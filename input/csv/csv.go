// Package csv reads comma-separated values in the form of RFC 4180, or with
// another separator, as a stream and fast. Unlike encoding/csv it keeps every
// byte of a field (also a CR LF inside quotes), limits the memory for a record,
// and reports the line of a quote that is not closed. It does not know the
// names or meaning of columns.
package csv

import (
	"cmp"
	"errors"
	"fmt"
	"io"
)

// Config holds the limits and the separator of a reader.
type Config struct {
	// MaxRecord is the longest record, in bytes. Default 32 MiB: four times the
	// longest row of a job, so that there is room for other columns. A file
	// with an unclosed quote can make the reader hold this much.
	MaxRecord int
	// MaxFields is the largest number of fields in the first record; all other
	// records must have the same number. Default 16,384: far more than programs
	// write.
	MaxFields int
	// Buffer is how many bytes are read at a time. Default 256 KiB: more is not
	// measurably faster.
	Buffer int
	// Separator is between two fields. Default a comma. If it is a tab, a field
	// that does not begin with a quote can contain quotes, because most
	// programs write tab-separated values without quoting.
	Separator byte
}

// WithDefaults replaces zero fields with their defaults.
func (c Config) WithDefaults() Config {
	c.MaxRecord = cmp.Or(c.MaxRecord, 32<<20)
	c.MaxFields = cmp.Or(c.MaxFields, 16<<10)
	c.Buffer = cmp.Or(c.Buffer, 256<<10)
	c.Separator = cmp.Or(c.Separator, ',')
	return c
}

// Validate returns an error that names the first invalid setting.
func (c Config) Validate() error {
	switch {
	case c.MaxRecord < 0 || c.MaxRecord > 1<<30:
		return fmt.Errorf("max record: %d is not between 0 and %d bytes", c.MaxRecord, 1<<30)
	case c.MaxFields < 0:
		return fmt.Errorf("max fields: %d is negative", c.MaxFields)
	case c.Buffer < 0:
		return fmt.Errorf("buffer: %d is negative", c.Buffer)
	case c.Separator == '"' || c.Separator == '\n' || c.Separator == '\r' || c.Separator > 0x7F:
		return fmt.Errorf("separator: %q cannot separate fields", c.Separator)
	}
	return nil
}

// These errors say why a file is not CSV. They are wrapped in a *ParseError.
var (
	ErrQuote    = errors.New(`a quote (") inside a field must be doubled, and the field quoted`)
	ErrUnclosed = errors.New("the quoted field that begins on this line is never closed")
	ErrTooLong  = errors.New("the record that begins on this line is too long")
	ErrFields   = errors.New("the line and the header have different numbers of fields")
	ErrTooWide  = errors.New("the header has too many fields")
	ErrNotUTF8  = errors.New("the file is not UTF-8")
	ErrUTF16    = errors.New("the file is UTF-16 or UTF-32")
)

// ParseError says where a file is not CSV, and why.
type ParseError struct {
	Line   int64 // from 1; for ErrUnclosed the line where the quote was opened; 0 for ErrNotUTF8
	Offset int64 // in bytes from the beginning of the file
	Fields int   // ErrFields: number of fields in the line
	Want   int   // ErrFields: number of fields in the header
	Err    error // one of the errors above
}

// Error names the line and the reason.
func (e *ParseError) Error() string {
	if errors.Is(e.Err, ErrFields) {
		return fmt.Sprintf("line %d: %d fields where the header has %d", e.Line, e.Fields, e.Want)
	}
	if e.Line == 0 {
		return fmt.Sprintf("byte %d: %v", e.Offset, e.Err)
	}
	return fmt.Sprintf("line %d, byte %d: %v", e.Line, e.Offset, e.Err)
}

// Unwrap returns the reason.
func (e *ParseError) Unwrap() error { return e.Err }

// span is a field within the current record.
type span struct{ start, end int }

// Reader reads records. It is for one goroutine.
type Reader struct {
	src  io.Reader
	cfg  Config
	buf  []byte
	rec  int  // beginning of the current record in buf
	pos  int  // beginning of the next record in buf
	end  int  // end of the bytes read
	eof  bool // src has no more
	seen bool // the first bytes were checked

	base   int64 // offset of buf[0] in the file
	line   int64 // line of the current record
	next   int64 // line of the next record
	valid  int   // buf[:valid] is UTF-8
	fields []span
	width  int // number of fields in the first record; 0 before it
	count  int // number of fields in the current record, including fields that were not kept
	err    error
}

// NewReader returns a reader of the file in src. It does not close src.
func NewReader(src io.Reader, cfg Config) *Reader {
	cfg = cfg.WithDefaults()
	r := &Reader{src: src, cfg: cfg, next: 1, err: cfg.Validate()}
	if r.err == nil {
		r.buf = make([]byte, min(cfg.Buffer, cfg.MaxRecord+1))
	}
	return r
}

// FirstLine returns the line of the first record, without its end. It does not
// move the reader, so the caller can choose the separator from the line. It
// must be called before Read, and the line is valid until then.
func (r *Reader) FirstLine() ([]byte, error) {
	if r.err != nil {
		return nil, r.err
	}
	line, err := r.firstLine()
	if err != nil {
		r.err = err
	}
	return line, err
}

// SetSeparator sets the separator. It must be called before Read.
func (r *Reader) SetSeparator(separator byte) { r.cfg.Separator = separator }

// Read moves to the next record and returns its number of fields. The fields of
// the record before become invalid. Read returns io.EOF after the last record,
// a *ParseError if the file is not CSV, and otherwise the error of src.
//
// A line without any character is skipped. In a file with one column it is a
// record with an empty field.
func (r *Reader) Read() (int, error) {
	if r.err != nil {
		return 0, r.err
	}
	n, err := r.read()
	if err != nil {
		r.err = err
	}
	return n, err
}

// Field returns field i of the current record. It is valid until the next Read.
// The caller may change it.
func (r *Reader) Field(i int) []byte {
	f := r.fields[i]
	return r.buf[r.rec+f.start : r.rec+f.end : r.rec+f.end]
}

// Line returns the number of the line on which the current record begins, from
// 1.
func (r *Reader) Line() int64 { return r.line }

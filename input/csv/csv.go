// Package csv reads comma-separated values as RFC 4180 writes them, or with another
// separator, as a stream and fast. Unlike encoding/csv it keeps every byte of a field (a CR LF
// inside quotes stays one), bounds the memory that a record may take and says
// on which line a quote was opened. It knows nothing of columns' names or
// meaning.
package csv

import (
	"errors"
	"fmt"
	"io"
)

// Config bounds a reader.
type Config struct {
	// MaxRecord bounds one record, in bytes. Default 32 MiB: four times the
	// longest row a job takes, so that other columns have room too. It is what
	// a file with an unclosed quote can make the reader hold.
	MaxRecord int
	// MaxFields bounds the fields of the first record, which all others must
	// equal. Default 16,384: far above what tools write.
	MaxFields int
	// Buffer is how much is read at a time, in bytes. Default 256 KiB: more is
	// not measurably faster.
	Buffer int
	// Separator stands between two fields. Default a comma. Where it is a tab, a
	// quote may stand inside a field that does not begin with one: most programs
	// write tab-separated values without quotes.
	Separator byte
}

// WithDefaults fills in what is zero.
func (c Config) WithDefaults() Config {
	if c.MaxRecord == 0 {
		c.MaxRecord = 32 << 20
	}
	if c.MaxFields == 0 {
		c.MaxFields = 16 << 10
	}
	if c.Buffer == 0 {
		c.Buffer = 256 << 10
	}
	if c.Separator == 0 {
		c.Separator = ','
	}
	return c
}

// Validate names the first setting that makes no sense.
func (c Config) Validate() error {
	switch {
	case c.MaxRecord < 0 || c.MaxRecord > 1<<30:
		return fmt.Errorf("max record: %d is not between 0 and %d bytes", c.MaxRecord, 1<<30)
	case c.MaxFields < 0:
		return fmt.Errorf("max fields: %d is negative", c.MaxFields)
	case c.Buffer < 0:
		return fmt.Errorf("buffer: %d is negative", c.Buffer)
	case c.Separator == '"' || c.Separator == '\n' || c.Separator == '\r' || c.Separator > 0x7F:
		return fmt.Errorf("separator: %q cannot stand between fields", c.Separator)
	}
	return nil
}

// The reasons why a file is not CSV; they come in a *ParseError.
var (
	ErrQuote    = errors.New(`a quote (") inside a field must be doubled, and the field quoted`)
	ErrUnclosed = errors.New("the quoted field that begins on this line is never closed")
	ErrTooLong  = errors.New("the record that begins on this line is too long")
	ErrFields   = errors.New("the line has another number of fields than the header")
	ErrTooWide  = errors.New("the header has too many fields")
	ErrNotUTF8  = errors.New("the file is not UTF-8")
	ErrUTF16    = errors.New("the file is UTF-16 or UTF-32")
)

// ParseError is what is wrong with a file, and where.
type ParseError struct {
	Line   int64 // from 1; for ErrUnclosed the line where the quote was opened; 0 for ErrNotUTF8
	Offset int64 // in bytes from the beginning of the file
	Fields int   // ErrFields: how many the line has
	Want   int   // ErrFields: how many the header has
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
	rec  int  // where the current record begins in buf
	pos  int  // where the next one does
	end  int  // end of what was read
	eof  bool // src has no more
	seen bool // the first bytes were looked at

	base   int64 // offset in the file of buf[0]
	line   int64 // line of the current record
	next   int64 // line of the next one
	valid  int   // buf[:valid] is UTF-8
	fields []span
	width  int // fields of the first record; 0 before it
	count  int // fields of the current record, also those not kept
	err    error
}

// NewReader returns a reader of the file in src, which it does not close.
func NewReader(src io.Reader, cfg Config) *Reader {
	cfg = cfg.WithDefaults()
	r := &Reader{src: src, cfg: cfg, next: 1, err: cfg.Validate()}
	if r.err == nil {
		r.buf = make([]byte, min(cfg.Buffer, cfg.MaxRecord+1))
	}
	return r
}

// FirstLine returns the line on which the first record begins, without its end, and
// moves nowhere. It is called before Read, and the line is valid until then. The
// caller may choose the separator by it.
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

// Separate sets what stands between two fields. It is called before Read.
func (r *Reader) Separate(separator byte) { r.cfg.Separator = separator }

// Read moves to the next record and returns how many fields it has. It returns
// io.EOF after the last one, a *ParseError where the file is not CSV, and
// otherwise src's error. The fields of the record before are gone then.
//
// A line without a single character is skipped, except in a file of one
// column, where it is a record with an empty field.
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

// Field returns field i of the current record. It is valid until the next
// Read; the caller may change it.
func (r *Reader) Field(i int) []byte {
	f := r.fields[i]
	return r.buf[r.rec+f.start : r.rec+f.end : r.rec+f.end]
}

// Line is the line on which the current record begins, from 1.
func (r *Reader) Line() int64 { return r.line }

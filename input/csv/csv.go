// Package csv reads comma-separated values in the form of RFC 4180, or with another
// separator. It reads a file as a stream and is fast. Unlike encoding/csv, it keeps
// every byte of a field (also a CR LF inside quotes), limits the memory for a record,
// and reports the line of a quote that is not closed. It does not know the names or the
// meaning of columns.
package csv

import (
	"cmp"
	"errors"
	"fmt"
	"io"
)

// Config holds the limits and the separator of a Reader.
type Config struct {
	// MaxRecord is the longest record, in bytes. Default 32 MiB: four times the longest
	// row of a job, so that there is room for other columns. A file with an unclosed
	// quote can make the Reader use this much memory.
	MaxRecord int
	// MaxFields is the largest number of fields in the first record. All other records
	// must have as many fields as the first record. Default 16,384: far more than
	// programs write.
	MaxFields int
	// Buffer is the initial size of the read buffer, in bytes. Default 256 KiB: a
	// larger buffer is not measurably faster.
	Buffer int
	// Separator is the byte between two fields. Default a comma. If the separator is a
	// tab, a field that does not begin with a quote can contain quotes, because most
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

// Reasons why a file is not CSV. They are wrapped in a *ParseError.
var (
	ErrQuote    = errors.New(`a quote (") inside a field must be doubled, and the field quoted`)
	ErrUnclosed = errors.New("the quoted field that begins on this line is never closed")
	ErrTooLong  = errors.New("the record that begins on this line is too long")
	ErrFields   = errors.New("the line and the header have different numbers of fields")
	ErrTooWide  = errors.New("the header has too many fields")
	ErrNotUTF8  = errors.New("the file is not UTF-8")
	ErrUTF16    = errors.New("the file is UTF-16 or UTF-32")
)

// ParseError is the error for a file that is not CSV: the position and the reason.
type ParseError struct {
	Line   int64 // from 1; for ErrUnclosed the line where the quote was opened; 0 for ErrNotUTF8
	Offset int64 // position in bytes from the beginning of the file
	Fields int   // only for ErrFields: number of fields in the line
	Want   int   // only for ErrFields: number of fields in the header
	Err    error // the reason, such as ErrQuote
}

// Error returns a message with the line, or for ErrNotUTF8 the byte, and the reason.
func (e *ParseError) Error() string {
	if errors.Is(e.Err, ErrFields) {
		return fmt.Sprintf("line %d: %d fields where the header has %d", e.Line, e.Fields, e.Want)
	}
	if e.Line == 0 {
		return fmt.Sprintf("byte %d: %v", e.Offset, e.Err)
	}
	return fmt.Sprintf("line %d, byte %d: %v", e.Line, e.Offset, e.Err)
}

// Unwrap returns the reason, such as ErrQuote.
func (e *ParseError) Unwrap() error { return e.Err }

// fieldRange is the position of a field: the byte offsets of its start and end within the
// current record.
type fieldRange struct{ start, end int }

// Reader reads the records of a CSV file. Only one goroutine may use it.
type Reader struct {
	src          io.Reader
	cfg          Config
	buf          []byte // read buffer; buf[0] is at offset base in the file
	recordStart  int    // beginning of the current record in buf
	pos          int    // beginning of the next record in buf
	end          int    // end of the bytes read
	eof          bool   // src has returned io.EOF
	startChecked bool   // checkEncoding has checked the first bytes

	base   int64        // offset of buf[0] in the file
	line   int64        // line of the current record
	next   int64        // line of the next record
	valid  int          // buf[:valid] was checked and is UTF-8
	fields []fieldRange // fields of the current record, at most width
	width  int          // number of fields in the first record; 0 until it is read
	count  int          // number of fields in the current record, also those beyond width
	err    error        // first error; later calls of Read return it again
}

// NewReader returns a Reader of the file in src. It does not close src.
func NewReader(src io.Reader, cfg Config) *Reader {
	cfg = cfg.WithDefaults()
	r := &Reader{src: src, cfg: cfg, next: 1, err: cfg.Validate()}
	if r.err == nil {
		r.buf = make([]byte, min(cfg.Buffer, cfg.MaxRecord+1))
	}
	return r
}

// FirstLine returns the line of the first record without its line end, so that the
// caller can choose the separator. It does not move the Reader. FirstLine must be
// called before Read. The line is valid until the first Read.
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

// SetSeparator sets the separator of fields. It must be called before Read.
func (r *Reader) SetSeparator(separator byte) { r.cfg.Separator = separator }

// Read moves to the next record and returns its number of fields. The fields of the
// previous record become invalid. After the last record, Read returns io.EOF. If the
// file is not CSV, the error is a *ParseError. Other errors come from src.
//
// A line without any character is skipped. But in a file with one column, such a line
// is a record with an empty field.
func (r *Reader) Read() (int, error) {
	if r.err != nil {
		return 0, r.err
	}
	n, err := r.readRecord()
	if err != nil {
		r.err = err
	}
	return n, err
}

// Field returns field i of the current record, counted from 0. The bytes are valid
// until the next Read. The caller may change them.
func (r *Reader) Field(i int) []byte {
	f := r.fields[i]
	return r.buf[r.recordStart+f.start : r.recordStart+f.end : r.recordStart+f.end]
}

// Line returns the number of the line on which the current record begins, counted from
// 1.
func (r *Reader) Line() int64 { return r.line }

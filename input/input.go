// Package input turns the data that a client submitted into rows. The data are strings
// in a request, spooled lines, or a file of rows (see Format) that is uploaded or
// downloaded. The package downloads a URL with one request, and never from a forbidden
// address. It does not know jobs, quotas, shards or tokens.
//
// If the data are wrong, the error is a *rowmill.Failure that names the position of the
// fault and the remedy. Any other error means that reading failed.
package input

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/internal/columnar"
)

// Reader returns the rows of an input in order. Only one goroutine may use a Reader.
// Its memory is limited, whatever the size of the input.
type Reader interface {
	// Next fills row with the next row. After the last row it returns io.EOF. row.Index
	// counts from 0. The caller may keep the strings in row.
	Next(row *rowmill.Row) error
	// IDType returns the type of the row IDs. It returns IDNull if the input has no ID
	// column.
	IDType() rowmill.IDType
	// Close releases the reader's resources, but does not close its source.
	Close() error
}

// Options holds the settings for reading one file.
type Options struct {
	Format   Format        // the requested format; Detect has the rules for FormatAuto
	Name     string        // file name; its extension gives the format if the content does not
	Lines    bool          // true: text of unknown format is plain text; false: it is CSV
	Column   string        // name of the text column; empty: the first column; JSON Lines needs a name
	IDColumn string        // name of the ID column; empty: no IDs
	Fields   *PromptFields // builds the text from several columns and replaces Column; nil: one column is the text
	Limits   Limits

	// MayBeEmpty says that a file may have no rows, because other files have rows. For a file
	// without content, the error is then ErrEmpty.
	MayBeEmpty bool
}

// PromptFields names the columns that make a row's text, and has the functions that combine
// them.
type PromptFields struct {
	Names    []string // column names; if the file lacks a column, its value is empty in all rows
	Required []bool   // Required[i] is true if the file must have column Names[i]
	// Size returns the length in bytes of the text that Render would return. values has
	// one value for each name, in the order of Names.
	Size      func(values []string) int64
	Render    func(values []string) string // returns the text of a row
	RowFields func(values []string) string // returns the text for rowmill.Row.Fields
}

// Limits bound an input, so that memory and time stay limited whatever a client
// sends.
type Limits struct {
	// MaxRows is the largest number of rows. Default 100,000,000: the largest
	// job that the pipeline is made for.
	MaxRows int64
	// MaxRowBytes is the longest text or ID of a row. Default 8 MiB: more than
	// any model's context.
	MaxRowBytes int64
	// MaxRecordBytes is the longest CSV record with all its columns, or the longest
	// line of JSON Lines or plain text. Default 32 MiB, or four times MaxRowBytes if
	// that is more. A CSV file with an unclosed quote can make the reader use this much
	// memory.
	MaxRecordBytes int64
	// MaxInflatedBytes is the largest size of a gzip or zstd file after decompression.
	// Default 10 GiB, the same as for downloads.
	MaxInflatedBytes int64
	// Parquet bounds the memory for a Parquet file.
	Parquet columnar.Limits
}

// WithDefaults replaces zero fields with their defaults.
func (l Limits) WithDefaults() Limits {
	l.MaxRows = cmp.Or(l.MaxRows, 100_000_000)
	l.MaxRowBytes = cmp.Or(l.MaxRowBytes, 8<<20)
	l.MaxRecordBytes = cmp.Or(l.MaxRecordBytes, max(32<<20, 4*l.MaxRowBytes))
	l.MaxInflatedBytes = cmp.Or(l.MaxInflatedBytes, 10<<30)
	l.Parquet = l.Parquet.WithDefaults()
	return l
}

// Validate returns an error that names the first invalid setting.
func (l Limits) Validate() error {
	for _, field := range []struct {
		name  string
		value int64
		top   int64
	}{
		{"max rows", l.MaxRows, 1 << 62},
		{"max row bytes", l.MaxRowBytes, 1 << 30},
		{"max record bytes", l.MaxRecordBytes, 1 << 30},
		{"max inflated bytes", l.MaxInflatedBytes, 1 << 62},
	} {
		if field.value < 0 || field.value > field.top {
			return fmt.Errorf("%s: %d is not between 0 and %d", field.name, field.value, field.top)
		}
	}
	return l.Parquet.Validate()
}

// Open opens a file of rows. size is the length of the file in bytes. The caller closes
// r after the Reader.
func Open(r io.ReaderAt, size int64, opts Options) (Reader, error) {
	opts, file, packed, err := openSource(r, size, opts)
	switch {
	case err != nil:
		return nil, err
	case packed == containerParquet:
		return openParquet(r, size, opts)
	}
	return openRows(file, packed, opts)
}

// openSource sets default limits, checks the options, and detects gzip, zstd and Parquet from
// the first bytes of the file.
func openSource(r io.ReaderAt, size int64, opts Options) (Options, *errTrackingReader, containerKind, error) {
	opts.Limits = opts.Limits.WithDefaults()
	if err := opts.Limits.Validate(); err != nil {
		return opts, nil, 0, err
	}
	if size == 0 && opts.MayBeEmpty {
		return opts, nil, 0, ErrEmpty
	}
	packed, err := sniff(r, size)
	if err == nil {
		err = opts.checkFormat(packed)
	}
	return opts, &errTrackingReader{Reader: io.NewSectionReader(r, 0, size), size: size}, packed, err
}

// checkFormat returns an error if the file is Parquet and another format was
// requested.
func (o Options) checkFormat(detected containerKind) error {
	if detected == containerParquet && o.Format != FormatAuto && o.Format != FormatParquet {
		return invalidFileError("The input file is a Parquet file, and input_format says %s. Leave out input_format.", o.Format)
	}
	return nil
}

// ErrEmpty means that a file has no content, and that Options.MayBeEmpty is set.
var ErrEmpty = errors.New("the file is empty")

// ErrNoStream means that the file's format can be read only when the whole file
// is present.
var ErrNoStream = errors.New("the file cannot be read as a stream")

// OpenStream is like Open, but reads the file as a stream. It returns ErrNoStream for
// Parquet, because the metadata of a Parquet file are at the end. If r fails, the error
// is not a *rowmill.Failure.
func OpenStream(r io.Reader, opts Options) (Reader, error) {
	opts.Limits = opts.Limits.WithDefaults()
	if err := opts.Limits.Validate(); err != nil {
		return nil, err
	}
	head := make([]byte, sniffBytes)
	n, err := io.ReadFull(r, head)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, fmt.Errorf("read the beginning of the input: %w", err)
	}
	head = head[:n]
	if n == 0 {
		return nil, emptyFailure()
	}
	packed, err := detectContainer(head)
	switch {
	case err != nil:
		return nil, err
	case packed == containerParquet:
		return nil, ErrNoStream
	}
	return openRows(&errTrackingReader{Reader: io.MultiReader(bytes.NewReader(head), r)}, packed, opts)
}

// openRows opens a file that is not Parquet. It detects the format if the client gave
// none.
func openRows(r *errTrackingReader, detected containerKind, opts Options) (Reader, error) {
	text, err := openText(r, detected, opts)
	if err != nil {
		return nil, err
	}
	switch opts.Format, err = detect(text.head, opts); {
	case err != nil:
		return nil, err
	case opts.Format == FormatJSONL:
		return openJSON(text, opts)
	case opts.Format == FormatLines:
		return openPlain(text, opts), nil
	}
	return openCSV(text, opts)
}

// invalidFileError returns a *rowmill.Failure for an input file that cannot be used.
func invalidFileError(format string, args ...any) error {
	return rowmill.Failf(rowmill.CodeInvalidInputFile, format, args...)
}

// ChosenColumn returns the name of the column of a table that is the text of the rows. It returns an
// empty string if r reads no table, or if several columns make the text.
func ChosenColumn(r Reader) string {
	switch r := r.(type) {
	case *csvRowReader:
		return r.columns.textName
	case *parquetRowReader:
		return r.columns.textName
	}
	return ""
}

// rowCounter gives each row its index, and checks the limits on rows and sizes.
type rowCounter struct {
	limits      Limits
	mayBeEmpty  bool          // see Options.MayBeEmpty
	rows        int64         // number of rows so far
	rowPosition func() string // returns the position of the current row for error messages, such as " (line 3)"
}

// newRowCounter returns a counter for a file. The caller sets rowPosition.
func newRowCounter(opts Options) rowCounter {
	return rowCounter{limits: opts.Limits, mayBeEmpty: opts.MayBeEmpty}
}

// countRow sets row.Index. It returns an error if the input has too many rows. Readers call
// countRow for each row, after the check for io.EOF.
func (c *rowCounter) countRow(row *rowmill.Row) error {
	if c.rows >= c.limits.MaxRows {
		return invalidFileError("The input has more than %d rows. Split it into several jobs.", c.limits.MaxRows)
	}
	row.Index = c.rows
	c.rows++
	return nil
}

// checkEnd returns the error for the end of the file: io.EOF, or a failure if a file without rows
// is an error. message is for this failure.
func (c *rowCounter) checkEnd(message string) error {
	if c.rows == 0 && !c.mayBeEmpty {
		return invalidFileError("%s", message)
	}
	return io.EOF
}

// checkSize returns an error if a text or an ID is too long. valueName names the value in
// the message. size is in bytes.
func (c *rowCounter) checkSize(valueName string, size int64) error {
	if size > c.limits.MaxRowBytes {
		return invalidFileError("The %s of row %d%s has %d bytes, more than %d. Shorten or split it.", valueName, c.rows-1, c.rowPosition(), size, c.limits.MaxRowBytes)
	}
	return nil
}

// Package input turns what a client submitted into rows: strings in a request,
// spooled lines, or a file of rows (Format lists how), uploaded or behind a URL,
// which it downloads once and safely. It knows nothing of jobs, quotas, shards or tokens.
//
// Whatever is wrong with the data ends as a *rowmill.Failure that names the
// place and the remedy; any other error says that reading itself failed.
package input

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/columnar"
)

// Reader gives rows in order. It is for one goroutine and holds a bounded part
// of its source in memory.
type Reader interface {
	// Next fills row with the next row, or returns io.EOF. Index counts from
	// 0; the strings belong to the caller.
	Next(row *rowmill.Row) error
	// IDType is the type of the ids, IDNull without an id column.
	IDType() rowmill.IDType
	// Close releases what the reader holds, but not its source.
	Close() error
}

// Options say how a file is to be read.
type Options struct {
	Format   Format  // as it was asked for; Tell has the rules for FormatAuto
	Name     string  // of the file; its ending says a format where the content does not
	Lines    bool    // without any sign a text is plain, else it is CSV
	Column   string  // the text; empty is the first column, of JSON Lines it must be named
	IDColumn string  // the ids; empty is none
	Fields   *Fields // makes the text of several columns; then Column means nothing
	Limits   Limits
}

// Fields say which columns make a row's text, and how.
type Fields struct {
	Names    []string // columns; those that a file lacks are empty in all rows
	Required []bool   // for each name, whether a file may not lack it
	// Size is how many bytes Render would return for values in the order of
	// Names.
	Size   func(values []string) int64
	Render func(values []string) string
	Keep   func(values []string) string // rowmill.Row.Fields
}

// Limits bound what an input may hold, so that memory and time stay bounded
// whatever a client sends.
type Limits struct {
	// MaxRows bounds the rows. Default 100,000,000: the largest job the
	// pipeline is planned for.
	MaxRows int64
	// MaxRowBytes bounds the text or id of one row. Default 8 MiB: more than
	// any model's context holds.
	MaxRowBytes int64
	// MaxRecordBytes bounds a CSV record with all its columns. Default 32 MiB,
	// or four times MaxRowBytes where that is more. It is what a CSV file with
	// an unclosed quote can take of memory.
	MaxRecordBytes int64
	// MaxInflatedBytes bounds what a gzip-compressed file may unpack to.
	// Default 10 GiB, as much as may be downloaded.
	MaxInflatedBytes int64
	// Parquet bounds what a Parquet file can make us allocate.
	Parquet columnar.Limits
}

// WithDefaults fills in what is zero.
func (l Limits) WithDefaults() Limits {
	if l.MaxRows == 0 {
		l.MaxRows = 100_000_000
	}
	if l.MaxRowBytes == 0 {
		l.MaxRowBytes = 8 << 20
	}
	if l.MaxRecordBytes == 0 {
		l.MaxRecordBytes = max(32<<20, 4*l.MaxRowBytes)
	}
	if l.MaxInflatedBytes == 0 {
		l.MaxInflatedBytes = 10 << 30
	}
	l.Parquet = l.Parquet.WithDefaults()
	return l
}

// Validate names the first setting that makes no sense.
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

// Open opens a file of rows. The caller closes r after the reader.
func Open(r io.ReaderAt, size int64, opts Options) (Reader, error) {
	opts, file, packed, err := begin(r, size, opts)
	switch {
	case err != nil:
		return nil, err
	case packed == packedParquet:
		return openParquet(r, size, opts)
	}
	return openRows(file, packed, opts)
}

// begin checks the options, and looks at how the file begins.
func begin(r io.ReaderAt, size int64, opts Options) (Options, *failingReader, packed, error) {
	opts.Limits = opts.Limits.WithDefaults()
	if err := opts.Limits.Validate(); err != nil {
		return opts, nil, 0, err
	}
	packed, err := sniff(r, size)
	if err == nil {
		err = opts.fits(packed)
	}
	return opts, &failingReader{Reader: io.NewSectionReader(r, 0, size)}, packed, err
}

// fits refuses a Parquet file where another format was asked for.
func (o Options) fits(packed packed) error {
	if packed == packedParquet && o.Format != FormatAuto && o.Format != FormatParquet {
		return invalid("The input file is a Parquet file, and input_format says %s. Leave out input_format.", o.Format)
	}
	return nil
}

// ErrNoStream says that a file is of a format that can be read once all of it is
// there.
var ErrNoStream = errors.New("the file cannot be read from its beginning on")

// OpenStream is Open of a file that comes bit by bit; ErrNoStream for Parquet, which
// begins at its end. An error of r is not the file's fault.
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
		return nil, empty()
	}
	packed, err := packedOf(head)
	switch {
	case err != nil:
		return nil, err
	case packed == packedParquet:
		return nil, ErrNoStream
	}
	return openRows(&failingReader{Reader: io.MultiReader(bytes.NewReader(head), r)}, packed, opts)
}

// openRows opens a file of text.
func openRows(r *failingReader, packed packed, opts Options) (Reader, error) {
	text, err := openText(r, packed, opts.Limits)
	if err != nil {
		return nil, err
	}
	switch opts.Format, err = tell(text.head, opts); {
	case err != nil:
		return nil, err
	case opts.Format == FormatJSONL:
		return openJSON(text, opts)
	case opts.Format == FormatLines:
		return openPlain(text, opts), nil
	}
	return openCSV(text, opts)
}

// invalid makes the failure of a file that cannot be used.
func invalid(format string, args ...any) error {
	return rowmill.Failf(rowmill.CodeInvalidInputFile, format, args...)
}

// counter numbers rows and holds them to the limits.
type counter struct {
	limits Limits
	rows   int64
	where  func() string // the place of the current row in the file, for messages
}

// next is called once before each row after the first check for io.EOF.
func (c *counter) next(row *rowmill.Row) error {
	if c.rows >= c.limits.MaxRows {
		return invalid("The input has more than %d rows. Split it into several jobs.", c.limits.MaxRows)
	}
	row.Index = c.rows
	c.rows++
	return nil
}

// fits checks the size of a row's text or id.
func (c *counter) fits(what string, size int64) error {
	if size > c.limits.MaxRowBytes {
		return invalid("The %s of row %d%s has %d bytes, more than %d. Shorten or split it.", what, c.rows-1, c.where(), size, c.limits.MaxRowBytes)
	}
	return nil
}

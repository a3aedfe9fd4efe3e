package columnar

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"runtime/debug"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/format"
)

// Limits bound what a foreign file can make its reader allocate. A file's own
// figures are believed only within them.
type Limits struct {
	// MaxFooterBytes bounds the metadata at the end of the file. Default
	// 32 MiB: some 100,000 column chunks, which take about ten times as much
	// memory decoded.
	MaxFooterBytes int64
	// MaxPageBytes bounds one page, before and after decompression. Default
	// 256 MiB: usual pages have 1 MiB or less, but some writers make one page
	// of a whole row group.
	MaxPageBytes int64
	// MaxPageValues bounds the values of one page, nulls included. Default
	// 16,777,216: a page costs up to 9 bytes of memory per value beside its
	// bytes.
	MaxPageValues int
}

// WithDefaults fills in what is zero.
func (l Limits) WithDefaults() Limits {
	if l.MaxFooterBytes == 0 {
		l.MaxFooterBytes = 32 << 20
	}
	if l.MaxPageBytes == 0 {
		l.MaxPageBytes = 256 << 20
	}
	if l.MaxPageValues == 0 {
		l.MaxPageValues = 16 << 20
	}
	return l
}

// Validate names the first setting that makes no sense.
func (l Limits) Validate() error {
	switch {
	case l.MaxFooterBytes < 0:
		return fmt.Errorf("max footer bytes: %d is negative", l.MaxFooterBytes)
	case l.MaxPageBytes < 0 || l.MaxPageBytes > math.MaxInt32:
		return fmt.Errorf("max page bytes: %d is not between 0 and %d", l.MaxPageBytes, math.MaxInt32)
	case l.MaxPageValues < 0 || l.MaxPageValues > math.MaxInt32:
		return fmt.Errorf("max page values: %d is not between 0 and %d", l.MaxPageValues, math.MaxInt32)
	}
	return nil
}

// FormatError says that a file cannot be read because of what is in it, not
// because reading failed. Its message is for the person who made the file.
type FormatError struct{ Message string }

// Error returns the message.
func (e *FormatError) Error() string { return e.Message }

func badFile(message string, args ...any) error {
	return &FormatError{Message: fmt.Sprintf(message, args...)}
}

// File is an open Parquet file of any origin. It is safe for concurrent use.
type File struct {
	src     *source
	file    *parquet.File
	root    *node
	columns []Column
	notes   map[int]string // see arrowNotes
	rows    int64          // of all row groups; some writers leave the file's own figure 0
	limits  Limits
}

// Column describes a top-level column of a file.
type Column struct {
	Name   string
	Type   string // for a person: "STRING", "INT64", "LIST"
	Nested bool   // a group, list or map: its text is JSON
}

// Open reads and checks the footer of the size bytes in r. Errors that come
// from the content are *FormatError; others are r's own.
func Open(r io.ReaderAt, size int64, limits Limits) (*File, error) {
	limits = limits.WithDefaults()
	if err := limits.Validate(); err != nil {
		return nil, err
	}
	f := &File{src: &source{r: r, size: size}, limits: limits}
	err := f.src.guard("open Parquet file", f.open)
	if err != nil {
		return nil, err
	}
	return f, nil
}

func (f *File) open() error {
	if err := f.checkFooter(); err != nil {
		return err
	}
	var err error
	f.file, err = parquet.OpenFile(f.src, f.src.size,
		parquet.SkipPageIndex(true), parquet.SkipBloomFilters(true), parquet.ReadBufferSize(64<<10))
	if err != nil {
		return err
	}
	meta := f.file.Metadata()
	if f.root, err = schemaTree(meta.Schema); err != nil {
		return err
	}
	f.notes = arrowNotes(meta.KeyValueMetadata)
	for _, n := range f.root.children {
		f.columns = append(f.columns, Column{Name: n.name, Type: n.typeName(), Nested: !n.flat()})
	}
	var rows int64
	for i := range meta.RowGroups {
		g := &meta.RowGroups[i]
		if g.NumRows < 0 || g.NumRows > math.MaxInt64-rows || len(g.Columns) != f.root.leaves {
			return badFile("The Parquet file is corrupt: row group %d has %d rows and %d column chunks for %d columns.",
				i, g.NumRows, len(g.Columns), f.root.leaves)
		}
		rows += g.NumRows
	}
	f.rows = rows
	return nil
}

// checkFooter looks at the footer before anything decodes it: a few bytes of a
// damaged or hostile one can ask for any amount of memory.
func (f *File) checkFooter() error {
	size := f.src.size
	if size < 12 {
		return badFile("The Parquet file is truncated: %d bytes are too few.", size)
	}
	var head [4]byte
	var tail [8]byte
	if err := readFull(f.src, head[:], 0); err != nil {
		return err
	}
	if err := readFull(f.src, tail[:], size-8); err != nil {
		return err
	}
	encrypted := string(head[:]) == "PARE" || string(tail[4:]) == "PARE"
	switch {
	case encrypted:
		return badFile("The Parquet file is encrypted. Write it without encryption.")
	case string(head[:]) != "PAR1":
		return badFile("The file is not Parquet: it does not begin with PAR1.")
	case string(tail[4:]) != "PAR1":
		return badFile("The Parquet file is truncated or was still being written: its end is missing (%d bytes are there).", size)
	}
	length := int64(binary.LittleEndian.Uint32(tail[:]))
	if length > size-12 {
		return badFile("The Parquet file is truncated or corrupt: its footer of %d bytes does not fit its %d bytes.", length, size)
	}
	if length > f.limits.MaxFooterBytes {
		return badFile("The Parquet file has a footer of %d bytes, more than %d. Write it with fewer row groups.", length, f.limits.MaxFooterBytes)
	}
	footer := make([]byte, length)
	if err := readFull(f.src, footer, size-8-length); err != nil {
		return err
	}
	n, err := scanThrift(footer, maxFooterStructs, maxFooterItems)
	switch {
	case errors.Is(err, errTooMany):
		return badFile("The Parquet file's footer lists too many row groups and columns. Write it with fewer row groups.")
	case err != nil:
		return badFile("The Parquet file's footer is corrupt (%v).", err)
	case n < len(footer):
		return badFile("The Parquet file's footer is signed or corrupt: %d bytes follow the metadata. Write it without encryption or signature.", len(footer)-n)
	}
	return nil
}

// NumRows is the number of rows.
func (f *File) NumRows() int64 { return f.rows }

// Columns lists the top-level columns in the order of the file. Names need not
// be unique.
func (f *File) Columns() []Column { return f.columns }

// chunk returns a column chunk's metadata after a check of what reading it
// relies on.
func (f *File) chunk(group int, leaf *node) (*format.ColumnMetaData, error) {
	c := &f.file.Metadata().RowGroups[group].Columns[leaf.leaf]
	m := &c.MetaData
	if c.CryptoMetadata.Value != nil || len(c.EncryptedColumnMetadata) > 0 {
		return nil, badFile("Column %q of the Parquet file is encrypted. Write it without encryption.", leaf.path)
	}
	if leaf.kind.class == classBSON {
		return nil, badFile("Column %q of the Parquet file has the type BSON, which is not read. Write it as JSON or as plain text.", leaf.path)
	}
	if c.FilePath != "" {
		return nil, badFile("Column %q of the Parquet file lies in another file. Write one self-contained file.", leaf.path)
	}
	start := m.DataPageOffset
	if m.DictionaryPageOffset != 0 {
		start = m.DictionaryPageOffset
	}
	if start < 4 || m.TotalCompressedSize < 0 || start > f.src.size || m.TotalCompressedSize > f.src.size-start {
		return nil, badFile("The Parquet file is truncated or corrupt: column %q of row group %d lies at bytes %d to %d of %d.",
			leaf.path, group, start, start+m.TotalCompressedSize, f.src.size)
	}
	return m, nil
}

// source is a ReaderAt that remembers its own failures, so that they can be
// told from those of the file's content.
type source struct {
	r    io.ReaderAt
	size int64
	err  error
}

// ReadAt reads from the file.
func (s *source) ReadAt(p []byte, at int64) (int, error) {
	n, err := s.r.ReadAt(p, at)
	if err != nil && !errors.Is(err, io.EOF) {
		s.err = err
	}
	return n, err
}

// guard runs f, in which a corrupt file may panic or fault, and turns whatever
// goes wrong into a *FormatError, unless reading itself failed.
func (s *source) guard(doing string, f func() error) (err error) {
	before := debug.SetPanicOnFault(true)
	defer debug.SetPanicOnFault(before)
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%v", p)
		}
		var known *FormatError
		switch {
		case err == nil || errors.As(err, &known):
		case s.err != nil:
			err = fmt.Errorf("%s: %w", doing, s.err)
		default:
			err = badFile("The Parquet file is corrupt or uses a feature that is not supported (%v).", err)
		}
	}()
	return f()
}

func readFull(r io.ReaderAt, p []byte, at int64) error {
	n, err := r.ReadAt(p, at)
	switch {
	case n == len(p):
		return nil
	case err == nil || errors.Is(err, io.EOF):
		return badFile("The Parquet file is truncated: bytes %d to %d are missing.", at+int64(n), at+int64(len(p)))
	}
	return err
}

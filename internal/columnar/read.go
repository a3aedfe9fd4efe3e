package columnar

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"runtime/debug"
)

// Limits bound how much memory is allocated for reading a user's file. If the file
// claims larger sizes, it is refused.
type Limits struct {
	// MaxFooterBytes is the largest metadata at the end of the file, in bytes. Default
	// 32 MiB: about 100,000 column chunks. Decoded metadata take about ten times as
	// much memory.
	MaxFooterBytes int64
	// MaxPageBytes is the largest page, in bytes, before and after decompression.
	// Default 256 MiB: pages usually have 1 MiB or less, but some programs write a
	// whole row group into one page.
	MaxPageBytes int64
	// MaxPageValues is the largest number of values in one page, nulls included.
	// Default 16,777,216: a page needs up to 14 bytes of memory per value, and the
	// memory for its bytes.
	MaxPageValues int
}

// WithDefaults replaces zero fields with their defaults.
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

// Validate returns an error that names the first invalid setting.
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

// FormatError means that the content of a file is wrong. Its message is for the person
// who made the file. If a read fails, the error has another type.
type FormatError struct{ Message string }

// Error returns the message.
func (e *FormatError) Error() string { return e.Message }

// newFormatError returns a *FormatError.
func newFormatError(message string, args ...any) error {
	return &FormatError{Message: fmt.Sprintf(message, args...)}
}

// File is an open Parquet file that any program wrote. It is safe for concurrent use.
type File struct {
	src     *errTrackingSource
	groups  []groupMeta // metadata of the row groups
	root    *schemaNode // root of the schema
	columns []Column
	notes   map[int]string // result of parseArrowTypes: time zone or duration, by column position
	rows    int64          // sum of the row groups; some programs write 0 as the row count of the file
	limits  Limits
}

// Column describes a top-level column of a user's file.
type Column struct {
	Name   string
	Type   string // name of the type for users, such as "STRING", "INT64" or "LIST"
	Nested bool   // true for a group, list or map, whose text is JSON
}

// Open reads and checks the footer of the Parquet file in r. size is the length of the
// file in bytes. If the content is wrong, the error is a *FormatError. Other errors
// come from r.
func Open(r io.ReaderAt, size int64, limits Limits) (*File, error) {
	limits = limits.WithDefaults()
	if err := limits.Validate(); err != nil {
		return nil, err
	}
	f := &File{src: &errTrackingSource{r: r, size: size}, limits: limits}
	err := f.src.runGuarded("open Parquet file", f.open)
	if err != nil {
		return nil, err
	}
	return f, nil
}

// open reads the footer and builds the schema.
func (f *File) open() error {
	footer, err := f.footer()
	if err != nil {
		return err
	}
	var meta fileMeta
	if err := decodeThrift(footer, &meta); err != nil {
		return newFormatError("The Parquet file is corrupt: its footer cannot be decoded.")
	}
	if f.root, err = schemaTree(meta.Schema); err != nil {
		return err
	}
	for _, kv := range meta.KeyValues {
		if kv.Key == arrowKey {
			f.notes = parseArrowTypes(kv.Value)
		}
	}
	for _, n := range f.root.children {
		f.columns = append(f.columns, Column{Name: n.name, Type: n.typeName(), Nested: !n.isFlat()})
	}
	f.groups = meta.RowGroups
	for i, g := range f.groups {
		if g.NumRows < 0 || g.NumRows > math.MaxInt64-f.rows || len(g.Columns) != f.root.leaves {
			return newFormatError("The Parquet file is corrupt: row group %d has %d rows and %d column chunks for %d columns.",
				i, g.NumRows, len(g.Columns), f.root.leaves)
		}
		f.rows += g.NumRows
	}
	return nil
}

// footer reads the footer without decoding it. It checks all lengths in the footer,
// because a few damaged or hostile bytes can claim any amount of memory.
func (f *File) footer() ([]byte, error) {
	size := f.src.size
	if size < 12 {
		return nil, newFormatError("The Parquet file is truncated: %d bytes are too few.", size)
	}
	var head [4]byte
	var tail [8]byte
	if err := readFull(f.src, head[:], 0); err != nil {
		return nil, err
	}
	if err := readFull(f.src, tail[:], size-8); err != nil {
		return nil, err
	}
	encrypted := string(head[:]) == "PARE" || string(tail[4:]) == "PARE"
	switch {
	case encrypted:
		return nil, newFormatError("The Parquet file is encrypted. Write it without encryption.")
	case string(head[:]) != "PAR1":
		return nil, newFormatError("The file is not Parquet: it does not begin with PAR1.")
	case string(tail[4:]) != "PAR1":
		return nil, newFormatError("The Parquet file is truncated or was still being written: its end is missing (%d bytes are there).", size)
	}
	length := int64(binary.LittleEndian.Uint32(tail[:]))
	if length > size-12 {
		return nil, newFormatError("The Parquet file is truncated or corrupt: its footer of %d bytes does not fit its %d bytes.", length, size)
	}
	if length > f.limits.MaxFooterBytes {
		return nil, newFormatError("The Parquet file has a footer of %d bytes, more than %d. Write it with fewer row groups.", length, f.limits.MaxFooterBytes)
	}
	footer := make([]byte, length)
	if err := readFull(f.src, footer, size-8-length); err != nil {
		return nil, err
	}
	n, err := checkThrift(footer, maxFooterStructs, maxFooterItems)
	switch {
	case errors.Is(err, errTooMany):
		return nil, newFormatError("The Parquet file's footer lists too many row groups and columns. Write it with fewer row groups.")
	case err != nil:
		return nil, newFormatError("The Parquet file's footer is corrupt: %v.", err)
	case n < len(footer):
		return nil, newFormatError("The Parquet file's footer is signed or corrupt: %d bytes follow the metadata. Write it without encryption or signature.", len(footer)-n)
	}
	return footer, nil
}

// NumRows returns the number of rows in the file.
func (f *File) NumRows() int64 { return f.rows }

// Columns returns the top-level columns in the order of the file. Several columns can
// have the same name.
func (f *File) Columns() []Column { return f.columns }

// chunk checks and returns the metadata of the column chunk of a leaf in a row group.
func (f *File) chunk(group int, leaf *schemaNode) (*chunkMeta, error) {
	if err := leaf.checkReadable(); err != nil {
		return nil, err
	}
	c := &f.groups[group].Columns[leaf.leaf]
	m := &c.Chunk.V
	switch {
	case c.Crypto.Value != nil || len(c.Encrypted) > 0:
		return nil, newFormatError("Column %q of the Parquet file is encrypted. Write it without encryption.", leaf.path)
	case c.FilePath != "" || !c.Chunk.Valid:
		return nil, newFormatError("Column %q of the Parquet file is stored in another file. Write one file with all columns.", leaf.path)
	case m.Type != leaf.element.Type.V:
		return nil, newFormatError("The Parquet file is corrupt: column %q has the type %v, and %v in row group %d.", leaf.path, leaf.element.Type.V, m.Type, group)
	case !canUnpack(m.Codec):
		return nil, newFormatError("Column %q of the Parquet file is compressed with %v, which is not supported. Write it with Snappy, Zstandard, Gzip or LZ4_RAW.", leaf.path, m.Codec)
	}
	start := m.firstPageOffset()
	if start < 4 || m.TotalCompressedSize < 0 || start > f.src.size || m.TotalCompressedSize > f.src.size-start {
		return nil, newFormatError("The Parquet file is truncated or corrupt: column %q of row group %d lies at bytes %d to %d of %d.",
			leaf.path, group, start, start+m.TotalCompressedSize, f.src.size)
	}
	if rows := f.groups[group].NumRows; m.NumValues < rows || leaf.rep == 0 && m.NumValues != rows {
		return nil, newFormatError("The Parquet file is corrupt: column %q has %d values in row group %d, which has %d rows.", leaf.path, m.NumValues, group, rows)
	}
	return m, nil
}

// firstPageOffset returns the offset of the first page of the chunk, in bytes from the beginning
// of the file.
func (m *chunkMeta) firstPageOffset() int64 {
	if m.DictionaryPageOffset != 0 {
		return m.DictionaryPageOffset
	}
	return m.DataPageOffset
}

// errTrackingSource is an io.ReaderAt that records its read errors. So runGuarded can tell
// a failed read from wrong content.
type errTrackingSource struct {
	r    io.ReaderAt
	size int64
	err  error // the last read error
}

// ReadAt reads from the file and records an error.
func (s *errTrackingSource) ReadAt(p []byte, at int64) (int, error) {
	n, err := s.r.ReadAt(p, at)
	if err != nil && !errors.Is(err, io.EOF) {
		s.err = err
	}
	return n, err
}

// runGuarded calls f. A corrupt file can cause a panic or a memory fault in f. runGuarded
// turns every error and panic of f into a *FormatError, unless a read failed. action says
// in the error what failed.
func (s *errTrackingSource) runGuarded(action string, f func() error) (err error) {
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
			err = fmt.Errorf("%s: %w", action, s.err)
		default:
			err = newFormatError("The Parquet file is corrupt or uses a feature that is not supported. Write it again with another program.")
		}
	}()
	return f()
}

// readFull fills p with bytes from offset at on. If the file ends too early, the error
// is a *FormatError.
func readFull(r io.ReaderAt, p []byte, at int64) error {
	n, err := r.ReadAt(p, at)
	switch {
	case n == len(p):
		return nil
	case err == nil || errors.Is(err, io.EOF):
		return newFormatError("The Parquet file is truncated: bytes %d to %d are missing.", at+int64(n), at+int64(len(p)))
	}
	return err
}

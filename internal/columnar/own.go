package columnar

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"slices"
	"sort"

	"github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/parquet-go/parquet-go/format"
)

// Table reads one of the program's own Parquet files. The file own_schema.go describes
// their form. The methods of Table are safe for concurrent use if src is.
type Table struct {
	src     io.ReaderAt
	size    int64 // length of the file in bytes
	columns []TableColumn
	meta    format.FileMetaData
	first   []int64 // first[g] is the first row of row group g; the last entry is the number of rows
}

// OpenTable reads the footer of a table. size is the length of the file in bytes.
// OpenTable returns an error if another program wrote the file, or if the file is cut
// off or damaged.
func OpenTable(src io.ReaderAt, size int64) (t *Table, err error) {
	defer func() {
		if fault := recover(); fault != nil {
			err = fmt.Errorf("read table footer: %w: %v", ErrDamaged, fault)
		}
	}()
	t = &Table{src: src, size: size}
	if err := t.readFooter(); err != nil {
		return nil, fmt.Errorf("read table footer: %w", err)
	}
	if err := t.checkFooter(); err != nil {
		return nil, fmt.Errorf("read table footer: %w", err)
	}
	return t, nil
}

// readFooter reads the footer and checks its checksum.
func (t *Table) readFooter() error {
	least := int64(len(parquetMagic) + sealBytes + tailBytes)
	if t.size < least {
		return fmt.Errorf("%d bytes are too few for a table: %w", t.size, ErrDamaged)
	}
	tail := make([]byte, tailBytes)
	if err := readAt(t.src, tail, t.size-int64(tailBytes)); err != nil {
		return err
	}
	if string(tail[4:]) != parquetMagic {
		return fmt.Errorf("the file does not end in %s: %w", parquetMagic, ErrDamaged)
	}
	length := int64(binary.LittleEndian.Uint32(tail))
	if length > maxFooter || length > t.size-least {
		return fmt.Errorf("a footer cannot have %d bytes: %w", length, ErrDamaged)
	}
	b := make([]byte, int64(sealBytes)+length)
	if err := readAt(t.src, b, t.size-int64(tailBytes)-int64(len(b))); err != nil {
		return err
	}
	seal, footer := b[:sealBytes], b[sealBytes:]
	if string(seal[:len(sealMagic)]) != sealMagic {
		return errors.New("the file lacks the mark that this program writes; another program wrote it")
	}
	if binary.LittleEndian.Uint32(seal[len(sealMagic):]) != crc32.Checksum(footer, castagnoli()) {
		return fmt.Errorf("the footer's checksum is wrong: %w", ErrDamaged)
	}
	return thrift.Unmarshal(new(thrift.CompactProtocol), footer, &t.meta)
}

// checkFooter compares the footer with the size of the file. After checkFooter, reads can
// trust every offset in the footer.
func (t *Table) checkFooter() (err error) {
	if t.columns, err = tableColumns(t.meta.Schema, parseArrowTypes(t.Meta(arrowKey))); err != nil {
		return err
	}
	t.first = make([]int64, 1, len(t.meta.RowGroups)+1)
	for i, g := range t.meta.RowGroups {
		if len(g.Columns) != len(t.columns) || g.NumRows <= 0 {
			return fmt.Errorf("row group %d has %d rows and %d of %d columns: %w", i, g.NumRows, len(g.Columns), len(t.columns), ErrDamaged)
		}
		for j := range g.Columns {
			chunk := &g.Columns[j]
			m := &chunk.MetaData
			if !slices.Equal(m.PathInSchema, t.columns[j].path()) || m.Codec != format.Snappy || m.DictionaryPageOffset != 0 ||
				!t.containsRange(m.DataPageOffset, m.TotalCompressedSize) ||
				chunk.ColumnIndexLength != 0 && !t.containsRange(chunk.ColumnIndexOffset, int64(chunk.ColumnIndexLength)) ||
				!t.containsRange(chunk.OffsetIndexOffset, int64(chunk.OffsetIndexLength)) {
				return fmt.Errorf("row group %d, column %q: %w", i, t.columns[j].Name, ErrDamaged)
			}
		}
		t.first = append(t.first, t.first[i]+g.NumRows)
	}
	return nil
}

// containsRange reports whether length bytes at offset are inside the file, after its first
// magic bytes. It returns false if length is below 1.
func (t *Table) containsRange(offset, length int64) bool {
	return offset >= int64(len(parquetMagic)) && length > 0 && length <= t.size && offset <= t.size-length
}

// Columns returns the table's columns in order. The caller must not change
// them.
func (t *Table) Columns() []TableColumn { return t.columns }

// ColumnPosition returns the position of the column called name, or -1.
func (t *Table) ColumnPosition(name string) int {
	return slices.IndexFunc(t.columns, func(c TableColumn) bool { return c.Name == name })
}

// Rows returns the number of rows.
func (t *Table) Rows() int64 { return t.first[len(t.meta.RowGroups)] }

// Meta returns the value of a key in the key-value metadata, or an empty string if the
// key is missing.
func (t *Table) Meta(key string) string {
	for _, kv := range t.meta.KeyValueMetadata {
		if kv.Key == key {
			return kv.Value
		}
	}
	return ""
}

// Groups returns the number of row groups.
func (t *Table) Groups() int { return len(t.meta.RowGroups) }

// GroupRows returns the range of rows in row group g: from (included) to to (excluded).
func (t *Table) GroupRows(g int) (from, to int64) { return t.first[g], t.first[g+1] }

// GroupNulls returns the number of nulls in column c of row group g. c must not be a
// list.
func (t *Table) GroupNulls(g, c int) int64 {
	return t.meta.RowGroups[g].Columns[c].MetaData.Statistics.NullCount
}

// GroupIntRange returns the smallest and the largest value of column c, which must be of
// kind TableInt, in row group g. ok is false if the column has only nulls in that
// group.
func (t *Table) GroupIntRange(g, c int) (low, high int64, ok bool) {
	s := t.meta.RowGroups[g].Columns[c].MetaData.Statistics
	if t.columns[c].Kind != TableInt || len(s.MinValue) != 8 || len(s.MaxValue) != 8 {
		return 0, 0, false
	}
	return int64(binary.LittleEndian.Uint64(s.MinValue)), int64(binary.LittleEndian.Uint64(s.MaxValue)), true
}

// groupOfRow returns the number of the row group with a row. The table must have the row.
func (t *Table) groupOfRow(row int64) int {
	return sort.Search(len(t.meta.RowGroups), func(g int) bool { return t.first[g+1] > row })
}

// UncompressedSize returns the size of all pages before compression, in bytes.
func (t *Table) UncompressedSize() (n int64) {
	for i := range t.meta.RowGroups {
		n += t.meta.RowGroups[i].TotalByteSize
	}
	return n
}

// NumBlocks returns the number of blocks in the table.
func (t *Table) NumBlocks() (n int64) {
	for i := range t.meta.RowGroups {
		for _, s := range t.meta.RowGroups[i].Columns[0].MetaData.EncodingStats {
			n += int64(s.Count)
		}
	}
	return n
}

// indexLocation says where the offset index of a column chunk is in the file, and how
// many rows the chunk has.
type indexLocation struct {
	offset int64 // in bytes from the beginning of the file
	length int32 // in bytes
	rows   int64
}

// locateOffsetIndex returns the position of the offset index of column c in row group g.
func (t *Table) locateOffsetIndex(g, c int) indexLocation {
	chunk := &t.meta.RowGroups[g].Columns[c]
	return indexLocation{chunk.OffsetIndexOffset, chunk.OffsetIndexLength, t.meta.RowGroups[g].NumRows}
}

// readPageLocations reads an offset index into places[:0]. b is a buffer. readPageLocations returns
// both slices, which may have grown, for the next call.
func (t *Table) readPageLocations(at indexLocation, b []byte, places []pageLocation) ([]byte, []pageLocation, error) {
	b = resize(b, int(at.length))
	if err := readAt(t.src, b, at.offset); err != nil {
		return b, nil, err
	}
	places, err := readOffsetIndex(b, places)
	if err != nil {
		return b, nil, err
	}
	first := int64(-1)
	for _, p := range places {
		if !t.containsRange(p.offset, int64(p.size)) || p.first <= first || p.first >= at.rows {
			return b, nil, fmt.Errorf("the offset index has a wrong entry: %w", ErrDamaged)
		}
		first = p.first
	}
	if len(places) == 0 || places[0].first != 0 {
		return b, nil, fmt.Errorf("the offset index does not begin at row 0: %w", ErrDamaged)
	}
	return b, places, nil
}

// readAt fills b with bytes from offset on. It returns ErrDamaged if the source ends
// too early.
func readAt(src io.ReaderAt, b []byte, offset int64) error {
	n, err := src.ReadAt(b, offset)
	switch {
	case n == len(b):
		return nil
	case err == nil || errors.Is(err, io.EOF):
		return fmt.Errorf("the file has only %d of %d bytes at offset %d: %w", n, len(b), offset, ErrDamaged)
	default:
		return fmt.Errorf("read %d bytes at offset %d: %w", len(b), offset, err)
	}
}

// resize returns a slice of length n: b, or a new slice if b is too small.
func resize(b []byte, n int) []byte {
	if cap(b) < n {
		return make([]byte, n)
	}
	return b[:n]
}

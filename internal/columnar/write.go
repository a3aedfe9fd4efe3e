package columnar

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"slices"
	"unsafe"

	"github.com/parquet-go/parquet-go/format"
)

// TableConfig sets how much data a TableWriter collects in memory before it writes.
type TableConfig struct {
	// BlockBytes is the size before compression, in bytes, at which a block (one page
	// per column) is closed. Default 256 KiB. A reader decodes one block to find one
	// row, and a merge has one block per part in memory.
	BlockBytes int

	// GroupBytes is the size before compression, in bytes, at which a row group is
	// written. Until then the writer has the group's compressed pages in memory.
	// Default 16 MiB.
	GroupBytes int64

	// GroupRows is the number of rows at which a row group is written, even if it is
	// small. Default 131,072, like other Parquet writers.
	GroupRows int64
}

// WithDefaults replaces zero fields with their defaults.
func (c TableConfig) WithDefaults() TableConfig {
	if c.BlockBytes == 0 {
		c.BlockBytes = 256 << 10
	}
	if c.GroupBytes == 0 {
		c.GroupBytes = 16 << 20
	}
	if c.GroupRows == 0 {
		c.GroupRows = 131_072
	}
	return c
}

// Validate returns an error if a setting is out of range.
func (c TableConfig) Validate() error {
	if c.BlockBytes < 0 || c.GroupBytes < 0 || c.GroupRows < 0 {
		return fmt.Errorf("table sizes cannot be negative: %+v", c)
	}
	return nil
}

// KeyValue is an entry of a table's key-value metadata.
type KeyValue struct{ Key, Value string }

// maxGroups is the largest number of row groups in a file: readers store the
// number in 16 bits.
const maxGroups = math.MaxInt16

// TableWriter writes a Table. For each row, the caller gives each column one value, in
// any order, with the method of the column's kind or with AppendNull. Then the caller calls
// EndRow. Columns are named by their position. A value of the wrong kind causes a
// panic, because then the caller's schema is wrong. Only one goroutine may use a
// TableWriter.
type TableWriter struct {
	w       io.Writer
	cfg     TableConfig
	columns []TableColumn
	meta    []KeyValue
	buffers []columnBuffer
	scratch tableScratch // buffers for encoding
	offset  int64        // number of bytes written so far
	err     error        // error of the first failed write; after it nothing is written

	rows       int64 // number of ended rows
	blockRows  int   // number of ended rows in the open block
	blockBytes int   // size of the open block before compression, in bytes
	groupRows  int64 // number of rows in closed blocks of the open row group
	groupBytes int64 // size of these closed blocks before compression, in bytes

	groups  []format.RowGroup
	indexes [][]byte         // encoded column indexes: all columns of a row group, then the next group
	places  [][]pageLocation // page locations, in the same order as indexes
}

// tableScratch has buffers for encoding pages.
type tableScratch struct{ raw, stored, head []byte }

// NewTableWriter returns a TableWriter that writes to w. meta is the key-value metadata
// of the table.
func NewTableWriter(w io.Writer, columns []TableColumn, meta []KeyValue, cfg TableConfig) (*TableWriter, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if err := checkColumns(columns); err != nil {
		return nil, err
	}
	t := &TableWriter{w: w, cfg: cfg, columns: columns, meta: meta, groups: []format.RowGroup{}}
	for _, c := range columns {
		leaf := c.leafType()
		t.buffers = append(t.buffers, columnBuffer{TableColumn: c, leaf: leaf, order: c.valueOrder(leaf)})
	}
	t.writeBytes([]byte(parquetMagic))
	return t, t.err
}

// Rows returns the number of rows that were ended with EndRow.
func (t *TableWriter) Rows() int64 { return t.rows }

// AppendNull adds a null to column c.
func (t *TableWriter) AppendNull(c int) {
	b := &t.buffers[c]
	if b.Required {
		panic(fmt.Sprintf("column %q is required and cannot be null", b.Name))
	}
	b.addNull()
	t.blockBytes++
}

// AppendText adds a text, which must be UTF-8, to column c.
func (t *TableWriter) AppendText(c int, s string) {
	t.blockBytes += t.buffer(c, TableText).addText(unsafe.Slice(unsafe.StringData(s), len(s)))
}

// AppendInt adds v to column c.
func (t *TableWriter) AppendInt(c int, v int64) {
	t.blockBytes += t.buffer(c, TableInt).addFixed(uint64(v))
}

// AppendUint adds v to column c.
func (t *TableWriter) AppendUint(c int, v uint64) {
	t.blockBytes += t.buffer(c, TableUint).addFixed(v)
}

// AppendReal adds v to column c.
func (t *TableWriter) AppendReal(c int, v float64) {
	t.blockBytes += t.buffer(c, TableReal).addFixed(math.Float64bits(v))
}

// AppendLeaf adds a value of a user's file to column c of kind TableLeaf. raw must fit the
// column's type.
func (t *TableWriter) AppendLeaf(c int, raw string) {
	b := t.buffer(c, TableLeaf)
	if !b.leaf.CanHold(raw) {
		panic(fmt.Sprintf("column %q: a value of %d bytes does not fit the column's type", b.Name, len(raw)))
	}
	t.blockBytes += b.addLeaf(unsafe.Slice(unsafe.StringData(raw), len(raw)))
}

// AppendBool adds v to column c.
func (t *TableWriter) AppendBool(c int, v bool) {
	t.blockBytes += t.buffer(c, TableBool).addBool(v)
}

// AppendFloats adds the list v to column c.
func (t *TableWriter) AppendFloats(c int, v []float32) {
	raw := t.scratch.raw[:0]
	for _, f := range v {
		raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(f))
	}
	t.scratch.raw = raw
	t.blockBytes += t.buffer(c, TableFloats).addFloats(raw)
}

// buffer returns the buffer of column c. It panics if the column is not of the given
// kind.
func (t *TableWriter) buffer(c int, kind TableKind) *columnBuffer {
	b := &t.buffers[c]
	if b.Kind != kind {
		panic(fmt.Sprintf("column %q holds %v, not %v", b.Name, b.Kind, kind))
	}
	return b
}

// CopyRow adds all values of row i of b, and ends the row. b must come from a scan of
// all columns, and its table must have the same columns as t.
func (t *TableWriter) CopyRow(b *RowBlock, i int) error {
	t.CopyCells(b, i, 0)
	return t.EndRow()
}

// CopyCells adds the values of row i of b to the columns from first on. The columns of b must
// be the same as these columns of t.
func (t *TableWriter) CopyCells(b *RowBlock, i, first int) {
	for c := range b.columns {
		to, from := &t.buffers[first+c], &b.columns[c]
		at := int(from.at[i])
		switch {
		case at < 0:
			to.addNull()
			t.blockBytes++
		case to.Kind == TableText:
			t.blockBytes += to.addText(from.text(at))
		case to.Kind == TableLeaf:
			t.blockBytes += to.addLeaf(from.value(at))
		case to.Kind == TableBool:
			t.blockBytes += to.addBool(from.boolAt(at))
		case to.Kind == TableFloats:
			t.blockBytes += to.addFloats(from.floatsOfRow(i))
		default:
			t.blockBytes += to.addFixed(from.uint64At(at))
		}
	}
}

// EndRow ends a row. It returns an error if this write or an earlier write failed.
func (t *TableWriter) EndRow() error {
	t.rows++
	t.blockRows++
	if t.blockBytes < t.cfg.BlockBytes && t.groupRows+int64(t.blockRows) < t.cfg.GroupRows {
		return t.err
	}
	return t.closeBlock()
}

// closeBlock makes one page from the collected values of each column.
func (t *TableWriter) closeBlock() error {
	for i := range t.buffers {
		b := &t.buffers[i]
		if b.rows != t.blockRows {
			panic(fmt.Sprintf("column %q was given %d values in %d rows", b.Name, b.rows, t.blockRows))
		}
		if err := b.closePage(&t.scratch, t.groupRows); err != nil {
			t.err = err
			return err
		}
	}
	t.groupRows += int64(t.blockRows)
	t.groupBytes += int64(t.blockBytes)
	t.blockRows, t.blockBytes = 0, 0
	if t.groupBytes >= t.cfg.GroupBytes || t.groupRows >= t.cfg.GroupRows {
		t.closeGroup()
	}
	return t.err
}

// closeGroup writes the pages of the open row group.
func (t *TableWriter) closeGroup() {
	if len(t.groups) >= maxGroups {
		t.err = fmt.Errorf("a table of more than %d row groups cannot be read", maxGroups)
	}
	g := format.RowGroup{NumRows: t.groupRows, FileOffset: t.offset, Ordinal: int16(len(t.groups))}
	for i := range t.buffers {
		b := &t.buffers[i]
		offset := t.offset
		for _, page := range b.pages {
			t.writeBytes(page)
		}
		chunk, index, places, err := b.closeChunk(offset)
		if err != nil && t.err == nil {
			t.err = err
		}
		g.Columns = append(g.Columns, chunk)
		g.TotalByteSize += chunk.MetaData.TotalUncompressedSize
		g.TotalCompressedSize += chunk.MetaData.TotalCompressedSize
		t.indexes = append(t.indexes, index)
		t.places = append(t.places, places)
	}
	t.groups = append(t.groups, g)
	t.groupRows, t.groupBytes = 0, 0
}

// Attach writes b between row groups, where Parquet readers do not look. The key-value
// metadata then has the position of b under key. b must not be empty.
func (t *TableWriter) Attach(key string, b []byte) error {
	t.meta = append(slices.Clip(t.meta), KeyValue{key, formatPosition(t.offset, len(b))})
	t.writeBytes(b)
	return t.err
}

// Close writes the open block, the page indexes and the footer. It does not close the
// underlying writer.
func (t *TableWriter) Close() error {
	if t.blockRows > 0 {
		if err := t.closeBlock(); err != nil {
			return err
		}
	}
	if t.groupRows > 0 {
		t.closeGroup()
	}
	width := len(t.columns)
	for i, index := range t.indexes {
		chunk := &t.groups[i/width].Columns[i%width]
		if len(index) == 0 {
			continue
		}
		chunk.ColumnIndexOffset, chunk.ColumnIndexLength = t.offset, int32(len(index))
		t.writeBytes(index)
	}
	for i, places := range t.places {
		chunk := &t.groups[i/width].Columns[i%width]
		t.scratch.raw = appendOffsetIndex(t.scratch.raw[:0], places)
		chunk.OffsetIndexOffset, chunk.OffsetIndexLength = t.offset, int32(len(t.scratch.raw))
		t.writeBytes(t.scratch.raw)
	}
	footer, err := appendFooter(nil, footerOf(t.columns, t.meta, t.groups))
	if err != nil {
		return err
	}
	t.writeBytes(footer)
	return t.err
}

// writeBytes writes b unless an earlier write failed.
func (t *TableWriter) writeBytes(b []byte) {
	if t.err != nil {
		return
	}
	n, err := t.w.Write(b)
	t.offset += int64(n)
	if err != nil {
		t.err = fmt.Errorf("write table: %w", err)
	}
}

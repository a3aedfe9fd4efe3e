package columnar

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/parquet-go/parquet-go/format"
)

// copyBytes is the size of the copy buffer, in bytes.
const copyBytes = 256 << 10

// Splicer concatenates tables into one table that has all or some of their columns. It
// copies column chunks and column indexes byte for byte, and writes only the footer and
// new offset indexes. It needs a few hundred bytes of memory per chunk. Only one
// goroutine may use it.
type Splicer struct {
	w        *bufio.Writer
	to       RangeWriter // the writer under w if that is a RangeWriter, or nil
	pending  sourceRange // the last range of the table, which is not copied yet
	begun    bool        // true if parquetMagic was written or is part of pending
	offset   int64       // size of the table so far in bytes, pending included
	columns  []TableColumn
	trailing int // position of the first trailing column, see SetFirstTrailingColumn
	meta     []KeyValue
	groups   []format.RowGroup
	trailed  int            // number of row groups whose trailing chunks are copied
	chunks   []splicedChunk // all columns of a row group, then the next row group
	buffer   []byte
	places   []pageLocation
}

// RangeWriter is a writer that can copy a range of a source itself, for example by a
// server-side copy. Then the bytes do not pass through this process.
type RangeWriter interface {
	io.Writer
	// WriteRange appends length bytes of a table's source, from offset on, to the
	// written data.
	WriteRange(src io.ReaderAt, offset, length int64) error
}

// sourceRange is a range of bytes in the source of a table.
type sourceRange struct {
	t              *Table
	offset, length int64
}

// splicedChunk says where the indexes of a copied chunk are in the source, and how far
// the chunk moved.
type splicedChunk struct {
	t      *Table        // the source and its size; other fields are not set, so that the footer can be freed
	column indexLocation // position of the column index; rows is not set
	places indexLocation // position of the offset index
	moved  int64         // distance from the offset in the source to the new offset, in bytes
}

// NewSplicer returns a Splicer that writes a table with the given columns to w. If w is
// a RangeWriter, consecutive chunks are copied as one range.
func NewSplicer(w io.Writer, columns []TableColumn, meta []KeyValue) (*Splicer, error) {
	if err := checkColumns(columns); err != nil {
		return nil, err
	}
	s := &Splicer{
		w: bufio.NewWriterSize(w, copyBytes), offset: int64(len(parquetMagic)),
		columns: columns, trailing: len(columns), meta: meta, groups: []format.RowGroup{},
	}
	s.to, _ = w.(RangeWriter)
	return s, nil
}

// SetFirstTrailingColumn puts the chunks of column c and of later columns after the chunks of all
// earlier columns, across row groups. Then the earlier columns are one contiguous range
// of the file, which can be copied alone. SetFirstTrailingColumn must be called before Append. A
// row group that is appended after Attach begins another range.
func (s *Splicer) SetFirstTrailingColumn(c int) { s.trailing = c }

// Append copies all row groups of t. The source of t must stay open until Close. t must
// have the splicer's columns with the same types.
func (s *Splicer) Append(ctx context.Context, t *Table) error {
	at := make([]int, len(s.columns))
	for i, c := range s.columns {
		at[i] = t.ColumnPosition(c.Name)
		if at[i] < 0 {
			return fmt.Errorf("splice: column %q is missing", c.Name)
		}
		if has := t.columns[at[i]]; has != c {
			return fmt.Errorf("splice: column %q is %v (required: %t), not %v (required: %t)", c.Name, has.Kind, has.Required, c.Kind, c.Required)
		}
	}
	for g := range t.meta.RowGroups {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := s.appendGroup(t, g, at); err != nil {
			return fmt.Errorf("splice row group %d: %w", g, err)
		}
	}
	return nil
}

// appendGroup copies row group g of t. positions has the positions of the splicer's columns
// in t.
func (s *Splicer) appendGroup(t *Table, g int, positions []int) error {
	if len(s.groups) >= maxGroups {
		return fmt.Errorf("a table of more than %d row groups cannot be read", maxGroups)
	}
	group := format.RowGroup{NumRows: t.meta.RowGroups[g].NumRows, FileOffset: s.offset, Ordinal: int16(len(s.groups))}
	bare := &Table{src: t.src, size: t.size}
	for i, c := range positions {
		m := t.meta.RowGroups[g].Columns[c].MetaData
		// A new slice, because the decoded slice would keep the whole footer in memory.
		m.PathInSchema = s.columns[i].path()
		m.Statistics.MinValue = bytes.Clone(m.Statistics.MinValue)
		m.Statistics.MaxValue = bytes.Clone(m.Statistics.MaxValue)
		group.Columns = append(group.Columns, format.ColumnChunk{MetaData: m})
		group.TotalByteSize += m.TotalUncompressedSize
		group.TotalCompressedSize += m.TotalCompressedSize
		source := &t.meta.RowGroups[g].Columns[c]
		column := indexLocation{offset: source.ColumnIndexOffset, length: source.ColumnIndexLength}
		s.chunks = append(s.chunks, splicedChunk{bare, column, t.locateOffsetIndex(g, c), 0})
	}
	s.groups = append(s.groups, group)
	return s.copyChunks(len(s.groups)-1, 0, s.trailing)
}

// copyChunks copies the chunks of columns from (included) to to (excluded) of row group
// g. It changes the offsets in their metadata from offsets in the source to offsets in
// the new table.
func (s *Splicer) copyChunks(g, firstColumn, endColumn int) error {
	for i := firstColumn; i < endColumn; i++ {
		m, source := &s.groups[g].Columns[i].MetaData, &s.chunks[g*len(s.columns)+i]
		source.moved = s.offset - m.DataPageOffset
		if err := s.copyRange(source.t, m.DataPageOffset, m.TotalCompressedSize); err != nil {
			return fmt.Errorf("column %q: %w", s.columns[i].Name, err)
		}
		m.DataPageOffset += source.moved
	}
	return nil
}

// copyTrailing copies the chunks of the trailing columns of all row groups that still
// lack them.
func (s *Splicer) copyTrailing() error {
	for ; s.trailed < len(s.groups); s.trailed++ {
		if err := s.copyChunks(s.trailed, s.trailing, len(s.columns)); err != nil {
			return fmt.Errorf("splice row group %d: %w", s.trailed, err)
		}
	}
	return nil
}

// Attach writes b between the row groups and stores its position under key, like
// TableWriter.Attach.
func (s *Splicer) Attach(key string, b []byte) error {
	if err := s.copyTrailing(); err != nil {
		return err
	}
	s.meta = append(slices.Clip(s.meta), KeyValue{key, formatPosition(s.offset, len(b))})
	return s.writeBytes(b)
}

// Rows returns the number of rows in all appended tables.
func (s *Splicer) Rows() (rows int64) {
	for _, g := range s.groups {
		rows += g.NumRows
	}
	return rows
}

// Close writes the indexes and the footer. It reads the indexes from the sources a
// second time. It does not close the underlying writer.
func (s *Splicer) Close() error {
	if err := s.copyTrailing(); err != nil {
		return err
	}
	width := len(s.columns)
	for i, from := range s.chunks {
		chunk := &s.groups[i/width].Columns[i%width]
		if from.column.length == 0 {
			continue
		}
		chunk.ColumnIndexOffset, chunk.ColumnIndexLength = s.offset, from.column.length
		if err := s.copyRange(from.t, from.column.offset, int64(from.column.length)); err != nil {
			return fmt.Errorf("splice column index: %w", err)
		}
	}
	for i, from := range s.chunks {
		chunk := &s.groups[i/width].Columns[i%width]
		var err error
		if s.buffer, s.places, err = from.t.readPageLocations(from.places, s.buffer, s.places); err != nil {
			return fmt.Errorf("splice offset index: %w", err)
		}
		for j := range s.places {
			s.places[j].offset += from.moved
		}
		s.buffer = appendOffsetIndex(s.buffer[:0], s.places)
		chunk.OffsetIndexOffset, chunk.OffsetIndexLength = s.offset, int32(len(s.buffer))
		if err := s.writeBytes(s.buffer); err != nil {
			return err
		}
	}
	footer, err := appendFooter(nil, footerOf(s.columns, s.meta, s.groups))
	if err != nil {
		return fmt.Errorf("splice: %w", err)
	}
	if err := s.writeBytes(footer); err != nil {
		return err
	}
	if err := s.w.Flush(); err != nil {
		return fmt.Errorf("splice: %w", err)
	}
	return nil
}

// copyRange writes length bytes of t's source from offset on. A RangeWriter gets them as a
// range. For any other writer, copyRange reads them directly into the write buffer.
func (s *Splicer) copyRange(t *Table, offset, length int64) error {
	if s.to != nil {
		// The source file begins with the magic bytes that the output needs too, so the first
		// range can begin with them.
		if magic := int64(len(parquetMagic)); !s.begun && offset == magic {
			s.begun, s.pending = true, sourceRange{t, 0, magic + length}
			s.offset += length
			return nil
		}
		if err := s.writeMagic(); err != nil {
			return err
		}
		if at := &s.pending; at.length > 0 && at.t.src == t.src && at.offset+at.length == offset {
			at.length += length
		} else {
			if err := s.flushRange(); err != nil {
				return err
			}
			s.pending = sourceRange{t, offset, length}
		}
		s.offset += length
		return nil
	}
	if err := s.writeMagic(); err != nil { // before AvailableBuffer, because it writes into the buffer
		return err
	}
	for length > 0 {
		if s.w.Available() == 0 {
			if err := s.w.Flush(); err != nil {
				return fmt.Errorf("splice: %w", err)
			}
		}
		b := s.w.AvailableBuffer()[:min(length, int64(s.w.Available()))]
		if err := readAt(t.src, b, offset); err != nil {
			return err
		}
		if err := s.writeBytes(b); err != nil {
			return err
		}
		offset += int64(len(b))
		length -= int64(len(b))
	}
	return nil
}

// flushRange lets the RangeWriter copy the pending range.
func (s *Splicer) flushRange() error {
	from := s.pending
	s.pending = sourceRange{}
	if from.length == 0 {
		return nil
	}
	err := s.w.Flush()
	if err == nil {
		err = s.to.WriteRange(from.t.src, from.offset, from.length)
	}
	if err != nil {
		return fmt.Errorf("splice: %w", err)
	}
	return nil
}

// writeMagic writes the magic bytes at the beginning of the file, unless they are
// already written or part of a range.
func (s *Splicer) writeMagic() error {
	if s.begun {
		return nil
	}
	s.begun = true
	if _, err := s.w.WriteString(parquetMagic); err != nil {
		return fmt.Errorf("splice: %w", err)
	}
	return nil
}

// writeBytes writes b after the pending range.
func (s *Splicer) writeBytes(b []byte) error {
	if err := errors.Join(s.writeMagic(), s.flushRange()); err != nil {
		return err
	}
	n, err := s.w.Write(b)
	s.offset += int64(n)
	if err != nil {
		return fmt.Errorf("splice: %w", err)
	}
	return nil
}

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

// copyBytes is how many bytes of a column chunk are in memory during a copy.
const copyBytes = 256 << 10

// Splicer concatenates tables into one table, with all or some of their
// columns. It copies column chunks and column indexes byte for byte, and
// rebuilds only the footer and the offset indexes. It keeps a few hundred bytes
// per chunk in memory. It is for one goroutine.
type Splicer struct {
	w        *bufio.Writer
	to       RangeWriter // the writer under w, or nil if it is not a RangeWriter
	pending  sourceRange // a range that is not copied yet; it is the end of the table so far
	begun    bool        // parquetMagic was written or is part of pending
	offset   int64
	columns  []TableColumn
	trailing int // the first trailing column, see SetTrailing
	meta     []KeyValue
	groups   []format.RowGroup
	trailed  int            // number of row groups with copied trailing chunks
	chunks   []splicedChunk // by row group and column
	buffer   []byte
	places   []pageLocation
}

// RangeWriter is a writer that can copy a range of a source by itself, so that
// the bytes do not pass through this process.
type RangeWriter interface {
	io.Writer
	// WriteRange appends length bytes of a table's source, from offset on.
	WriteRange(src io.ReaderAt, offset, length int64) error
}

// sourceRange is a range of a source.
type sourceRange struct {
	t              *Table
	offset, length int64
}

// splicedChunk is the position of a copied chunk's indexes in the source, and
// how far the chunk moved.
type splicedChunk struct {
	t      *Table      // has only a source and a size, so that the footer can be freed
	column offsetIndex // the column index; rows is not set
	places offsetIndex
	moved  int64
}

// NewSplicer begins a table with the given columns on w. If w is a RangeWriter,
// consecutive chunks are copied as one range.
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

// SetTrailing puts the chunks of column c and of later columns after the chunks
// of all earlier columns, across row groups. Then the earlier columns are one
// range of the file that can be copied alone. Call it before Append. Data
// appended after Attach begins another range.
func (s *Splicer) SetTrailing(c int) { s.trailing = c }

// Append copies the row groups of t. The source of t must stay open until
// Close. t must have the splicer's columns, with equal types.
func (s *Splicer) Append(ctx context.Context, t *Table) error {
	at := make([]int, len(s.columns))
	for i, c := range s.columns {
		at[i] = t.Column(c.Name)
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

func (s *Splicer) appendGroup(t *Table, g int, at []int) error {
	if len(s.groups) >= maxGroups {
		return fmt.Errorf("a table of more than %d row groups cannot be read", maxGroups)
	}
	group := format.RowGroup{NumRows: t.meta.RowGroups[g].NumRows, FileOffset: s.offset, Ordinal: int16(len(s.groups))}
	bare := &Table{src: t.src, size: t.size}
	for i, c := range at {
		m := t.meta.RowGroups[g].Columns[c].MetaData
		m.PathInSchema = s.columns[i].path() // the decoded text would keep the whole footer in memory
		m.Statistics.MinValue = bytes.Clone(m.Statistics.MinValue)
		m.Statistics.MaxValue = bytes.Clone(m.Statistics.MaxValue)
		group.Columns = append(group.Columns, format.ColumnChunk{MetaData: m})
		group.TotalByteSize += m.TotalUncompressedSize
		group.TotalCompressedSize += m.TotalCompressedSize
		source := &t.meta.RowGroups[g].Columns[c]
		column := offsetIndex{offset: source.ColumnIndexOffset, length: source.ColumnIndexLength}
		s.chunks = append(s.chunks, splicedChunk{bare, column, t.index(g, c), 0})
	}
	s.groups = append(s.groups, group)
	return s.copyChunks(len(s.groups)-1, 0, s.trailing)
}

// copyChunks copies the chunks of some columns of a row group. Before that,
// their metadata hold the offsets in the source.
func (s *Splicer) copyChunks(g, from, to int) error {
	for i := from; i < to; i++ {
		m, source := &s.groups[g].Columns[i].MetaData, &s.chunks[g*len(s.columns)+i]
		source.moved = s.offset - m.DataPageOffset
		if err := s.copy(source.t, m.DataPageOffset, m.TotalCompressedSize); err != nil {
			return fmt.Errorf("column %q: %w", s.columns[i].Name, err)
		}
		m.DataPageOffset += source.moved
	}
	return nil
}

// copyTrailing copies the chunks of the trailing columns.
func (s *Splicer) copyTrailing() error {
	for ; s.trailed < len(s.groups); s.trailed++ {
		if err := s.copyChunks(s.trailed, s.trailing, len(s.columns)); err != nil {
			return fmt.Errorf("splice row group %d: %w", s.trailed, err)
		}
	}
	return nil
}

// Attach does the same as TableWriter.Attach.
func (s *Splicer) Attach(key string, b []byte) error {
	if err := s.copyTrailing(); err != nil {
		return err
	}
	s.meta = append(slices.Clip(s.meta), KeyValue{key, placeOf(s.offset, len(b))})
	return s.put(b)
}

// Rows returns the number of rows appended.
func (s *Splicer) Rows() (rows int64) {
	for _, g := range s.groups {
		rows += g.NumRows
	}
	return rows
}

// Close writes the indexes and the footer. It reads the indexes from the
// sources again. It does not close the underlying writer.
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
		if err := s.copy(from.t, from.column.offset, int64(from.column.length)); err != nil {
			return fmt.Errorf("splice column index: %w", err)
		}
	}
	for i, from := range s.chunks {
		chunk := &s.groups[i/width].Columns[i%width]
		var err error
		if s.buffer, s.places, err = from.t.readPlaces(from.places, s.buffer, s.places); err != nil {
			return fmt.Errorf("splice offset index: %w", err)
		}
		for j := range s.places {
			s.places[j].offset += from.moved
		}
		s.buffer = appendOffsetIndex(s.buffer[:0], s.places)
		chunk.OffsetIndexOffset, chunk.OffsetIndexLength = s.offset, int32(len(s.buffer))
		if err := s.put(s.buffer); err != nil {
			return err
		}
	}
	footer, err := appendFooter(nil, footerOf(s.columns, s.meta, s.groups))
	if err != nil {
		return fmt.Errorf("splice: %w", err)
	}
	if err := s.put(footer); err != nil {
		return err
	}
	if err := s.w.Flush(); err != nil {
		return fmt.Errorf("splice: %w", err)
	}
	return nil
}

// copy writes length bytes of t's source from offset on. A RangeWriter takes
// them as a range; otherwise they are read straight into the writer's buffer.
func (s *Splicer) copy(t *Table, offset, length int64) error {
	if s.to != nil {
		if magic := int64(len(parquetMagic)); !s.begun && offset == magic { // the source begins with the same magic, so that the range can include it
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
	if err := s.writeMagic(); err != nil { // first, because it changes the free part of the buffer
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
		if err := s.put(b); err != nil {
			return err
		}
		offset += int64(len(b))
		length -= int64(len(b))
	}
	return nil
}

// flushRange makes the RangeWriter copy the pending range.
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

// writeMagic writes the first bytes of the file, unless a range includes them.
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

func (s *Splicer) put(b []byte) error {
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

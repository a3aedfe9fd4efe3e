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

// copyBytes is how much of a column chunk is in memory while it is copied.
const copyBytes = 256 << 10

// A Splicer puts tables one behind the other into one, with all or some of
// their columns, by copying column chunks byte for byte. Only the footer and
// the offset indexes are made anew; the column indexes are copied too. It
// remembers a few hundred bytes per chunk. It is for one goroutine.
type Splicer struct {
	w       *bufio.Writer
	to      RangeWriter // what is beneath w, if it takes ranges
	waiting sourceRange // to be copied next; nothing was put since
	begun   bool        // the file has its first bytes
	offset  int64
	columns []TableColumn
	behind  int // the first column whose chunks stand behind those of all others
	meta    []KeyValue
	groups  []format.RowGroup
	placed  int            // row groups whose chunks are all there
	chunks  []splicedChunk // by row group and column
	buffer  []byte
	places  []pageLocation
}

// A RangeWriter is a writer that takes ranges of sources by itself, where the
// bytes need not pass through here.
type RangeWriter interface {
	io.Writer
	// WriteRange appends length bytes from offset on of a source of a table.
	WriteRange(src io.ReaderAt, offset, length int64) error
}

// sourceRange is a range of a source.
type sourceRange struct {
	t              *Table
	offset, length int64
}

// splicedChunk is where a copied chunk's indexes are, and by how much the
// chunk moved.
type splicedChunk struct {
	t      *Table      // source and size alone, so that the footer can go
	column offsetIndex // its rows are not set
	places offsetIndex
	moved  int64
}

// NewSplicer begins a table of the given columns on w, which may be a RangeWriter:
// chunks that lie one behind the other are one range.
func NewSplicer(w io.Writer, columns []TableColumn, meta []KeyValue) (*Splicer, error) {
	if err := checkColumns(columns); err != nil {
		return nil, err
	}
	s := &Splicer{
		w: bufio.NewWriterSize(w, copyBytes), offset: int64(len(parquetMagic)),
		columns: columns, behind: len(columns), meta: meta, groups: []format.RowGroup{},
	}
	s.to, _ = w.(RangeWriter)
	return s, nil
}

// Behind has the chunks of column c and of those after it stand behind the chunks of
// all columns before it, whatever their row groups: so these are one range of the
// file for who copies only them. It is called before Append; what is appended after
// Attach begins another range.
func (s *Splicer) Behind(c int) { s.behind = c }

// Append copies the row groups of t, whose source must stay open until Close.
// t needs the splicer's columns, with equal types, among its own.
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
		m.PathInSchema = s.columns[i].path() // the decoded texts hold on to the whole footer
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
	return s.place(len(s.groups)-1, 0, s.behind)
}

// place copies the chunks of some columns of a row group, whose metadata say until
// then where they are in their source.
func (s *Splicer) place(g, from, to int) error {
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

// placeRest copies the chunks that stand behind others.
func (s *Splicer) placeRest() error {
	for ; s.placed < len(s.groups); s.placed++ {
		if err := s.place(s.placed, s.behind, len(s.columns)); err != nil {
			return fmt.Errorf("splice row group %d: %w", s.placed, err)
		}
	}
	return nil
}

// Attach is that of TableWriter.
func (s *Splicer) Attach(key string, b []byte) error {
	if err := s.placeRest(); err != nil {
		return err
	}
	s.meta = append(slices.Clip(s.meta), KeyValue{key, placeOf(s.offset, len(b))})
	return s.put(b)
}

// Rows is the number of rows appended.
func (s *Splicer) Rows() (rows int64) {
	for _, g := range s.groups {
		rows += g.NumRows
	}
	return rows
}

// Close writes the indexes, which it reads once more from the sources, and
// the footer. It does not close the underlying writer.
func (s *Splicer) Close() error {
	if err := s.placeRest(); err != nil {
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

// copy writes length bytes of t's source from offset. Unless the writer takes
// them as a range, they are read straight into its buffer.
func (s *Splicer) copy(t *Table, offset, length int64) error {
	if s.to != nil {
		if magic := int64(len(parquetMagic)); !s.begun && offset == magic { // what stands before it is what this file begins with
			s.begun, s.waiting = true, sourceRange{t, 0, magic + length}
			s.offset += length
			return nil
		}
		if err := s.begin(); err != nil {
			return err
		}
		if at := &s.waiting; at.length > 0 && at.t.src == t.src && at.offset+at.length == offset {
			at.length += length
		} else {
			if err := s.settle(); err != nil {
				return err
			}
			s.waiting = sourceRange{t, offset, length}
		}
		s.offset += length
		return nil
	}
	if err := s.begin(); err != nil { // before the place behind it is read into
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

// settle has the writer take the range that waits.
func (s *Splicer) settle() error {
	from := s.waiting
	s.waiting = sourceRange{}
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

// begin writes what the file begins with, where no range brings it.
func (s *Splicer) begin() error {
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
	if err := errors.Join(s.begin(), s.settle()); err != nil {
		return err
	}
	n, err := s.w.Write(b)
	s.offset += int64(n)
	if err != nil {
		return fmt.Errorf("splice: %w", err)
	}
	return nil
}

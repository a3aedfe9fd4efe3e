package columnar

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"math"

	"github.com/klauspost/compress/s2"
)

// TableScan reads some columns of a table block by block. Only one goroutine may use
// it.
type TableScan struct {
	t       *Table
	columns []int            // positions of the scanned columns in the table
	group   int              // number of the row group that has the next block
	page    int              // number of the next block within its row group
	places  [][]pageLocation // page locations of the row group, by scanned column; empty until read
	block   RowBlock
	stored  *[]byte // buffer for the compressed bytes of a page
}

// Scan begins a scan of the given columns at the first row. The methods of RowBlock take a
// column's position in this list.
func (t *Table) Scan(columns ...int) *TableScan {
	s := &TableScan{t: t, columns: columns, places: make([][]pageLocation, len(columns)), stored: new([]byte)}
	s.block.columns = make([]blockColumn, len(columns))
	for i, c := range columns {
		column := &s.block.columns[i]
		column.TableColumn, column.width = t.columns[c], 8
		if l := column.leafType(); l != nil {
			column.width = l.width
		}
	}
	return s
}

// ShareBuffer makes s use the read buffer of other. So several scans in one goroutine
// need only one buffer.
func (s *TableScan) ShareBuffer(other *TableScan) { s.stored = other.stored }

// SeekRow makes Next return the block with the given row.
func (s *TableScan) SeekRow(row int64) error {
	if row < 0 || row >= s.t.Rows() {
		return fmt.Errorf("row %d does not exist: the table has %d rows", row, s.t.Rows())
	}
	if g := s.t.groupOfRow(row); g != s.group || len(s.places[0]) == 0 {
		s.group = g
		if err := s.readOffsetIndexes(); err != nil {
			return err
		}
	}
	row -= s.t.first[s.group]
	s.page = 0
	for s.page+1 < len(s.places[0]) && s.places[0][s.page+1].first <= row {
		s.page++
	}
	return nil
}

// readOffsetIndexes reads the offset indexes of the current row group. After an error the
// next call of SeekRow or Next reads them again.
func (s *TableScan) readOffsetIndexes() (err error) {
	defer func() {
		if err != nil {
			s.places[0] = s.places[0][:0]
		}
	}()
	for i, c := range s.columns {
		if *s.stored, s.places[i], err = s.t.readPageLocations(s.t.locateOffsetIndex(s.group, c), *s.stored, s.places[i]); err != nil {
			return fmt.Errorf("row group %d, column %q: %w", s.group, s.t.columns[c].Name, err)
		}
		if len(s.places[i]) != len(s.places[0]) {
			return fmt.Errorf("row group %d, column %q: pages end at different rows: %w", s.group, s.t.columns[c].Name, ErrDamaged)
		}
		for j, p := range s.places[i] {
			if p.first != s.places[0][j].first {
				return fmt.Errorf("row group %d, column %q: pages end at different rows: %w", s.group, s.t.columns[c].Name, ErrDamaged)
			}
		}
	}
	s.page = 0
	return nil
}

// Next reads the next block. After the last block it returns io.EOF. The block is valid
// until the next call.
func (s *TableScan) Next() (b *RowBlock, err error) {
	defer func() {
		if fault := recover(); fault != nil {
			err = fmt.Errorf("row %d: %w: %v", s.block.First, ErrDamaged, fault)
		}
	}()
	if len(s.places[0]) > 0 && s.page == len(s.places[0]) {
		s.group++
		s.places[0] = s.places[0][:0]
	}
	if s.group == s.t.Groups() {
		return nil, io.EOF
	}
	if len(s.places[0]) == 0 {
		if err := s.readOffsetIndexes(); err != nil {
			return nil, err
		}
	}
	from, to := s.t.GroupRows(s.group)
	s.block.First = from + s.places[0][s.page].first
	if s.page+1 < len(s.places[0]) {
		to = from + s.places[0][s.page+1].first
	}
	if to-s.block.First > maxPage {
		return nil, fmt.Errorf("row %d: a block cannot have %d rows: %w", s.block.First, to-s.block.First, ErrDamaged)
	}
	s.block.Rows = int(to - s.block.First)
	for i := range s.columns {
		if err := s.readColumn(i); err != nil {
			return nil, fmt.Errorf("row %d, column %q: %w", s.block.First, s.block.columns[i].Name, err)
		}
	}
	s.page++
	return &s.block, nil
}

// readColumn reads the current page of scanned column i into the block.
func (s *TableScan) readColumn(i int) error {
	place := s.places[i][s.page]
	*s.stored = resize(*s.stored, int(place.size))
	if err := readAt(s.t.src, *s.stored, place.offset); err != nil {
		return err
	}
	h, body, err := readPageHeader(*s.stored)
	if err != nil {
		return err
	}
	if crc32.ChecksumIEEE(body) != h.crc {
		return fmt.Errorf("the page's checksum is wrong: %w", ErrDamaged)
	}
	if n, err := s2.DecodedLen(body); err != nil || n != h.raw {
		return fmt.Errorf("the page does not decompress to %d bytes: %w", h.raw, ErrDamaged)
	}
	c := &s.block.columns[i]
	if c.page, err = s2.Decode(resize(c.page, h.raw), body); err != nil {
		return fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	return c.locateValues(s.block.Rows, h.values)
}

// RowBlock is a decoded range of consecutive rows. Its methods take a column's position in
// the scan (c) and a row's position in the block (i). If a value is null, only the method
// IsNull may be called for it. Returned slices are valid as long as the block.
type RowBlock struct {
	First   int64 // number of the block's first row in the table, from 0
	Rows    int   // number of rows in the block
	columns []blockColumn
}

// IsNull reports whether a value is null.
func (b *RowBlock) IsNull(c, i int) bool { return b.columns[c].at[i] < 0 }

// Text returns a value of a TableText column.
func (b *RowBlock) Text(c, i int) []byte { return b.columns[c].text(int(b.columns[c].at[i])) }

// Int returns a value of a TableInt column.
func (b *RowBlock) Int(c, i int) int64 { return int64(b.columns[c].uint64At(int(b.columns[c].at[i]))) }

// Uint returns a value of a TableUint column.
func (b *RowBlock) Uint(c, i int) uint64 { return b.columns[c].uint64At(int(b.columns[c].at[i])) }

// Real returns a value of a TableReal column.
func (b *RowBlock) Real(c, i int) float64 {
	return math.Float64frombits(b.columns[c].uint64At(int(b.columns[c].at[i])))
}

// Leaf returns a value of a TableLeaf column.
func (b *RowBlock) Leaf(c, i int) []byte { return b.columns[c].value(int(b.columns[c].at[i])) }

// Bool returns a value of a TableBool column.
func (b *RowBlock) Bool(c, i int) bool { return b.columns[c].boolAt(int(b.columns[c].at[i])) }

// AppendFloats appends the floats of a value of a TableFloats column to v.
func (b *RowBlock) AppendFloats(c, i int, v []float32) []float32 {
	for raw := b.columns[c].floatsOfRow(i); len(raw) >= 4; raw = raw[4:] {
		v = append(v, math.Float32frombits(binary.LittleEndian.Uint32(raw)))
	}
	return v
}

// blockColumn is the decoded page of one column in a block.
type blockColumn struct {
	TableColumn
	width  int     // bytes of a value; 0 if each value begins with its length
	page   []byte  // the whole page: levels and values
	data   []byte  // the part of page with the values
	at     []int32 // at[i] is the position of row i's value in data (bool: bit number); -1: null
	counts []int32 // only TableFloats: counts[i] is the number of floats in row i
}

// text returns the text at a position of data. Its length precedes it.
func (c *blockColumn) text(at int) []byte {
	n := int(binary.LittleEndian.Uint32(c.data[at:]))
	return c.data[at+4 : at+4+n]
}

// value returns the value of a TableLeaf column at a position of data.
func (c *blockColumn) value(at int) []byte {
	if c.width == 0 {
		return c.text(at)
	}
	return c.data[at : at+c.width]
}

// uint64At returns the 8-byte value at a position of data.
func (c *blockColumn) uint64At(at int) uint64 { return binary.LittleEndian.Uint64(c.data[at:]) }

// boolAt returns the bool at bit number at of data.
func (c *blockColumn) boolAt(at int) bool { return c.data[at/8]>>(at%8)&1 == 1 }

// floatsOfRow returns the floats of row i as little-endian bytes.
func (c *blockColumn) floatsOfRow(i int) []byte {
	at := int(c.at[i])
	return c.data[at : at+4*int(c.counts[i])]
}

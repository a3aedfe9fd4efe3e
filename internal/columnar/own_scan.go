package columnar

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"math"

	"github.com/klauspost/compress/s2"
)

// TableScan reads some columns of a table block by block. It is for one
// goroutine.
type TableScan struct {
	t       *Table
	columns []int
	group   int              // the next block's row group
	page    int              // the next block's page in that group
	places  [][]pageLocation // pages of the row group, by scanned column; empty until read
	block   Block
	stored  *[]byte // buffer for the compressed bytes of a page
}

// Scan begins a scan of the given columns at the first row. Methods of Block
// take a column's position in this list.
func (t *Table) Scan(columns ...int) *TableScan {
	s := &TableScan{t: t, columns: columns, places: make([][]pageLocation, len(columns)), stored: new([]byte)}
	s.block.columns = make([]blockColumn, len(columns))
	for i, c := range columns {
		column := &s.block.columns[i]
		column.TableColumn, column.width = t.columns[c], 8
		if l := column.leaf(); l != nil {
			column.width = l.width
		}
	}
	return s
}

// ShareBuffer makes s read into the buffer of other, so that several scans in
// one goroutine need one buffer.
func (s *TableScan) ShareBuffer(other *TableScan) { s.stored = other.stored }

// SeekRow makes Next return the block that holds row.
func (s *TableScan) SeekRow(row int64) error {
	if row < 0 || row >= s.t.Rows() {
		return fmt.Errorf("row %d does not exist: the table has %d rows", row, s.t.Rows())
	}
	if g := s.t.group(row); g != s.group || len(s.places[0]) == 0 {
		s.group = g
		if err := s.open(); err != nil {
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

// open reads the offset indexes of the row group.
func (s *TableScan) open() (err error) {
	for i, c := range s.columns {
		if *s.stored, s.places[i], err = s.t.readPlaces(s.t.index(s.group, c), *s.stored, s.places[i]); err != nil {
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

// Next reads the next block, or returns io.EOF. The block is valid until the
// next call.
func (s *TableScan) Next() (b *Block, err error) {
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
		if err := s.open(); err != nil {
			return nil, err
		}
	}
	from, to := s.t.GroupRows(s.group)
	s.block.First = from + s.places[0][s.page].first
	if s.page+1 < len(s.places[0]) {
		to = from + s.places[0][s.page+1].first
	}
	if to-s.block.First > maxPage {
		return nil, fmt.Errorf("row %d: a block of %d rows: %w", s.block.First, to-s.block.First, ErrDamaged)
	}
	s.block.Rows = int(to - s.block.First)
	for i := range s.columns {
		if err := s.read(i); err != nil {
			return nil, fmt.Errorf("row %d, column %q: %w", s.block.First, s.block.columns[i].Name, err)
		}
	}
	s.page++
	return &s.block, nil
}

// read reads the current page of the i-th scanned column into the block.
func (s *TableScan) read(i int) error {
	place := s.places[i][s.page]
	*s.stored = sized(*s.stored, int(place.size))
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
		return fmt.Errorf("page of %d bytes: %w", h.raw, ErrDamaged)
	}
	c := &s.block.columns[i]
	if c.page, err = s2.Decode(sized(c.page, h.raw), body); err != nil {
		return fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	return c.decode(s.block.Rows, h.values)
}

// Block is a decoded range of consecutive rows. Its methods take a column's
// position in the scan (c) and a row's position in the block (i). For a value
// that is null, call only Null. Returned slices are valid as long as the block.
type Block struct {
	First   int64 // the block's first row in the table
	Rows    int
	columns []blockColumn
}

// Null reports whether the value is null.
func (b *Block) Null(c, i int) bool { return b.columns[c].at[i] < 0 }

// Text returns a value of a TableText column.
func (b *Block) Text(c, i int) []byte { return b.columns[c].text(int(b.columns[c].at[i])) }

// Int returns a value of a TableInt column.
func (b *Block) Int(c, i int) int64 { return int64(b.columns[c].fixed(int(b.columns[c].at[i]))) }

// Uint returns a value of a TableUint column.
func (b *Block) Uint(c, i int) uint64 { return b.columns[c].fixed(int(b.columns[c].at[i])) }

// Real returns a value of a TableReal column.
func (b *Block) Real(c, i int) float64 {
	return math.Float64frombits(b.columns[c].fixed(int(b.columns[c].at[i])))
}

// Leaf returns a value of a TableLeaf column.
func (b *Block) Leaf(c, i int) []byte { return b.columns[c].value(int(b.columns[c].at[i])) }

// Bool returns a value of a TableBool column.
func (b *Block) Bool(c, i int) bool { return b.columns[c].bit(int(b.columns[c].at[i])) }

// Floats appends the list in a TableFloats column to v.
func (b *Block) Floats(c, i int, v []float32) []float32 {
	for raw := b.columns[c].list(i); len(raw) >= 4; raw = raw[4:] {
		v = append(v, math.Float32frombits(binary.LittleEndian.Uint32(raw)))
	}
	return v
}

// blockColumn is one decoded page.
type blockColumn struct {
	TableColumn
	width  int     // bytes of a value; 0 if a length precedes each value
	page   []byte  // levels and values
	data   []byte  // the values in page
	at     []int32 // per row: position of its value in data (for a bool, the bit); -1 for null
	counts []int32 // TableFloats, per row: number of floats in the list
}

func (c *blockColumn) text(at int) []byte {
	n := int(binary.LittleEndian.Uint32(c.data[at:]))
	return c.data[at+4 : at+4+n]
}

// value returns a value of a TableLeaf column.
func (c *blockColumn) value(at int) []byte {
	if c.width == 0 {
		return c.text(at)
	}
	return c.data[at : at+c.width]
}

func (c *blockColumn) fixed(at int) uint64 { return binary.LittleEndian.Uint64(c.data[at:]) }

func (c *blockColumn) bit(at int) bool { return c.data[at/8]>>(at%8)&1 == 1 }

func (c *blockColumn) list(i int) []byte {
	at := int(c.at[i])
	return c.data[at : at+4*int(c.counts[i])]
}

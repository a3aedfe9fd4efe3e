package columnar

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
	"unicode/utf8"

	"github.com/klauspost/compress/s2"
	"github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/parquet-go/parquet-go/format"
)

const (
	// maxPage bounds a page before compression, and with it a cell: a block
	// ends with the row that fills it, so a page is at most a block and a row.
	maxPage = 256 << 20

	// boundBytes is the longest text kept as a page's bound in the column
	// index: enough to skip pages by, short enough to keep indexes small.
	boundBytes = 32

	// exactBytes is the longest text kept as a bound of a whole column chunk.
	// Readers take those for exact, so longer ones are left out, not cut.
	exactBytes = 64
)

// tableBuffer is one column of a TableWriter: the open block's values, and the
// finished pages of the open row group.
type tableBuffer struct {
	TableColumn
	leaf  *Leaf // TableLeaf
	order order

	// The open block.
	data   []byte // PLAIN values
	bits   int    // TableBool: values in data, 8 to a byte
	def    levelRuns
	rep    levelRuns
	rows   int
	values int // entries, nulls included
	nulls  int
	bounds

	// The open row group.
	pages   [][]byte // headers and bodies
	spares  [][]byte // pages of written row groups, to be used again
	places  []pageLocation
	index   format.ColumnIndex
	raw     int64 // bytes of the pages before compression, headers included
	stored  int64
	entries int64
	empty   int64 // nulls
	whole   bounds
	exact   [2][]byte // texts of whole
	inexact bool      // a text bound was too long for whole
}

// bounds are the smallest and largest values since the last reset.
type bounds struct {
	any      bool
	low, hi  uint64 // bits of an int, uint, real, bool or float, or of a leaf
	from, to span   // texts, in data
}

// span is a slice of tableBuffer.data.
type span struct{ at, end int }

func (s span) of(data []byte) []byte { return data[s.at:s.end] }

// null adds a null.
func (c *tableBuffer) null() {
	c.rows++
	c.values++
	c.nulls++
	if c.Kind == TableFloats {
		c.rep.put(0, 1)
	}
	c.def.put(0, 1)
}

// present counts a value that is not null.
func (c *tableBuffer) present() {
	c.rows++
	c.values++
	if !c.Required {
		c.def.put(1, 1)
	}
}

func (c *tableBuffer) text(s []byte) int {
	c.present()
	c.data = binary.LittleEndian.AppendUint32(c.data, uint32(len(s)))
	at := span{len(c.data), len(c.data) + len(s)}
	c.data = append(c.data, s...)
	switch {
	case !c.any:
		c.any, c.from, c.to = true, at, at
	case bytes.Compare(s, c.to.of(c.data)) > 0:
		c.to = at
	case bytes.Compare(s, c.from.of(c.data)) < 0:
		c.from = at
	}
	return 4 + len(s)
}

func (c *tableBuffer) fixed(bits uint64) int {
	c.present()
	c.data = binary.LittleEndian.AppendUint64(c.data, bits)
	c.bound(bits)
	return 8
}

// value adds a value of another file.
func (c *tableBuffer) value(raw []byte) int {
	c.present()
	if c.leaf.width == 0 {
		c.data = binary.LittleEndian.AppendUint32(c.data, uint32(len(raw)))
	}
	c.data = append(c.data, raw...)
	if c.order != orderNone {
		c.bound(c.leaf.bits(raw))
	}
	return max(4, len(raw))
}

func (c *tableBuffer) bool(v bool) int {
	c.present()
	if c.bits%8 == 0 {
		c.data = append(c.data, 0)
	}
	bit := uint64(0)
	if v {
		bit = 1
		c.data[len(c.data)-1] |= 1 << (c.bits % 8)
	}
	c.bits++
	c.bound(bit)
	return 1
}

// list adds a list of n floats in little-endian bytes.
func (c *tableBuffer) list(raw []byte) int {
	c.rows++
	n := len(raw) / 4
	c.rep.put(0, 1)
	if n == 0 {
		c.values++
		c.nulls++ // an empty list has no leaf value
		c.def.put(listEmpty, 1)
		return 1
	}
	c.values += n
	c.rep.put(1, n-1)
	c.def.put(listPresent, n)
	c.data = append(c.data, raw...)

	low, hi := float32(math.Inf(1)), float32(math.Inf(-1))
	for ; len(raw) >= 4; raw = raw[4:] {
		v := math.Float32frombits(binary.LittleEndian.Uint32(raw))
		if v < low {
			low = v
		}
		if v > hi {
			hi = v
		}
	}
	if low <= hi { // some value is a number
		c.bound(math.Float64bits(float64(low)))
		c.bound(math.Float64bits(float64(hi)))
	}
	return 4 * n
}

// bound widens the bounds to hold the value of bits.
func (b *bounds) widen(by order, bits uint64) {
	if by == orderReal && math.IsNaN(math.Float64frombits(bits)) {
		return
	}
	if !b.any {
		b.any, b.low, b.hi = true, bits, bits
		return
	}
	if fixedLess(by, bits, b.low) {
		b.low = bits
	}
	if fixedLess(by, b.hi, bits) {
		b.hi = bits
	}
}

func (c *tableBuffer) bound(bits uint64) { c.widen(c.order, bits) }

func fixedLess(by order, a, b uint64) bool {
	switch by {
	case orderSigned:
		return int64(a) < int64(b)
	case orderReal:
		return math.Float64frombits(a) < math.Float64frombits(b)
	default:
		return a < b
	}
}

// encodeBound is a fixed-size bound as statistics hold it. Zeros of reals get
// the sign that makes the bound cover both, as the format asks.
func (c *tableBuffer) encodeBound(bits uint64, upper bool) []byte {
	short := c.Kind == TableFloats || c.leaf != nil && c.leaf.width == 4
	switch {
	case c.Kind == TableBool:
		return []byte{byte(bits)}
	case c.order == orderReal:
		v := math.Float64frombits(bits)
		if v == 0 {
			v = math.Copysign(0, map[bool]float64{false: -1, true: 1}[upper])
		}
		if short {
			return binary.LittleEndian.AppendUint32(nil, math.Float32bits(float32(v)))
		}
		bits = math.Float64bits(v)
	case short:
		return binary.LittleEndian.AppendUint32(nil, uint32(bits))
	}
	return binary.LittleEndian.AppendUint64(nil, bits)
}

// pageBounds are the open block's bounds for the column index. A page of NaNs
// alone gets bounds that hold every number.
func (c *tableBuffer) pageBounds() (low, hi []byte) {
	switch {
	case c.Kind == TableText:
		return lowerBound(c.from.of(c.data)), upperBound(c.to.of(c.data))
	case !c.any:
		return c.encodeBound(math.Float64bits(math.Inf(-1)), false), c.encodeBound(math.Float64bits(math.Inf(1)), true)
	default:
		return c.encodeBound(c.low, false), c.encodeBound(c.hi, true)
	}
}

// lowerBound is a text of at most boundBytes that sorts no later than s.
func lowerBound(s []byte) []byte { return bytes.Clone(runePrefix(s)) }

// upperBound is a short text that sorts no earlier than s: s cut, its last
// character raised by one. A text of nothing but the last character there is
// stays as it is.
func upperBound(s []byte) []byte {
	cut := runePrefix(s)
	if len(cut) == len(s) {
		return bytes.Clone(s)
	}
	for len(cut) > 0 {
		r, n := utf8.DecodeLastRune(cut)
		cut = cut[:len(cut)-n]
		r++
		if r == 0xD800 { // surrogates are no characters
			r = 0xE000
		}
		if r <= utf8.MaxRune {
			return utf8.AppendRune(bytes.Clone(cut), r)
		}
	}
	return bytes.Clone(s)
}

// runePrefix is the longest start of s of whole characters and at most
// boundBytes.
func runePrefix(s []byte) []byte {
	if len(s) <= boundBytes {
		return s
	}
	n := boundBytes
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

// closePage compresses the open block into a page. first is the block's first
// row in the row group.
func (c *tableBuffer) closePage(s *tableScratch, first int64) error {
	raw := c.data
	if !c.Required {
		levels := s.raw[:0]
		if c.Kind == TableFloats {
			levels = c.rep.appendTo(levels)
		}
		raw = append(c.def.appendTo(levels), c.data...)
		s.raw = raw
	}
	if len(raw) > maxPage {
		return fmt.Errorf("column %q: a page of %d bytes, more than the %d that readers take", c.Name, len(raw), maxPage)
	}
	if need := s2.MaxEncodedLen(len(raw)); cap(s.stored) < need {
		s.stored = make([]byte, need)
	}
	body := s2.EncodeSnappy(s.stored[:cap(s.stored)], raw)
	s.head = pageHeader{len(raw), len(body), crc32.ChecksumIEEE(body), c.values}.append(s.head[:0])

	page := append(append(c.spare(len(s.head)+len(body)), s.head...), body...)
	c.pages = append(c.pages, page)
	c.places = append(c.places, pageLocation{size: int32(len(page)), first: first})
	c.raw += int64(len(s.head) + len(raw))
	c.stored += int64(len(page))
	c.closeStatistics()
	c.entries += int64(c.values)
	c.empty += int64(c.nulls)

	c.data, c.bits = c.data[:0], 0
	c.def.reset()
	c.rep.reset()
	c.rows, c.values, c.nulls = 0, 0, 0
	c.bounds = bounds{}
	return nil
}

// spare is an empty page with room for n bytes.
func (c *tableBuffer) spare(n int) []byte {
	if last := len(c.spares) - 1; last >= 0 {
		page := c.spares[last]
		c.spares = c.spares[:last]
		if cap(page) >= n {
			return page[:0]
		}
	}
	return make([]byte, 0, n+n/16) // the next may be a little longer
}

// closeStatistics adds the open block to the column index and to the chunk's
// bounds.
func (c *tableBuffer) closeStatistics() {
	if c.order == orderNone {
		return
	}
	blank := c.values == c.nulls
	low, hi := []byte{}, []byte{}
	if !blank {
		low, hi = c.pageBounds()
	}
	c.index.NullPages = append(c.index.NullPages, blank)
	c.index.MinValues = append(c.index.MinValues, low)
	c.index.MaxValues = append(c.index.MaxValues, hi)
	c.index.NullCounts = append(c.index.NullCounts, int64(c.nulls))
	if !c.any {
		return
	}
	if c.Kind != TableText {
		c.whole.widen(c.order, c.low)
		c.whole.widen(c.order, c.hi)
		return
	}
	from, to := c.from.of(c.data), c.to.of(c.data)
	if len(from) > exactBytes || len(to) > exactBytes {
		c.inexact = true
	}
	if c.inexact {
		return
	}
	if !c.whole.any || bytes.Compare(from, c.exact[0]) < 0 {
		c.exact[0] = append(c.exact[0][:0], from...)
	}
	if !c.whole.any || bytes.Compare(to, c.exact[1]) > 0 {
		c.exact[1] = append(c.exact[1][:0], to...)
	}
	c.whole.any = true
}

// closeChunk describes the finished pages as a column chunk that starts at
// offset, with its encoded column index, and forgets them.
func (c *tableBuffer) closeChunk(offset int64) (format.ColumnChunk, []byte, []pageLocation, error) {
	at := offset
	for i := range c.places {
		c.places[i].offset = at
		at += int64(c.places[i].size)
	}
	m := format.ColumnMetaData{
		Type:                  c.physical(),
		Encoding:              []format.Encoding{format.Plain, format.RLE},
		PathInSchema:          c.path(),
		Codec:                 format.Snappy,
		NumValues:             c.entries,
		TotalUncompressedSize: c.raw,
		TotalCompressedSize:   c.stored,
		DataPageOffset:        offset,
		Statistics:            format.Statistics{NullCount: c.empty},
		EncodingStats:         []format.PageEncodingStats{{PageType: format.DataPage, Encoding: format.Plain, Count: int32(len(c.pages))}},
	}
	if c.whole.any && !c.inexact {
		if c.Kind == TableText {
			m.Statistics.MinValue, m.Statistics.MaxValue = bytes.Clone(c.exact[0]), bytes.Clone(c.exact[1])
		} else {
			m.Statistics.MinValue = c.encodeBound(c.whole.low, false)
			m.Statistics.MaxValue = c.encodeBound(c.whole.hi, true)
		}
	}
	var index []byte
	if c.order != orderNone {
		var err error
		if index, err = thrift.Marshal(new(thrift.CompactProtocol), &c.index); err != nil {
			return format.ColumnChunk{}, nil, nil, fmt.Errorf("column %q: encode column index: %w", c.Name, err)
		}
	}
	places := c.places
	c.spares = append(c.spares[:0], c.pages...)
	c.pages, c.places, c.index = c.pages[:0], nil, format.ColumnIndex{}
	c.raw, c.stored, c.entries, c.empty = 0, 0, 0, 0
	c.whole, c.inexact = bounds{}, false
	return format.ColumnChunk{MetaData: m}, index, places, nil
}

// levelRuns encodes repetition or definition levels as RLE runs.
type levelRuns struct {
	done []byte
	last byte
	n    int // length of the open run of last
}

func (l *levelRuns) put(v byte, n int) {
	if v != l.last {
		l.close()
		l.last = v
	}
	l.n += n
}

func (l *levelRuns) close() {
	if l.n > 0 {
		l.done = append(binary.AppendUvarint(l.done, uint64(l.n)<<1), l.last)
		l.n = 0
	}
}

// appendTo appends the levels with their length to b.
func (l *levelRuns) appendTo(b []byte) []byte {
	l.close()
	b = binary.LittleEndian.AppendUint32(b, uint32(len(l.done)))
	return append(b, l.done...)
}

func (l *levelRuns) reset() { *l = levelRuns{done: l.done[:0]} }

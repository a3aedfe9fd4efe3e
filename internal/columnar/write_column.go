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
	// maxPage is the largest page before compression, in bytes, and so the largest
	// value. A block ends with the row that fills it, so a page is at most one block
	// plus one row.
	maxPage = 256 << 20

	// boundBytes is the longest text, in bytes, that is a page's minimum or maximum in
	// the column index: long enough to skip pages, but short enough to keep indexes
	// small.
	boundBytes = 32

	// exactBytes is the longest text, in bytes, that is the minimum or maximum of a
	// column chunk. Readers take these bounds as exact values, so the writer leaves out
	// a longer text and does not shorten it.
	exactBytes = 64
)

// columnBuffer collects the values of one column of a TableWriter: the values of the
// open block, and the finished pages of the open row group.
type columnBuffer struct {
	TableColumn
	leaf  *LeafType // type of a TableLeaf column, or nil
	order sortOrder // how readers compare the values

	// The open block.
	data        []byte       // values in PLAIN encoding
	bits        int          // only TableBool: number of values in data, 8 per byte
	def         levelEncoder // definition levels
	rep         levelEncoder // repetition levels of a list
	rows        int
	values      int // number of values, nulls included
	nulls       int // number of nulls
	valueBounds     // smallest and largest value

	// The open row group.
	pages       [][]byte // finished pages: header and body
	spares      [][]byte // buffers of pages that were written, for reuse
	places      []pageLocation
	index       format.ColumnIndex
	raw         int64 // size of pages before compression, headers included, in bytes
	stored      int64 // size of pages as stored, in bytes
	entries     int64 // number of values, nulls included
	groupNulls  int64 // number of nulls
	chunkBounds valueBounds
	boundTexts  [2][]byte // smallest and largest text, for a text column
	tooLong     bool      // true if a text was too long to be a bound of the chunk
}

// valueBounds are the smallest and the largest of some values.
type valueBounds struct {
	hasValue bool      // true if there is a value
	low, hi  uint64    // bits of the smallest and largest number, bool or leaf value
	from, to byteRange // smallest and largest text, as ranges of data
}

// byteRange is a range of bytes in columnBuffer.data.
type byteRange struct{ at, end int }

// slice returns the bytes of the range.
func (s byteRange) slice(data []byte) []byte { return data[s.at:s.end] }

// addNull adds a null to the open block.
func (c *columnBuffer) addNull() {
	c.rows++
	c.values++
	c.nulls++
	if c.Kind == TableFloats {
		c.rep.addLevels(0, 1)
	}
	c.def.addLevels(0, 1)
}

// addPresent counts a value that is not null and records its level.
func (c *columnBuffer) addPresent() {
	c.rows++
	c.values++
	if !c.Required {
		c.def.addLevels(1, 1)
	}
}

// addText adds a text to the open block. It returns the number of bytes that the block
// grows.
func (c *columnBuffer) addText(s []byte) int {
	c.addPresent()
	n := len(s)
	c.data = append(c.data, byte(n), byte(n>>8), byte(n>>16), byte(n>>24))
	at := byteRange{len(c.data), len(c.data) + n}
	c.data = append(c.data, s...)
	switch {
	case !c.hasValue:
		c.hasValue, c.from, c.to = true, at, at
	case bytes.Compare(s, c.to.slice(c.data)) > 0:
		c.to = at
	case bytes.Compare(s, c.from.slice(c.data)) < 0:
		c.from = at
	}
	return 4 + n
}

// addFixed adds an 8-byte value to the open block. It returns the number of bytes that the
// block grows.
func (c *columnBuffer) addFixed(bits uint64) int {
	c.addPresent()
	c.data = append(c.data, byte(bits), byte(bits>>8), byte(bits>>16), byte(bits>>24), byte(bits>>32), byte(bits>>40), byte(bits>>48), byte(bits>>56))
	c.widenBounds(bits)
	return 8
}

// addLeaf adds the value of a TableLeaf column to the open block. It returns about the
// number of bytes that the block grows.
func (c *columnBuffer) addLeaf(raw []byte) int {
	c.addPresent()
	if c.leaf.width == 0 {
		c.data = binary.LittleEndian.AppendUint32(c.data, uint32(len(raw)))
	}
	c.data = append(c.data, raw...)
	if c.order != orderNone {
		c.widenBounds(c.leaf.comparableBits(raw))
	}
	return max(4, len(raw))
}

// addBool adds a bool to the open block. It returns 1, its share of the block size in
// bytes.
func (c *columnBuffer) addBool(v bool) int {
	c.addPresent()
	if c.bits%8 == 0 {
		c.data = append(c.data, 0)
	}
	bit := uint64(0)
	if v {
		bit = 1
		c.data[len(c.data)-1] |= 1 << (c.bits % 8)
	}
	c.bits++
	c.widenBounds(bit)
	return 1
}

// addFloats adds a list of floats to the open block. raw has the floats as little-endian
// bytes. addFloats returns the number of bytes by which the block grows.
func (c *columnBuffer) addFloats(raw []byte) int {
	c.rows++
	n := len(raw) / 4
	c.rep.addLevels(0, 1)
	if n == 0 {
		c.values++
		c.nulls++ // an empty list has no value, so Parquet counts it as a null
		c.def.addLevels(listEmpty, 1)
		return 1
	}
	c.values += n
	c.rep.addLevels(1, n-1)
	c.def.addLevels(listPresent, n)
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
	if low <= hi { // the list has a float that is not NaN
		c.widenBounds(math.Float64bits(float64(low)))
		c.widenBounds(math.Float64bits(float64(hi)))
	}
	return 4 * n
}

// widen extends the bounds so that they include a value. It ignores NaN.
func (b *valueBounds) widen(by sortOrder, bits uint64) {
	if by == orderReal && math.IsNaN(math.Float64frombits(bits)) {
		return
	}
	if !b.hasValue {
		b.hasValue, b.low, b.hi = true, bits, bits
		return
	}
	if bitsLess(by, bits, b.low) {
		b.low = bits
	}
	if bitsLess(by, b.hi, bits) {
		b.hi = bits
	}
}

// widenBounds extends the bounds of the open block so that they include a value.
func (c *columnBuffer) widenBounds(bits uint64) { c.widen(c.order, bits) }

// bitsLess reports whether a is less than b in the given order.
func bitsLess(by sortOrder, a, b uint64) bool {
	switch by {
	case orderSigned:
		return int64(a) < int64(b)
	case orderReal:
		return math.Float64frombits(a) < math.Float64frombits(b)
	default:
		return a < b
	}
}

// encodeBound encodes a minimum (upper is false) or a maximum (upper is true) of fixed
// size for statistics. If a float is zero, it gets the sign that includes both zeros,
// as the format requires.
func (c *columnBuffer) encodeBound(bits uint64, upper bool) []byte {
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

// pageBounds returns the minimum and the maximum of the open block for the column
// index. For a page that has only NaNs, they include every number.
func (c *columnBuffer) pageBounds() (low, hi []byte) {
	switch {
	case c.Kind == TableText:
		return lowerBound(c.from.slice(c.data)), upperBound(c.to.slice(c.data))
	case !c.hasValue:
		return c.encodeBound(math.Float64bits(math.Inf(-1)), false), c.encodeBound(math.Float64bits(math.Inf(1)), true)
	default:
		return c.encodeBound(c.low, false), c.encodeBound(c.hi, true)
	}
}

// lowerBound returns a prefix of s of at most boundBytes bytes. It sorts no later than
// s.
func lowerBound(s []byte) []byte { return bytes.Clone(runePrefix(s)) }

// upperBound returns a short text that sorts no earlier than s: it shortens s and
// raises the last character by one. If all these characters are the last character of
// Unicode, it returns s.
func upperBound(s []byte) []byte {
	cut := runePrefix(s)
	if len(cut) == len(s) {
		return bytes.Clone(s)
	}
	for len(cut) > 0 {
		r, n := utf8.DecodeLastRune(cut)
		cut = cut[:len(cut)-n]
		r++
		if r == 0xD800 { // surrogates are not characters
			r = 0xE000
		}
		if r <= utf8.MaxRune {
			return utf8.AppendRune(bytes.Clone(cut), r)
		}
	}
	return bytes.Clone(s)
}

// runePrefix returns the longest prefix of s that has at most boundBytes bytes and ends
// at a whole character.
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

// closePage compresses the open block into a page. first is the block's first row,
// counted from the beginning of the row group.
func (c *columnBuffer) closePage(s *tableScratch, first int64) error {
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
		return fmt.Errorf("column %q: a page of %d bytes, more than the %d that readers accept", c.Name, len(raw), maxPage)
	}
	if need := s2.MaxEncodedLen(len(raw)); cap(s.stored) < need {
		s.stored = make([]byte, need)
	}
	body := s2.EncodeSnappy(s.stored[:cap(s.stored)], raw)
	s.head = pageHeader{len(raw), len(body), crc32.ChecksumIEEE(body), c.values}.append(s.head[:0])

	page := append(append(c.takeSpareBuffer(len(s.head)+len(body)), s.head...), body...)
	c.pages = append(c.pages, page)
	c.places = append(c.places, pageLocation{size: int32(len(page)), first: first})
	c.raw += int64(len(s.head) + len(raw))
	c.stored += int64(len(page))
	c.addPageStatistics()
	c.entries += int64(c.values)
	c.groupNulls += int64(c.nulls)

	c.data, c.bits = c.data[:0], 0
	c.def.reset()
	c.rep.reset()
	c.rows, c.values, c.nulls = 0, 0, 0
	c.valueBounds = valueBounds{}
	return nil
}

// takeSpareBuffer returns an empty page buffer with room for n bytes.
func (c *columnBuffer) takeSpareBuffer(n int) []byte {
	if last := len(c.spares) - 1; last >= 0 {
		page := c.spares[last]
		c.spares = c.spares[:last]
		if cap(page) >= n {
			return page[:0]
		}
	}
	return make([]byte, 0, n+n/16) // the next page may be a little longer
}

// addPageStatistics adds the bounds of the open block to the column index and to the
// bounds of the column chunk.
func (c *columnBuffer) addPageStatistics() {
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
	if !c.hasValue {
		return
	}
	if c.Kind != TableText {
		c.chunkBounds.widen(c.order, c.low)
		c.chunkBounds.widen(c.order, c.hi)
		return
	}
	from, to := c.from.slice(c.data), c.to.slice(c.data)
	if len(from) > exactBytes || len(to) > exactBytes {
		c.tooLong = true
	}
	if c.tooLong {
		return
	}
	if !c.chunkBounds.hasValue || bytes.Compare(from, c.boundTexts[0]) < 0 {
		c.boundTexts[0] = append(c.boundTexts[0][:0], from...)
	}
	if !c.chunkBounds.hasValue || bytes.Compare(to, c.boundTexts[1]) > 0 {
		c.boundTexts[1] = append(c.boundTexts[1][:0], to...)
	}
	c.chunkBounds.hasValue = true
}

// closeChunk returns the metadata of the finished pages as a column chunk at offset,
// the encoded column index, and the page locations. Then it prepares the buffer for the
// next row group.
func (c *columnBuffer) closeChunk(offset int64) (format.ColumnChunk, []byte, []pageLocation, error) {
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
		Statistics:            format.Statistics{NullCount: c.groupNulls},
		EncodingStats:         []format.PageEncodingStats{{PageType: format.DataPage, Encoding: format.Plain, Count: int32(len(c.pages))}},
	}
	if c.chunkBounds.hasValue && !c.tooLong {
		if c.Kind == TableText {
			m.Statistics.MinValue, m.Statistics.MaxValue = bytes.Clone(c.boundTexts[0]), bytes.Clone(c.boundTexts[1])
		} else {
			m.Statistics.MinValue = c.encodeBound(c.chunkBounds.low, false)
			m.Statistics.MaxValue = c.encodeBound(c.chunkBounds.hi, true)
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
	c.raw, c.stored, c.entries, c.groupNulls = 0, 0, 0, 0
	c.chunkBounds, c.tooLong = valueBounds{}, false
	return format.ColumnChunk{MetaData: m}, index, places, nil
}

// levelEncoder encodes repetition or definition levels as RLE runs.
type levelEncoder struct {
	done []byte // encoded runs
	last byte   // level of the run that is not encoded yet
	n    int    // number of levels in this run
}

// addLevels adds level v n times.
func (l *levelEncoder) addLevels(v byte, n int) {
	if v != l.last {
		l.close()
		l.last = v
	}
	l.n += n
}

// close encodes the current run.
func (l *levelEncoder) close() {
	if l.n > 0 {
		l.done = append(binary.AppendUvarint(l.done, uint64(l.n)<<1), l.last)
		l.n = 0
	}
}

// appendTo appends the size of the encoded levels and the encoded levels to b.
func (l *levelEncoder) appendTo(b []byte) []byte {
	l.close()
	b = binary.LittleEndian.AppendUint32(b, uint32(len(l.done)))
	return append(b, l.done...)
}

func (l *levelEncoder) reset() { *l = levelEncoder{done: l.done[:0]} }

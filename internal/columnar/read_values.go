package columnar

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"

	"github.com/parquet-go/parquet-go/format"
)

// This file decodes levels and values:
// https://github.com/apache/parquet-format/blob/master/Encodings.md. Each decoder gets
// the number of values, and returns an error if the bytes have fewer or more values.
// Zero bytes at the end are allowed, because some programs add them as padding.

var (
	errShortPage = errors.New("the page has fewer values than its header says")
	errLongPage  = errors.New("the page has more values than its header says")
	errCount     = errors.New("the number of values differs from the number in the page header")
	errEncoding  = errors.New("the encoded values are damaged")
	errHighest   = errors.New("a level or a dictionary position is too high")
)

// oldDictionary is the encoding PLAIN_DICTIONARY. Old programs use it in place of PLAIN
// in a dictionary page, and in place of RLE_DICTIONARY in a data page.
const oldDictionary = format.Encoding(2)

// leafValues holds the values of a page, without nulls, or the values of a dictionary.
type leafValues struct {
	width  int      // size of a value in bytes, or byteArray
	count  int      // number of values
	data   []byte   // the values; for byteArray, each value follows its length of four bytes
	at     int      // position of the next value: in index if index is set, otherwise in data
	index  []uint32 // with a dictionary: each value's position in it, and data has the dictionary; else nil
	starts []uint32 // for a dictionary of width byteArray: offset of each value in data
}

// takeRaw returns the next value. The caller must check that there is a next value.
func (v *leafValues) takeRaw() []byte {
	at := v.at
	switch {
	case v.index != nil:
		v.at++
		if at = int(v.index[at]); v.width != byteArray {
			return v.data[at*v.width:][:v.width]
		}
		at = int(v.starts[at])
		return v.data[at+4:][:binary.LittleEndian.Uint32(v.data[at:])]
	case v.width != byteArray:
		v.at += v.width
		return v.data[at:v.at]
	}
	v.at += 4 + int(binary.LittleEndian.Uint32(v.data[at:]))
	return v.data[at+4 : v.at]
}

// decodeValues decodes the values of a page. n is the number of values that are not null.
func (r *pageReader) decodeValues(data []byte, encoding format.Encoding, n int) (v leafValues, err error) {
	kind, width := r.leaf.element.Type.V, r.leaf.valueWidth()
	v.width, v.count = width, n
	if encoding == format.Plain {
		return plainValues(&r.decoded, data, n, kind, width)
	}
	if n == 0 {
		return v, nil // programs encode a page without values in different ways
	}
	whole := kind == format.Int32 || kind == format.Int64
	switch {
	case encoding == oldDictionary || encoding == format.RLEDictionary:
		if r.dictionary == nil {
			return v, errors.New("the dictionary of the page is missing")
		}
		if cap(r.index) < n {
			r.index = make([]uint32, n)
		}
		v = *r.dictionary
		v.at, v.index = 0, r.index[:n]
		return v, decodeIndexes(v.index, data, v.count)
	case encoding == format.RLE && kind == format.Boolean:
		b, rest, err := splitPrefixed(data)
		if err == nil {
			err = checkPadding(rest)
		}
		if err != nil {
			return v, err
		}
		r.decoded, err = decodeLevels(r.decoded, b, n, 1)
		v.data = r.decoded
		return v, err
	case encoding == format.DeltaBinaryPacked && whole:
		r.decoded = resize(r.decoded, n*width)
		v.data = r.decoded
		rest, err := decodeDelta(v.data, data, width)
		if err != nil {
			return v, err
		}
		return v, checkPadding(rest)
	case encoding == format.DeltaLengthByteArray && width == byteArray:
		err = r.decodeDeltaLengths(data, n)
	case encoding == format.DeltaByteArray && (width == byteArray || kind == format.FixedLenByteArray):
		err = r.decodeDeltaStrings(data, n, width)
	case encoding == format.ByteStreamSplit && (whole || kind == format.Float || kind == format.Double || kind == format.FixedLenByteArray):
		if err := checkSize(data, n*width); err != nil {
			return v, err
		}
		r.decoded = resize(r.decoded, n*width)
		for i := range width {
			for j, b := range data[i*n:][:n] {
				r.decoded[j*width+i] = b
			}
		}
	default:
		err = fmt.Errorf("the encoding %v of %v is not supported", encoding, kind)
	}
	v.data = r.decoded
	return v, err
}

// checkPadding returns an error if b has a byte that is not zero.
func checkPadding(b []byte) error {
	for _, c := range b {
		if c != 0 {
			return errLongPage
		}
	}
	return nil
}

// checkSize returns an error if data does not have exactly size bytes, plus padding of
// zero bytes.
func checkSize(data []byte, size int) error {
	if len(data) < size {
		return errShortPage
	}
	return checkPadding(data[size:])
}

// plainValues checks n values in PLAIN encoding. It unpacks booleans into buf, which it
// may enlarge, and leaves other values in data.
func plainValues(buf *[]byte, data []byte, n int, kind format.Type, width int) (leafValues, error) {
	v := leafValues{width: width, data: data, count: n}
	switch {
	case kind == format.Boolean:
		if err := checkSize(data, (n+7)/8); err != nil {
			return v, err
		}
		*buf = resize(*buf, n)
		for i := range n {
			(*buf)[i] = data[i/8] >> (i % 8) & 1
		}
		v.data = *buf
		return v, nil
	case width != byteArray:
		return v, checkSize(data, n*width)
	}
	at := 0
	for range n {
		if len(data)-at < 4 {
			return v, errShortPage
		}
		size := int64(binary.LittleEndian.Uint32(data[at:]))
		if size > int64(len(data)-at-4) {
			return v, errShortPage
		}
		at += 4 + int(size)
	}
	return v, checkSize(data, at)
}

// splitPrefixed splits data after a prefix with a length of four bytes: b has that many
// bytes, and rest has the bytes after b.
func splitPrefixed(data []byte) (b, rest []byte, err error) {
	if len(data) < 4 {
		return nil, nil, errShortPage
	}
	n := binary.LittleEndian.Uint32(data)
	if int64(n) > int64(len(data)-4) {
		return nil, nil, errShortPage
	}
	return data[4 : 4+n], data[4+n:], nil
}

// decodeLevels decodes n levels from 0 to highest. It uses the memory of dst or
// allocates more. If highest is 0, it returns nil and ignores b, because some programs
// store bytes for such levels.
func decodeLevels(dst, b []byte, n, highest int) ([]byte, error) {
	if highest == 0 {
		return nil, nil
	}
	dst = resize(dst, n)
	return dst, decodeRuns(dst, b, bits.Len(uint(highest)), uint32(highest))
}

// decodeIndexes decodes positions in a dictionary of count values into dst.
func decodeIndexes(dst []uint32, data []byte, count int) error {
	if len(data) == 0 {
		return errShortPage
	}
	width := int(data[0])
	if width > 32 {
		return errEncoding
	}
	if count == 0 {
		return errors.New("the dictionary of the page is empty")
	}
	return decodeRuns(dst, data[1:], width, uint32(count-1))
}

// decodeRuns decodes the hybrid of run-length and bit-packed encoding into dst. Each
// number has width bits and is at most highest.
func decodeRuns[T byte | uint32](dst []T, b []byte, width int, highest uint32) error {
	for len(dst) > 0 {
		head, size := binary.Uvarint(b)
		if size <= 0 {
			return errShortPage
		}
		b = b[size:]
		if head&1 == 0 {
			run, bytes := head>>1, (width+7)/8
			if len(b) < bytes {
				return errShortPage
			}
			var raw [4]byte
			copy(raw[:], b[:bytes])
			b = b[bytes:]
			// Some programs set the unused bits too, and round up the last run to 8
			// numbers.
			v := uint32(uint64(binary.LittleEndian.Uint32(raw[:])) & (1<<width - 1))
			if run >= uint64(len(dst)+8) {
				return errLongPage
			}
			if v > highest {
				return errHighest
			}
			n := min(int(run), len(dst))
			for i := range dst[:n] {
				dst[i] = T(v)
			}
			dst = dst[n:]
			continue
		}
		groups := min(head>>1, uint64(len(b)+len(dst)))
		// After the last number of a page, some programs leave meaningless bits for
		// several groups. Other programs leave out the unused bits of the last group.
		n := min(int(groups)*8, len(dst))
		packed := b[:min(int(groups)*width, len(b))]
		if len(packed) < (n*width+7)/8 {
			return errShortPage
		}
		if err := unpackBits(dst[:n], packed, width, highest); err != nil {
			return err
		}
		dst, b = dst[n:], b[len(packed):]
	}
	return checkPadding(b)
}

// unpackBits decodes bit-packed numbers of width bits into dst. The lowest bits come
// first.
func unpackBits[T byte | uint32](dst []T, b []byte, width int, highest uint32) error {
	var bits uint64
	have := 0
	mask := uint64(1)<<width - 1
	for i := range dst {
		for have < width {
			bits |= uint64(b[0]) << have
			b = b[1:]
			have += 8
		}
		v := uint32(bits & mask)
		if v > highest {
			return errHighest
		}
		dst[i] = T(v)
		bits >>= width
		have -= width
	}
	return nil
}

// decodeBitPacked decodes n levels from the front of data. The highest bits come first,
// as old programs encode levels.
func decodeBitPacked(dst, data []byte, n, highest int) (levels, rest []byte, err error) {
	width := bits.Len(uint(highest))
	size := (n*width + 7) / 8
	if len(data) < size {
		return nil, nil, errShortPage
	}
	levels = resize(dst, n)
	for i := range levels {
		v := 0
		for bit := i * width; bit < (i+1)*width; bit++ {
			v = v<<1 | int(data[bit/8]>>(7-bit%8)&1)
		}
		if v > highest {
			return nil, nil, errHighest
		}
		levels[i] = byte(v)
	}
	return levels, data[size:], nil
}

// decodeDelta decodes DELTA_BINARY_PACKED integers of width bytes into dst, and returns
// the bytes after them.
func decodeDelta(dst, b []byte, width int) (rest []byte, err error) {
	d := varintReader{b: b}
	block, minis, count := d.uvarint(), d.uvarint(), d.uvarint()
	last := uint64(d.varint())
	switch {
	case d.bad || block == 0 || block > 1<<20 || minis == 0 || block%minis != 0 || block/minis%32 != 0:
		return nil, errEncoding
	case count != uint64(len(dst)/width):
		return nil, errCount
	case len(dst) == 0:
		return d.b, nil
	}
	put := func() {
		if width == 4 {
			binary.LittleEndian.PutUint32(dst, uint32(last))
		} else {
			binary.LittleEndian.PutUint64(dst, last)
		}
		dst = dst[width:]
	}
	put()
	perMini := int(block / minis)
	for len(dst) > 0 {
		least := uint64(d.varint())
		if d.bad || uint64(len(d.b)) < minis {
			return nil, errShortPage
		}
		widths := d.b[:minis]
		d.b = d.b[minis:]
		for _, bits := range widths {
			n := min(perMini, len(dst)/width)
			if n == 0 {
				break
			}
			size := perMini * int(bits) / 8
			if bits > 64 {
				return nil, errEncoding
			}
			if len(d.b) < (n*int(bits)+7)/8 { // some programs leave out the unused bits of the last miniblock
				return nil, errShortPage
			}
			packed := d.b[:min(size, len(d.b))]
			d.b = d.b[len(packed):]
			for i := range n {
				last += least + bitsAt(packed, i*int(bits), int(bits))
				put()
			}
		}
	}
	return d.b, nil
}

// decodeDeltaLengths decodes n values of DELTA_LENGTH_BYTE_ARRAY into r.decoded.
func (r *pageReader) decodeDeltaLengths(data []byte, n int) error {
	r.lengths = resize(r.lengths, 4*n)
	data, err := decodeDelta(r.lengths, data, 4)
	if err != nil {
		return err
	}
	r.decoded = resize(r.decoded, 4*n+len(data))[:0]
	for i := range n {
		size := binary.LittleEndian.Uint32(r.lengths[4*i:])
		if int64(size) > int64(len(data)) {
			return errShortPage
		}
		r.decoded = append(binary.LittleEndian.AppendUint32(r.decoded, size), data[:size]...)
		data = data[size:]
	}
	return checkPadding(data)
}

// decodeDeltaStrings decodes n values of DELTA_BYTE_ARRAY into r.decoded. Each value
// begins with a prefix of the previous value, and new bytes follow.
func (r *pageReader) decodeDeltaStrings(data []byte, n, width int) error {
	r.lengths = resize(r.lengths, 8*n)
	shared, own := r.lengths[:4*n], r.lengths[4*n:]
	data, err := decodeDelta(shared, data, 4)
	if err == nil {
		data, err = decodeDelta(own, data, 4)
	}
	if err != nil {
		return err
	}
	var last []byte
	r.decoded = r.decoded[:0]
	for i := range n {
		begin, end := int64(binary.LittleEndian.Uint32(shared[4*i:])), int64(binary.LittleEndian.Uint32(own[4*i:]))
		switch {
		case begin > int64(len(last)):
			return errEncoding
		case end > int64(len(data)):
			return errShortPage
		case width != byteArray && begin+end != int64(width):
			return errEncoding
		case int64(len(r.decoded))+4+begin+end > r.limits.MaxPageBytes:
			return r.pageTooLargeError(int64(len(r.decoded)) + 4 + begin + end)
		}
		if width == byteArray {
			r.decoded = binary.LittleEndian.AppendUint32(r.decoded, uint32(begin+end))
		}
		at := len(r.decoded)
		r.decoded = append(append(r.decoded, last[:begin]...), data[:end]...)
		last, data = r.decoded[at:], data[end:]
	}
	return checkPadding(data)
}

// varintReader reads variable-length integers from the front of b. After the first integer
// that is damaged, bad is true and every integer is zero.
type varintReader struct {
	b   []byte
	bad bool
}

func (d *varintReader) uvarint() uint64 {
	v, size := binary.Uvarint(d.b)
	if d.bad || size <= 0 {
		d.bad = true
		return 0
	}
	d.b = d.b[size:]
	return v
}

func (d *varintReader) varint() int64 {
	v := d.uvarint()
	return int64(v>>1) ^ -int64(v&1)
}

// bitsAt returns a number of width bits (up to 64) that begins at bit number at of b.
// The lowest bits come first.
func bitsAt(b []byte, at, width int) (v uint64) {
	for have := 0; have < width; {
		shift := (at + have) % 8
		v |= uint64(b[(at+have)/8]>>shift) << have
		have += 8 - shift
	}
	if width < 64 {
		v &= 1<<width - 1
	}
	return v
}

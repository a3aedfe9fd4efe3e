package columnar

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"

	"github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/parquet-go/parquet-go/format"
)

// Page headers and offset indexes occur once per page. To be fast, this file
// encodes and decodes them by hand, in thrift's compact protocol
// (https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md)
// and only in the form that tables use. A damaged length here cannot cause a
// large allocation. Footers go through the thrift package: a checksum protects
// them.

// These are field headers of the compact protocol. The high half is the
// distance to the previous field id, the low half is the type.
const (
	thriftStop   = 0x00
	thriftInt32  = 0x15 // next field, i32
	thriftInt64  = 0x16 // next field, i64
	thriftList   = 0x19 // next field, list
	thriftStruct = 0x1C // next field, struct
	structItems  = 0x0C // list items that are structs
)

// ErrDamaged means that the bytes of a table were changed or cut off.
var ErrDamaged = errors.New("the file is damaged")

// pageHeader holds the fields of a page header that differ between pages.
type pageHeader struct {
	raw    int    // bytes of the body before compression
	size   int    // bytes of the body as stored
	crc    uint32 // CRC-32 (IEEE) of the body as stored
	values int    // entries, nulls included
}

// append appends the header's encoding to b.
func (h pageHeader) append(b []byte) []byte {
	for _, v := range [...]int64{int64(format.DataPage), int64(h.raw), int64(h.size), int64(int32(h.crc))} {
		b = binary.AppendVarint(append(b, thriftInt32), v)
	}
	b = append(b, thriftStruct)
	for _, v := range [...]int64{int64(h.values), int64(format.Plain), int64(format.RLE), int64(format.RLE)} {
		b = binary.AppendVarint(append(b, thriftInt32), v)
	}
	return append(b, thriftStop, thriftStop)
}

// readPageHeader decodes a page header. It returns the bytes that follow it.
func readPageHeader(b []byte) (pageHeader, []byte, error) {
	d := compactReader{b: b}
	kind := d.field(thriftInt32)
	h := pageHeader{raw: int(d.field(thriftInt32)), size: int(d.field(thriftInt32)), crc: uint32(d.field(thriftInt32))}
	d.expect(thriftStruct)
	h.values = int(d.field(thriftInt32))
	encoding := d.field(thriftInt32)
	d.field(thriftInt32)
	d.field(thriftInt32)
	d.expect(thriftStop)
	d.expect(thriftStop)
	if d.bad || kind != int64(format.DataPage) || encoding != int64(format.Plain) ||
		h.raw < 0 || h.raw > maxPage || h.size != len(d.b) || h.values < 0 {
		return pageHeader{}, nil, fmt.Errorf("page header: %w", ErrDamaged)
	}
	return h, d.b, nil
}

// pageLocation is an entry of an offset index.
type pageLocation struct {
	offset int64 // of the header, from the start of the file
	size   int32 // header and body
	first  int64 // first row, counted from the start of the row group
}

// appendOffsetIndex appends the encoding of an offset index to b.
func appendOffsetIndex(b []byte, pages []pageLocation) []byte {
	b = append(b, thriftList)
	if len(pages) < 15 {
		b = append(b, byte(len(pages))<<4|structItems)
	} else {
		b = binary.AppendUvarint(append(b, 0xF0|structItems), uint64(len(pages)))
	}
	for _, p := range pages {
		b = binary.AppendVarint(append(b, thriftInt64), p.offset)
		b = binary.AppendVarint(append(b, thriftInt32), int64(p.size))
		b = binary.AppendVarint(append(b, thriftInt64), p.first)
		b = append(b, thriftStop)
	}
	return append(b, thriftStop)
}

// readOffsetIndex decodes an offset index into pages[:0].
func readOffsetIndex(b []byte, pages []pageLocation) ([]pageLocation, error) {
	d := compactReader{b: b}
	d.expect(thriftList)
	n := uint64(0)
	if head := d.byte(); head&0x0F != structItems {
		d.bad = true
	} else if n = uint64(head >> 4); n == 15 {
		n = d.uvarint()
	}
	pages = pages[:0]
	for i := uint64(0); i < n && !d.bad; i++ {
		p := pageLocation{offset: d.field(thriftInt64), size: int32(d.field(thriftInt32)), first: d.field(thriftInt64)}
		d.expect(thriftStop)
		pages = append(pages, p)
	}
	d.expect(thriftStop)
	if d.bad || len(d.b) != 0 {
		return nil, fmt.Errorf("offset index: %w", ErrDamaged)
	}
	return pages, nil
}

// compactReader takes values off the front of b. After the first mismatch, bad
// is true and every value is zero.
type compactReader struct {
	b   []byte
	bad bool
}

func (d *compactReader) byte() byte {
	if d.bad || len(d.b) == 0 {
		d.bad = true
		return 0
	}
	v := d.b[0]
	d.b = d.b[1:]
	return v
}

func (d *compactReader) expect(head byte) {
	if d.byte() != head {
		d.bad = true
	}
}

func (d *compactReader) uvarint() uint64 {
	v, n := binary.Uvarint(d.b)
	if d.bad || n <= 0 {
		d.bad = true
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *compactReader) field(head byte) int64 {
	d.expect(head)
	v := d.uvarint()
	return int64(v>>1) ^ -int64(v&1)
}

// A footer is framed as follows: sealMagic, the footer's CRC-32C, the footer,
// its length, parquetMagic.
const (
	parquetMagic = "PAR1"
	sealMagic    = "RMF1"
	sealBytes    = len(sealMagic) + 4
	tailBytes    = 4 + len(parquetMagic)

	createdBy = "rowmill"

	// maxFooter limits the footer size in memory. The footer of a table with ten
	// million rows of 1 kB needs about 1 MiB.
	maxFooter = 256 << 20
)

// appendFooter appends the framed footer of a table to b.
func appendFooter(b []byte, m *format.FileMetaData) ([]byte, error) {
	footer, err := thrift.Marshal(new(thrift.CompactProtocol), m)
	if err != nil {
		return nil, fmt.Errorf("encode footer: %w", err)
	}
	if len(footer) > maxFooter {
		return nil, fmt.Errorf("the footer would be %d bytes, more than %d", len(footer), maxFooter)
	}
	b = append(b, sealMagic...)
	b = binary.LittleEndian.AppendUint32(b, crc32.Checksum(footer, castagnoli()))
	b = append(b, footer...)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(footer)))
	return append(b, parquetMagic...), nil
}

// castagnoli returns the table of CRC-32C. The standard library builds it once.
func castagnoli() *crc32.Table { return crc32.MakeTable(crc32.Castagnoli) }

// footerOf builds the footer of a written or a spliced table.
func footerOf(columns []TableColumn, meta []KeyValue, groups []format.RowGroup) *format.FileMetaData {
	m := &format.FileMetaData{
		Version:   2,
		Schema:    tableSchema(columns),
		RowGroups: groups,
		CreatedBy: createdBy,
	}
	for _, g := range groups {
		m.NumRows += g.NumRows
	}
	for _, kv := range meta {
		m.KeyValueMetadata = append(m.KeyValueMetadata, format.KeyValue{Key: kv.Key, Value: kv.Value})
	}
	if schema := arrowSchema(columns); schema != "" {
		m.KeyValueMetadata = append(m.KeyValueMetadata, format.KeyValue{Key: arrowKey, Value: schema})
	}
	m.ColumnOrders = slices.Repeat([]format.ColumnOrder{{Value: new(format.TypeDefinedOrder)}}, len(columns))
	return m
}

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

// Field headers of thrift's compact protocol. The high four bits are the distance to
// the previous field ID, and the low four bits are the type.
const (
	thriftStop   = 0x00 // end of a struct
	thriftInt32  = 0x15 // the next field, of type i32
	thriftInt64  = 0x16 // the next field, of type i64
	thriftList   = 0x19 // the next field, a list
	thriftStruct = 0x1C // the next field, a struct
	structItems  = 0x0C // type of the items of a list of structs
)

// ErrDamaged means that the bytes of a table were changed, or that the file was cut
// off.
var ErrDamaged = errors.New("the file is damaged")

// pageHeader has the fields of a page header that differ from page to page.
type pageHeader struct {
	raw    int    // size of the page body before compression, in bytes
	size   int    // size of the page body as stored, in bytes
	crc    uint32 // CRC-32 (IEEE) of the page body as stored
	values int    // number of values, nulls included
}

// append encodes the header and appends it to b.
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

// readPageHeader decodes the page header at the beginning of b. It returns the header
// and the bytes after it.
func readPageHeader(b []byte) (pageHeader, []byte, error) {
	d := thriftReader{varintReader{b: b}}
	kind := d.readIntField(thriftInt32)
	h := pageHeader{raw: int(d.readIntField(thriftInt32)), size: int(d.readIntField(thriftInt32)), crc: uint32(d.readIntField(thriftInt32))}
	d.expect(thriftStruct)
	h.values = int(d.readIntField(thriftInt32))
	encoding := d.readIntField(thriftInt32)
	d.readIntField(thriftInt32)
	d.readIntField(thriftInt32)
	d.expect(thriftStop)
	d.expect(thriftStop)
	if d.bad || kind != int64(format.DataPage) || encoding != int64(format.Plain) ||
		h.raw < 0 || h.raw > maxPage || h.size != len(d.b) || h.values < 0 {
		return pageHeader{}, nil, fmt.Errorf("decode page header: %w", ErrDamaged)
	}
	return h, d.b, nil
}

// pageLocation is an entry of an offset index: where a page is.
type pageLocation struct {
	offset int64 // position of the page header, in bytes from the beginning of the file
	size   int32 // size of header and body, in bytes
	first  int64 // first row of the page, counted from the beginning of the row group
}

// appendOffsetIndex encodes an offset index and appends it to b.
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

// readOffsetIndex decodes an offset index. It stores the entries in pages[:0] and
// returns the slice.
func readOffsetIndex(b []byte, pages []pageLocation) ([]pageLocation, error) {
	d := thriftReader{varintReader{b: b}}
	d.expect(thriftList)
	n := uint64(0)
	if head := d.byte(); head&0x0F != structItems {
		d.bad = true
	} else if n = uint64(head >> 4); n == 15 {
		n = d.uvarint()
	}
	pages = pages[:0]
	for i := uint64(0); i < n && !d.bad; i++ {
		p := pageLocation{offset: d.readIntField(thriftInt64), size: int32(d.readIntField(thriftInt32)), first: d.readIntField(thriftInt64)}
		d.expect(thriftStop)
		pages = append(pages, p)
	}
	d.expect(thriftStop)
	if d.bad || len(d.b) != 0 {
		return nil, fmt.Errorf("decode offset index: %w", ErrDamaged)
	}
	return pages, nil
}

// thriftReader decodes values from the front of b. After the first wrong byte, bad is
// true and every value is zero.
type thriftReader struct{ varintReader }

// byte returns the next byte.
func (d *thriftReader) byte() byte {
	if d.bad || len(d.b) == 0 {
		d.bad = true
		return 0
	}
	v := d.b[0]
	d.b = d.b[1:]
	return v
}

// expect reads a byte and sets d.bad if the byte is not head.
func (d *thriftReader) expect(head byte) {
	if d.byte() != head {
		d.bad = true
	}
}

// readIntField reads a field header, which must be head, and returns the field's integer
// value.
func (d *thriftReader) readIntField(head byte) int64 {
	d.expect(head)
	return d.varint()
}

// The end of a table has: sealMagic, the CRC-32C of the footer, the footer, the length
// of the footer, parquetMagic.
const (
	parquetMagic = "PAR1"
	sealMagic    = "RMF1"
	sealBytes    = len(sealMagic) + 4    // size of sealMagic and the CRC-32C
	tailBytes    = 4 + len(parquetMagic) // size of the footer length and parquetMagic

	createdBy = "rowmill"

	// maxFooter is the largest footer, in bytes. The footer of a table with ten million
	// rows of 1 kB needs about 1 MiB.
	maxFooter = 256 << 20
)

// appendFooter encodes the footer of a table, with checksum, length and magic bytes,
// and appends it to b.
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

// castagnoli returns the CRC-32C table, which the standard library computes only once.
func castagnoli() *crc32.Table { return crc32.MakeTable(crc32.Castagnoli) }

// footerOf returns the footer of a table with these columns, metadata and row groups.
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

package columnar

import (
	"bytes"
	"math"
	"testing"

	"github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/parquet-go/parquet-go/format"
	"pgregory.net/rapid"

	"github.com/rowmill/rowmill/internal/must"
)

// TestCompactEncodings compares the encoding by hand with the thrift package,
// in both directions.
func TestCompactEncodings(t *testing.T) {
	t.Parallel()
	size := rapid.IntRange(0, math.MaxInt32)
	rapid.Check(t, func(t *rapid.T) {
		body := make([]byte, rapid.IntRange(0, 20).Draw(t, "body"))
		h := pageHeader{
			raw: rapid.IntRange(0, maxPage).Draw(t, "raw"), size: len(body),
			crc: rapid.Uint32().Draw(t, "crc"), values: size.Draw(t, "values"),
		}
		encoded := h.append(nil)
		var header format.PageHeader
		must.Succeed(t, thrift.Unmarshal(new(thrift.CompactProtocol), encoded, &header))
		d := header.DataPageHeader.V
		if int(header.UncompressedPageSize) != h.raw || uint32(header.CRC) != h.crc || int(d.NumValues) != h.values ||
			header.Type != format.DataPage || d.Encoding != format.Plain || d.DefinitionLevelEncoding != format.RLE {
			t.Fatalf("%+v reads as %+v", h, header)
		}
		got, rest, err := readPageHeader(append(encoded, body...))
		if err != nil || got != h || !bytes.Equal(rest, body) {
			t.Fatalf("%+v reads back as %+v, %v", h, got, err)
		}

		pages := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) pageLocation {
			return pageLocation{rapid.Int64().Draw(t, "offset"), rapid.Int32().Draw(t, "size"), rapid.Int64().Draw(t, "first")}
		}), 0, 40).Draw(t, "pages")
		encoded = appendOffsetIndex(nil, pages)
		var index format.OffsetIndex
		if err := thrift.Unmarshal(new(thrift.CompactProtocol), encoded, &index); err != nil || len(index.PageLocations) != len(pages) {
			t.Fatalf("%d pages read as %d: %v", len(pages), len(index.PageLocations), err)
		}
		back, err := readOffsetIndex(encoded, nil)
		if err != nil || len(back) != len(pages) {
			t.Fatalf("%d pages read back as %d: %v", len(pages), len(back), err)
		}
		for i, p := range index.PageLocations {
			if (pageLocation{p.Offset, p.CompressedPageSize, p.FirstRowIndex}) != pages[i] || back[i] != pages[i] {
				t.Fatalf("page %d: %+v reads as %+v and %+v", i, pages[i], p, back[i])
			}
		}
	})
}

// OpenTable must refuse tables of other programs with a clear error.
func TestOpenTableOfOthers(t *testing.T) {
	t.Parallel()
	file := makeTable(t, everyColumn(), nil, TableConfig{})
	at := bytes.LastIndex(file, []byte(sealMagic))
	copy(file[at:], "NONE")
	for name, b := range map[string][]byte{"other writer": file, "empty": nil, "not Parquet": bytes.Repeat([]byte("x"), 100)} {
		if _, err := OpenTable(bytes.NewReader(b), int64(len(b))); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// FuzzPage decodes random pages, without the checksums that normally protect
// them.
func FuzzPage(f *testing.F) {
	f.Add(uint8(TableText), false, 2, 2, []byte("\x02\x00\x00\x00\x04\x01\x01\x00\x00\x00a\x00\x00\x00\x00"))
	f.Add(uint8(TableFloats), false, 1, 2, []byte("\x04\x00\x00\x00\x02\x00\x02\x01\x02\x00\x00\x00\x04\x0312345678"))
	f.Add(uint8(TableBool), true, 9, 9, []byte("\xff\x01"))
	f.Fuzz(func(t *testing.T, kind uint8, required bool, rows, values int, page []byte) {
		column := TableColumn{Name: "c", Kind: TableKind(kind), Required: required}
		if checkColumns([]TableColumn{column}) != nil || rows < 0 || rows > 1000 || values < 0 || values > 1000 {
			return
		}
		b := RowBlock{Rows: rows, columns: []blockColumn{{TableColumn: column, page: page}}}
		if b.columns[0].locateValues(rows, values) != nil {
			return
		}
		for i := range rows {
			if !b.IsNull(0, i) {
				blockCell(&b, 0, i)
			}
		}
	})
}

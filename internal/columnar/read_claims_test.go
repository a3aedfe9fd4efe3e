package columnar_test

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/compress"
	"github.com/parquet-go/parquet-go/deprecated"
	"github.com/parquet-go/parquet-go/encoding"
	"github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/parquet-go/parquet-go/format"

	"github.com/rowmill/rowmill/internal/columnar"
	"github.com/rowmill/rowmill/internal/must"
)

// shape is one way to write a column.
type shape struct {
	codec    compress.Codec
	encoding encoding.Encoding
	kind     parquet.Kind
	nulls    string // "required", "optional" or "list"
	version  int
}

func (s shape) String() string {
	name := s.encoding.String()
	if s.dictionary() {
		name = "DICTIONARY" // the name has a slash in some versions
	}
	return fmt.Sprintf("%v %v %v %s v%d", s.codec, name, s.kind, s.nulls, s.version)
}

func (s shape) dictionary() bool { return s.encoding.Encoding() == format.RLEDictionary }

// fixedWidth is the length of FIXED_LEN_BYTE_ARRAY in shapes.
const fixedWidth = 5

func shapes() (all []shape) {
	numbers := []encoding.Encoding{&parquet.Plain, &parquet.RLEDictionary, &parquet.ByteStreamSplit}
	whole := append(slices.Clone(numbers), &parquet.DeltaBinaryPacked)
	encodings := map[parquet.Kind][]encoding.Encoding{
		parquet.Boolean:           {&parquet.Plain, &parquet.RLE},
		parquet.Int32:             whole,
		parquet.Int64:             whole,
		parquet.Int96:             {&parquet.Plain, &parquet.RLEDictionary},
		parquet.Float:             numbers,
		parquet.Double:            numbers,
		parquet.ByteArray:         {&parquet.Plain, &parquet.RLEDictionary, &parquet.DeltaLengthByteArray, &parquet.DeltaByteArray},
		parquet.FixedLenByteArray: {&parquet.Plain, &parquet.RLEDictionary, &parquet.ByteStreamSplit, &parquet.DeltaByteArray},
	}
	codecs := []compress.Codec{&parquet.Uncompressed, &parquet.Snappy, &parquet.Gzip, &parquet.Brotli, &parquet.Zstd, &parquet.Lz4Raw}
	for kind := parquet.Boolean; kind <= parquet.FixedLenByteArray; kind++ {
		for _, e := range encodings[kind] {
			for _, nulls := range []string{"required", "optional", "list"} {
				for _, version := range []int{1, 2} {
					for _, codec := range codecs {
						all = append(all, shape{codec, e, kind, nulls, version})
					}
				}
			}
		}
	}
	return all
}

// value returns the i-th value of a shape, and its text.
func (s shape) value(i int) (parquet.Value, string) {
	number := int64(i%23-11) * 1_000_003
	text := fmt.Sprintf("value %d %s", i%23, strings.Repeat("x", i%23))
	switch s.kind {
	case parquet.Boolean:
		return parquet.BooleanValue(i%3 == 0), strconv.FormatBool(i%3 == 0)
	case parquet.Int32:
		return parquet.Int32Value(int32(number)), strconv.FormatInt(number, 10)
	case parquet.Int64:
		return parquet.Int64Value(number << 20), strconv.FormatInt(number<<20, 10)
	case parquet.Int96:
		v := deprecated.Int96{uint32(i%23 + 1), 0, 2440588}
		return parquet.Int96Value(v), time.Unix(0, int64(i%23+1)).UTC().Format(time.RFC3339Nano)
	case parquet.Float:
		return parquet.FloatValue(float32(number) / 8), strconv.FormatFloat(float64(float32(number)/8), 'f', -1, 32)
	case parquet.Double:
		return parquet.DoubleValue(float64(number) / 8), strconv.FormatFloat(float64(number)/8, 'f', -1, 64)
	case parquet.ByteArray:
		return parquet.ByteArrayValue([]byte(text)), text
	default:
		raw := []byte(text[len("value "):])[:fixedWidth-1]
		raw = append(raw, byte(i%23))
		return parquet.FixedLenByteArrayValue(raw), hex.EncodeToString(raw)
	}
}

// marker returns the value in files of markers, and its text: all its bytes are
// the letter M. No other file has it.
func (s shape) marker() (parquet.Value, string) {
	const word = 0x4D4D4D4D
	long := uint64(word)<<32 | word
	switch s.kind {
	case parquet.Boolean:
		return parquet.BooleanValue(true), ""
	case parquet.Int32:
		return parquet.Int32Value(word), strconv.Itoa(word)
	case parquet.Int64:
		return parquet.Int64Value(int64(long)), strconv.FormatUint(long, 10)
	case parquet.Int96:
		return parquet.Int96Value(deprecated.Int96{word, word, word}), "3554706" // its year
	case parquet.Float:
		f := math.Float32frombits(word)
		return parquet.FloatValue(f), strconv.FormatFloat(float64(f), 'f', -1, 32)
	case parquet.Double:
		f := math.Float64frombits(long)
		return parquet.DoubleValue(f), strconv.FormatFloat(f, 'f', -1, 64)
	case parquet.ByteArray:
		return parquet.ByteArrayValue(bytes.Repeat([]byte("M"), 24)), "MMMM"
	default:
		raw := bytes.Repeat([]byte("M"), fixedWidth)
		return parquet.FixedLenByteArrayValue(raw), hex.EncodeToString(raw)
	}
}

// write writes rows values with nulls among them. value is s.value or s.marker.
func (s shape) write(t testing.TB, rows int, value func(i int) (parquet.Value, string)) (data []byte, texts []string) {
	t.Helper()
	kinds := map[parquet.Kind]parquet.Type{
		parquet.Boolean: parquet.BooleanType, parquet.Int32: parquet.Int32Type, parquet.Int64: parquet.Int64Type, parquet.Int96: parquet.Int96Type,
		parquet.Float: parquet.FloatType, parquet.Double: parquet.DoubleType, parquet.ByteArray: parquet.String().Type(),
		parquet.FixedLenByteArray: parquet.FixedLenByteArrayType(fixedWidth),
	}
	node := parquet.Encoded(parquet.Leaf(kinds[s.kind]), s.encoding)
	switch s.nulls {
	case "optional":
		node = parquet.Optional(node)
	case "list":
		node = parquet.Repeated(node)
	}
	var b bytes.Buffer
	w := parquet.NewWriter(&b, parquet.NewSchema("x", parquet.Group{"v": node}), parquet.Compression(s.codec), parquet.DataPageVersion(s.version))
	for i := range rows {
		v, text := value(i)
		row, want := parquet.Row{v.Level(0, 0, 0)}, text
		switch s.nulls {
		case "optional":
			if row[0] = v.Level(0, 1, 0); i%5 == 3 {
				row[0], want = parquet.NullValue().Level(0, 0, 0), ""
			}
		case "list":
			if s.kind != parquet.Boolean && s.kind != parquet.Int32 && s.kind != parquet.Int64 && s.kind != parquet.Float && s.kind != parquet.Double {
				text = strconv.Quote(text)
			}
			switch row[0] = v.Level(0, 1, 0); i % 5 {
			case 3:
				row[0], want = parquet.NullValue().Level(0, 0, 0), "[]"
			case 4:
				row, want = append(row, v.Level(1, 1, 0)), "["+text+","+text+"]"
			default:
				want = "[" + text + "]"
			}
		}
		if _, err := w.WriteRows([]parquet.Row{row}); err != nil {
			t.Fatalf("%v: %v", s, err)
		}
		texts = append(texts, want)
	}
	if err := w.Close(); err != nil {
		t.Fatalf("%v: %v", s, err)
	}
	return b.Bytes(), texts
}

// read returns the texts of the only column up to the first error.
func read(t testing.TB, data []byte) (texts []string, err error) {
	t.Helper()
	f, err := columnar.Open(bytes.NewReader(data), int64(len(data)), columnar.Limits{MaxPageBytes: 1 << 20, MaxPageValues: 1 << 16})
	if err == nil && len(f.Columns()) > 0 {
		r := f.Rows(0)
		defer r.Close()
		for err == nil && len(texts) < 1<<16 {
			if err = r.Next(); err == nil {
				var text string
				if text, err = r.Text(0); err == nil {
					texts = append(texts, text)
				}
			}
		}
	}
	var known *columnar.FormatError
	if errors.Is(err, io.EOF) {
		err = nil
	} else if err != nil && !errors.As(err, &known) {
		t.Fatalf("not a FormatError: %v", err)
	}
	return texts, err
}

// page is a page of a file that a test changes.
type page struct {
	head format.PageHeader
	body []byte
}

func (p *page) data() bool { return p.head.Type != format.DictionaryPage }

// values returns the number of values that the page claims.
func (p *page) values() *int32 {
	switch p.head.Type {
	case format.DictionaryPage:
		return &p.head.DictionaryPageHeader.V.NumValues
	case format.DataPage:
		return &p.head.DataPageHeader.V.NumValues
	default:
		return &p.head.DataPageHeaderV2.V.NumValues
	}
}

// rewrite splits a file with one column and one row group into footer and
// pages, lets change modify them, and builds the file again with correct sizes
// and offsets.
func rewrite(t testing.TB, data []byte, change func(meta *format.FileMetaData, pages []page)) []byte {
	t.Helper()
	protocol := new(thrift.CompactProtocol)
	length := int(binary.LittleEndian.Uint32(data[len(data)-8:]))
	var meta format.FileMetaData
	must.Succeed(t, thrift.Unmarshal(protocol, data[len(data)-8-length:len(data)-8], &meta))
	column := &meta.RowGroups[0].Columns[0]
	m := &column.MetaData
	at := m.DataPageOffset
	if m.DictionaryPageOffset != 0 {
		at = m.DictionaryPageOffset
	}
	var pages []page
	for end := at + m.TotalCompressedSize; at < end; {
		var p page
		r := bytes.NewReader(data[at:end])
		must.Succeed(t, thrift.NewDecoder(protocol.NewReader(r)).Decode(&p.head))
		at = end - int64(r.Len())
		p.body = bytes.Clone(data[at : at+int64(p.head.CompressedPageSize)])
		at += int64(len(p.body))
		p.head.CRC = 0
		pages = append(pages, p)
	}
	change(&meta, pages)
	out := []byte("PAR1")
	m.DictionaryPageOffset, m.DataPageOffset = 0, 4
	for _, p := range pages {
		p.head.CompressedPageSize = int32(len(p.body))
		head := must.Get(thrift.Marshal(protocol, &p.head))(t)
		if p.data() && m.DictionaryPageOffset == 0 && len(out) > 4 {
			m.DictionaryPageOffset, m.DataPageOffset = 4, int64(len(out))
		}
		out = append(append(out, head...), p.body...)
	}
	m.TotalCompressedSize = int64(len(out) - 4)
	column.ColumnIndexOffset, column.ColumnIndexLength, column.OffsetIndexOffset, column.OffsetIndexLength = 0, 0, 0, 0
	footer := must.Get(thrift.Marshal(protocol, &meta))(t)
	out = append(out, footer...)
	return append(binary.LittleEndian.AppendUint32(out, uint32(len(footer))), "PAR1"...)
}

// lie changes a file so that its header or footer makes a false claim. apply
// returns false if the change does not fit the file.
type lie struct {
	name     string
	apply    func(s shape, meta *format.FileMetaData, pages []page) bool
	harmless bool // a reader may still read the values, or the first ones
	schema   bool // the change is about the column in all row groups
}

// claim makes the last page and the footer claim more values, or fewer if more
// is negative.
func claim(more int) func(shape, *format.FileMetaData, []page) bool {
	return func(_ shape, meta *format.FileMetaData, pages []page) bool {
		*pages[len(pages)-1].values() += int32(more)
		g := &meta.RowGroups[0]
		g.NumRows += int64(more)
		g.Columns[0].MetaData.NumValues += int64(more)
		if p := &pages[len(pages)-1].head; p.DataPageHeaderV2.Valid {
			p.DataPageHeaderV2.V.NumRows += int32(more)
		}
		return true
	}
}

// size makes the last page or the dictionary claim a wrong size after
// decompression.
func size(first bool, more int) func(shape, *format.FileMetaData, []page) bool {
	return func(s shape, _ *format.FileMetaData, pages []page) bool {
		p := &pages[len(pages)-1]
		if first {
			p = &pages[0]
		}
		p.head.UncompressedPageSize += int32(more)
		return !first || s.dictionary()
	}
}

// v2 changes the header of the last page if the page has version 2.
func v2(change func(h *format.DataPageHeaderV2)) func(shape, *format.FileMetaData, []page) bool {
	return func(_ shape, _ *format.FileMetaData, pages []page) bool {
		h := &pages[len(pages)-1].head.DataPageHeaderV2
		change(&h.V)
		return h.Valid
	}
}

func lies() []lie {
	cut := func(n int) func(shape, *format.FileMetaData, []page) bool {
		return func(_ shape, _ *format.FileMetaData, pages []page) bool {
			p := &pages[len(pages)-1]
			p.body = p.body[:max(len(p.body)-n, 0)]
			return true
		}
	}
	return []lie{
		{name: "16 values more", apply: claim(16)},
		{name: "500 values more", apply: claim(500)},
		{name: "16 values fewer", apply: claim(-16), harmless: true},
		{name: "a page has a value more than the footer says", apply: func(_ shape, _ *format.FileMetaData, pages []page) bool {
			*pages[len(pages)-1].values()++
			return true
		}},
		{name: "a page has a value fewer than the footer says", apply: func(_ shape, _ *format.FileMetaData, pages []page) bool {
			*pages[len(pages)-1].values()--
			return true
		}},
		{name: "the footer has 9 rows more", apply: func(_ shape, meta *format.FileMetaData, _ []page) bool {
			meta.RowGroups[0].NumRows += 9
			return true
		}},
		{name: "the footer has 9 rows fewer", apply: func(_ shape, meta *format.FileMetaData, _ []page) bool {
			meta.RowGroups[0].NumRows -= 9
			return true
		}},
		{name: "the footer has 9 values more", apply: func(_ shape, meta *format.FileMetaData, _ []page) bool {
			meta.RowGroups[0].Columns[0].MetaData.NumValues += 9
			return true
		}},
		{name: "a byte more", apply: size(false, 1)},
		{name: "10,000 bytes more", apply: size(false, 10_000)},
		{name: "a byte fewer", apply: size(false, -1)},
		{name: "a dictionary has a byte more", apply: size(true, 1)},
		{name: "a dictionary has 10,000 bytes more", apply: size(true, 10_000)},
		{name: "a dictionary has a byte fewer", apply: size(true, -1)},
		{name: "a dictionary has a value more", apply: func(s shape, _ *format.FileMetaData, pages []page) bool {
			*pages[0].values()++
			return s.dictionary()
		}},
		{name: "a dictionary has a value fewer", apply: func(s shape, _ *format.FileMetaData, pages []page) bool {
			*pages[0].values()--
			return s.dictionary()
		}},
		{name: "the dictionary is missing", apply: func(s shape, meta *format.FileMetaData, pages []page) bool {
			pages[0] = pages[len(pages)-1]
			*pages[0].values() = 0
			pages[0].body = nil
			pages[0].head.UncompressedPageSize = 0
			return s.dictionary()
		}},
		{name: "two nulls more", apply: v2(func(h *format.DataPageHeaderV2) { h.NumNulls += 2 })},
		{name: "a row more", apply: v2(func(h *format.DataPageHeaderV2) { h.NumRows++ })},
		{name: "a byte of levels more", apply: func(s shape, _ *format.FileMetaData, pages []page) bool {
			h := &pages[len(pages)-1].head.DataPageHeaderV2
			h.V.DefinitionLevelsByteLength++
			return h.Valid && s.nulls != "required"
		}},
		{name: "a byte of levels fewer", apply: func(s shape, _ *format.FileMetaData, pages []page) bool {
			h := &pages[len(pages)-1].head.DataPageHeaderV2
			h.V.DefinitionLevelsByteLength--
			return h.Valid && s.nulls != "required"
		}},
		{name: "the last byte is cut off", apply: cut(1), harmless: true},
		{name: "the last 30 bytes are cut off", apply: cut(30)},
		{name: "all is cut off", apply: cut(1 << 20)},
		{name: "another type", apply: func(_ shape, meta *format.FileMetaData, _ []page) bool {
			m := &meta.RowGroups[0].Columns[0].MetaData
			m.Type = (m.Type + 1) % 8
			return true
		}},
		{name: "a type that no reader knows", schema: true, apply: func(_ shape, meta *format.FileMetaData, _ []page) bool {
			meta.RowGroups[0].Columns[0].MetaData.Type = 8
			meta.Schema[1].Type.V = 8
			return true
		}},
	}
}

// fill puts markers into all memory that a reader may keep between files: it
// reads files of the same shape, of about the next file's size and larger.
func fill(t testing.TB, markers [][]byte) {
	for _, m := range markers {
		if texts, err := read(t, m); err != nil || len(texts) == 0 {
			t.Fatalf("a file of markers: %d rows, %v", len(texts), err)
		}
	}
}

// TestPagesHoldWhatTheyClaim reads good files, cut files and files with false
// claims, in every codec, encoding, type and nullability. Before each file it
// reads a file of markers. Good files must return the written values, false
// claims must give an error that names column and row group, and no marker may
// come out: a marker would be a value of another file, which may belong to
// another account.
func TestPagesHoldWhatTheyClaim(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, s := range shapes() {
		t.Run(s.String(), func(t *testing.T) {
			good, want := s.write(t, 60, s.value)
			_, marker := s.marker()
			var markers [][]byte
			for _, rows := range []int{60, 700} {
				m, _ := s.write(t, rows, func(int) (parquet.Value, string) { return s.marker() })
				markers = append(markers, m)
			}
			check := func(what string, data []byte) (texts []string, err error) {
				fill(t, markers)
				texts, err = read(t, data)
				if all := strings.Join(texts, " "); marker != "" && strings.Contains(all, marker) || strings.Contains(fmt.Sprint(err), "MMM") {
					t.Errorf("%s: a value of another file came out: %.200q, %v", what, all, err)
				}
				return texts, err
			}
			if texts, err := check("good", good); err != nil || !slices.Equal(texts, want) {
				t.Fatalf("%v, got %q, want %q", err, texts, want)
			}
			if texts, err := check("written again", rewrite(t, good, func(*format.FileMetaData, []page) {})); err != nil || !slices.Equal(texts, want) {
				t.Fatalf("written again: %v, got %q, want %q", err, texts, want)
			}
			for _, l := range lies() {
				fits := true
				data := rewrite(t, good, func(meta *format.FileMetaData, pages []page) { fits = l.apply(s, meta, pages) })
				if !fits {
					continue
				}
				texts, err := check(l.name, data)
				switch {
				case err == nil && (!l.harmless || !slices.Equal(texts, want[:min(len(texts), len(want))])):
					t.Errorf("%s: %d values were read: %.300q", l.name, len(texts), texts)
				case err != nil && (!strings.Contains(err.Error(), `olumn "v"`) || !strings.Contains(err.Error(), "row group 0") && !l.schema):
					t.Errorf("%s: the message does not name column and row group: %v", l.name, err)
				case err != nil && strings.Contains(err.Error(), "runtime"):
					t.Errorf("%s: the message is for programmers: %v", l.name, err)
				}
			}
			for range 12 {
				check("cut", good[:random.IntN(len(good))])
				bad := bytes.Clone(good)
				for range 1 + random.IntN(3) {
					bad[random.IntN(len(bad))] = byte(random.Uint32())
				}
				check("damaged", bad)
			}
		})
	}
}

// TestOddFiles reads files of writers that do not follow the format's
// description. It also checks that the errors for refused files help the person
// who wrote the file.
func TestOddFiles(t *testing.T) {
	t.Parallel()
	text := func(codec compress.Codec, e encoding.Encoding, nulls string, version int) shape {
		return shape{codec, e, parquet.ByteArray, nulls, version}
	}
	last := func(pages []page) *page { return &pages[len(pages)-1] }
	column := func(meta *format.FileMetaData) *format.ColumnMetaData { return &meta.RowGroups[0].Columns[0].MetaData }
	tests := map[string]struct {
		shape  shape
		change func(meta *format.FileMetaData, pages []page)
		nulls  bool   // all values are null
		want   string // an error, or empty if the file can be read
	}{
		"a page of nulls without compressed bytes": {
			shape: text(&parquet.Snappy, &parquet.Plain, "optional", 2), nulls: true,
			change: func(_ *format.FileMetaData, pages []page) {
				p := last(pages)
				p.body = p.body[:p.head.DataPageHeaderV2.V.DefinitionLevelsByteLength]
				p.head.UncompressedPageSize = int32(len(p.body))
			},
		},
		"a root with a type": {
			shape:  text(&parquet.Zstd, &parquet.RLEDictionary, "required", 1),
			change: func(meta *format.FileMetaData, _ []page) { meta.Schema[0].Type.Set(format.Int32) },
		},
		"an unknown number of nulls": {
			shape:  text(&parquet.Gzip, &parquet.Plain, "optional", 2),
			change: func(_ *format.FileMetaData, pages []page) { last(pages).head.DataPageHeaderV2.V.NumNulls = -1 },
		},
		"values counted as rows": {
			shape: text(&parquet.Snappy, &parquet.RLEDictionary, "list", 2),
			change: func(_ *format.FileMetaData, pages []page) {
				h := &last(pages).head.DataPageHeaderV2.V
				h.NumRows = h.NumValues
			},
		},
		"values that are padded": {
			shape: text(&parquet.Uncompressed, &parquet.Plain, "required", 1),
			change: func(_ *format.FileMetaData, pages []page) {
				p := last(pages)
				p.body = append(p.body, make([]byte, 8)...)
				p.head.UncompressedPageSize += 8
			},
		},
		"two members of Gzip in one page": {
			shape: text(&parquet.Gzip, &parquet.Plain, "required", 1),
			change: func(_ *format.FileMetaData, pages []page) {
				p := last(pages)
				plain, err := parquet.Gzip.Decode(nil, p.body)
				if err != nil {
					t.Error(err)
				}
				p.body = nil
				for _, half := range [][]byte{plain[:100], plain[100:]} {
					member, err := parquet.Gzip.Encode(nil, half)
					if err != nil {
						t.Error(err)
					}
					p.body = append(p.body, member...)
				}
			},
		},
		"an uncompressed page in a compressed column": {
			shape: text(&parquet.Snappy, &parquet.Plain, "required", 2),
			change: func(_ *format.FileMetaData, pages []page) {
				p := last(pages)
				plain, err := parquet.Snappy.Decode(nil, p.body)
				if err != nil {
					t.Error(err)
				}
				p.body = plain
				p.head.DataPageHeaderV2.V.IsCompressed.Set(false)
			},
		},
		"levels of the first writers": {
			shape: text(&parquet.Uncompressed, &parquet.Plain, "optional", 1),
			change: func(_ *format.FileMetaData, pages []page) {
				p := last(pages)
				values := p.body[4+binary.LittleEndian.Uint32(p.body):]
				p.body = make([]byte, 8, 8+len(values))
				for i := range 60 {
					if i%5 != 3 {
						p.body[i/8] |= 0x80 >> (i % 8)
					}
				}
				p.body = append(p.body, values...)
				p.head.UncompressedPageSize = int32(len(p.body))
				p.head.DataPageHeader.V.DefinitionLevelEncoding = format.BitPacked
			},
		},
		"Hadoop's LZ4": {
			shape:  text(&parquet.Lz4Raw, &parquet.Plain, "required", 1),
			change: func(meta *format.FileMetaData, _ []page) { column(meta).Codec = format.Lz4 },
			want:   `Column "v" of the Parquet file is compressed with LZ4, which is not supported. Write it with Snappy, Zstandard, Gzip or LZ4_RAW.`,
		},
		"a VARIANT": {
			shape:  text(&parquet.Snappy, &parquet.Plain, "required", 1),
			change: func(meta *format.FileMetaData, _ []page) { meta.Schema[1].LogicalType.Value = new(format.VariantType) },
			want:   `Column "v" of the Parquet file has the type VARIANT, which is not supported. Write it as JSON.`,
		},
		"an unknown type": {
			shape: text(&parquet.Snappy, &parquet.Plain, "required", 1),
			change: func(meta *format.FileMetaData, _ []page) {
				meta.Schema[1].Type.V, column(meta).Type = 9, 9
			},
			want: `Column "v" of the Parquet file has the physical type 9, which is not known. Write it as plain text.`,
		},
		"an unsupported encoding": {
			shape: text(&parquet.Snappy, &parquet.Plain, "required", 1),
			change: func(_ *format.FileMetaData, pages []page) {
				last(pages).head.DataPageHeader.V.Encoding = format.ByteStreamSplit
			},
			want: `The Parquet file is corrupt: page 0 of column "v" in row group 0, at byte 4, cannot be read: the encoding BYTE_STREAM_SPLIT of BYTE_ARRAY is not supported.`,
		},
		"a wrong checksum": {
			shape:  text(&parquet.Snappy, &parquet.Plain, "required", 1),
			change: func(_ *format.FileMetaData, pages []page) { last(pages).head.CRC = 1 },
			want:   `The Parquet file is corrupt: page 0 of column "v" in row group 0, at byte 4, cannot be read: the page's checksum is wrong.`,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			value := test.shape.value
			data, want := test.shape.write(t, 60, value)
			if test.nulls {
				data, want = nullsAlone(t), make([]string, 60)
			}
			texts, err := read(t, rewrite(t, data, test.change))
			if test.want != "" {
				if err == nil || err.Error() != test.want {
					t.Errorf("got %v, want %s", err, test.want)
				}
				return
			}
			if err != nil || !slices.Equal(texts, want) {
				t.Errorf("%v, got %q, want %q", err, texts, want)
			}
		})
	}
}

// nullsAlone returns a file of 60 nulls in one page of version 2, compressed
// with Snappy.
func nullsAlone(t *testing.T) []byte {
	t.Helper()
	type row struct {
		V *string `parquet:"v,optional"`
	}
	return foreign(t, make([]row, 60), parquet.Compression(&parquet.Snappy), parquet.DataPageVersion(2))
}

// TestOddFooters reads files with a footer that the current format does not describe.
func TestOddFooters(t *testing.T) {
	t.Parallel()
	tests := map[string]struct{ whole, changed string }{
		"a key without a value": {"\x18\x02k!\x18\x02v!\x00", "\x18\x02k!\x00"},
		// Field 200 in place of field 1 (STRING) of the union.
		"a logical type of a newer format": {"\x4c\x1c\x00\x00\x00", "\x4c\x0c\x90\x03\x00\x00\x00"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			data := foreign(t, pairs(3), parquet.KeyValueMetadata("k!", "v!"))
			length := binary.LittleEndian.Uint32(data[len(data)-8:])
			if bytes.Count(data, []byte(test.whole)) != 1 {
				t.Fatal("the footer does not have what the test changes")
			}
			data = bytes.Replace(data, []byte(test.whole), []byte(test.changed), 1)
			binary.LittleEndian.PutUint32(data[len(data)-8:], length+uint32(len(test.changed))-uint32(len(test.whole)))
			if got := texts(t, open(t, data), "text"); len(got) != 3 || got[1] != "text 1" {
				t.Errorf("got %q", got)
			}
		})
	}
}

// FuzzRead reads random files. Before each file it reads a file of markers, as
// TestPagesHoldWhatTheyClaim does.
func FuzzRead(f *testing.F) {
	for _, seed := range mutants(f) {
		f.Add(seed)
	}
	for i, s := range shapes() {
		if i%7 == 0 { // 7 does not divide the number of codecs, versions or nullabilities
			good, _ := s.write(f, 30, s.value)
			f.Add(good)
		}
	}
	s := shape{&parquet.Snappy, &parquet.DeltaLengthByteArray, parquet.ByteArray, "list", 1}
	markers, _ := s.write(f, 700, func(int) (parquet.Value, string) { return s.marker() })
	f.Fuzz(func(t *testing.T, data []byte) {
		fill(t, [][]byte{markers})
		text := readWhole(t, data)
		if strings.Contains(text, strings.Repeat("M", 12)) && !bytes.ContainsRune(data, 'M') {
			t.Fatalf("a value of another file came out: %.200q", text)
		}
	})
}

package columnar_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/compress"
	"github.com/parquet-go/parquet-go/compress/lz4"
	"github.com/parquet-go/parquet-go/deprecated"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/internal/columnar"
	"github.com/rowmill/rowmill/internal/must"
)

// foreign writes rows with another program.
func foreign[T any](t testing.TB, rows []T, options ...parquet.WriterOption) []byte {
	t.Helper()
	var b bytes.Buffer
	w := parquet.NewGenericWriter[T](&b, options...)
	must.Get(w.Write(rows))(t)
	must.Succeed(t, w.Close())
	return b.Bytes()
}

func open(t testing.TB, data []byte) *columnar.File {
	t.Helper()
	f := must.Get(columnar.Open(bytes.NewReader(data), int64(len(data)), columnar.Limits{}))(t)
	return f
}

// texts reads the column called name.
func texts(t testing.TB, f *columnar.File, name string) (out []string) {
	t.Helper()
	for i, c := range f.Columns() {
		if c.Name != name {
			continue
		}
		rows := f.Rows(i)
		defer rows.Close()
		for {
			err := rows.Next()
			if errors.Is(err, io.EOF) {
				return out
			}
			must.Succeed(t, err)
			text, err := rows.Text(0)
			must.Succeed(t, err)
			out = append(out, text)
		}
	}
	t.Fatalf("no column %q", name)
	return nil
}

type everyType struct {
	Text      string           `parquet:"text"`
	Maybe     *string          `parquet:"maybe,optional"`
	Int8      int8             `parquet:"int8"`
	Int64     int64            `parquet:"int64"`
	Uint32    uint32           `parquet:"uint32"`
	Uint64    uint64           `parquet:"uint64"`
	Float     float32          `parquet:"float"`
	Double    float64          `parquet:"double"`
	Bool      bool             `parquet:"bool"`
	Decimal   int64            `parquet:"decimal,decimal(2:18)"`
	Date      int32            `parquet:"date,date"`
	Time      int64            `parquet:"time,time(microsecond)"`
	Stamp     time.Time        `parquet:"stamp,timestamp(nanosecond)"`
	Local     int64            `parquet:"local,timestamp(millisecond:local)"`
	UUID      uuid.UUID        `parquet:"uuid,uuid"`
	JSON      string           `parquet:"json,json"`
	Enum      string           `parquet:"enum,enum"`
	Fixed     [3]byte          `parquet:"fixed"`
	Int96     deprecated.Int96 `parquet:"int96"`
	Dict      string           `parquet:"dict,dict"`
	Delta     string           `parquet:"delta,delta"`
	DeltaInt  int32            `parquet:"deltaint,delta"`
	List      []string         `parquet:"list,list"`
	Map       map[string]int32 `parquet:"map"`
	Group     inner            `parquet:"group"`
	Repeated  []float64        `parquet:"repeated"`
	ListOfOpt []*inner         `parquet:"listofopt,list"`
}

type inner struct {
	A string   `parquet:"a"`
	B *float64 `parquet:"b,optional"`
	C []int64  `parquet:"c,list"`
}

func TestEveryTypeBecomesText(t *testing.T) {
	t.Parallel()
	at := time.Date(2024, 2, 29, 23, 59, 58, 123456000, time.UTC)
	half := 0.5
	word := "word"
	rows := []everyType{{
		Text: "line\r\nbreak, \"quote\" é", Maybe: &word, Int8: -8, Int64: math.MinInt64, Uint32: math.MaxUint32, Uint64: math.MaxUint64,
		Float: 0.1, Double: 1e300, Bool: true, Decimal: -5, Date: 19782, Time: 10_800_000_004, Stamp: at, Local: at.UnixMilli(),
		UUID: uuid.MustParse("00112233-4455-6677-8899-aabbccddeeff"), JSON: `{"a": 1}`, Enum: "RED", Fixed: [3]byte{0xDE, 0xAD, 0x01},
		Int96: deprecated.Int96{1, 0, 2440589}, Dict: "d", Delta: "e", DeltaInt: -7,
		List: []string{"x", "y\n\x01\""}, Map: map[string]int32{"k": 3},
		Group: inner{A: "g", B: &half, C: []int64{1, -2}}, Repeated: []float64{1.5, math.NaN(), 1e21},
		ListOfOpt: []*inner{{A: "l"}, {A: "m", B: &half}},
	}, {
		Float: float32(math.NaN()), Double: math.Inf(-1), Date: -1, Stamp: time.Unix(0, -1).UTC(),
	}}
	f := open(t, foreign(t, rows))
	want := map[string][]string{
		"text":     {"line\r\nbreak, \"quote\" é", ""},
		"maybe":    {"word", ""},
		"int8":     {"-8", "0"},
		"int64":    {"-9223372036854775808", "0"},
		"uint32":   {"4294967295", "0"},
		"uint64":   {"18446744073709551615", "0"},
		"float":    {"0.1", ""},
		"double":   {"1e+300", "-Inf"},
		"bool":     {"true", "false"},
		"decimal":  {"-0.05", "0.00"},
		"date":     {"2024-02-29", "1969-12-31"},
		"time":     {"03:00:00.000004", "00:00:00"},
		"stamp":    {"2024-02-29T23:59:58.123456Z", "1969-12-31T23:59:59.999999999Z"},
		"local":    {"2024-02-29T23:59:58.123", "1970-01-01T00:00:00"},
		"uuid":     {"00112233-4455-6677-8899-aabbccddeeff", "00000000-0000-0000-0000-000000000000"},
		"json":     {`{"a": 1}`, ""},
		"enum":     {"RED", ""},
		"fixed":    {"dead01", "000000"},
		"int96":    {"1970-01-02T00:00:00.000000001Z", "-4713-11-24T00:00:00Z"},
		"dict":     {"d", ""},
		"delta":    {"e", ""},
		"deltaint": {"-7", "0"},
		"list":     {`["x","y\n\u0001\""]`, `[]`},
		"map":      {`{"k":3}`, `{}`},
		"group":    {`{"a":"g","b":0.5,"c":[1,-2]}`, `{"a":"","b":null,"c":[]}`},
		"repeated": {`[1.5,null,1e+21]`, `[]`},
		"listofopt": {
			`[{"a":"l","b":null,"c":[]},{"a":"m","b":0.5,"c":[]}]`, `[]`,
		},
	}
	if len(want) != len(f.Columns()) {
		t.Fatalf("%d columns, want %d", len(f.Columns()), len(want))
	}
	for name, cells := range want {
		if diff := cmp.Diff(cells, texts(t, f, name)); diff != "" {
			t.Errorf("column %s (-want +got):\n%s", name, diff)
		}
	}
}

func TestIDsKeepTheirType(t *testing.T) {
	t.Parallel()
	word := "word"
	f := open(t, foreign(t, []everyType{
		{Maybe: &word, Int8: -8, Uint64: math.MaxUint64, Float: 0.5, Bool: true, Date: 1},
		{Float: float32(math.NaN())},
	}))
	position := map[string]int{}
	for i, c := range f.Columns() {
		position[c.Name] = i
	}
	want := map[string][]rowmill.ID{
		"maybe":  {{Kind: rowmill.IDString, Text: "word"}, {}},
		"int8":   {{Kind: rowmill.IDLeafValue, Text: "\xf8\xff\xff\xff"}, {Kind: rowmill.IDLeafValue, Text: "\x00\x00\x00\x00"}},
		"uint64": {{Kind: rowmill.IDUint, Int: -1}, {Kind: rowmill.IDUint}},
		"float":  {{Kind: rowmill.IDLeafValue, Text: "\x00\x00\x00?"}, {}},
		"bool":   {{Kind: rowmill.IDBool, Int: 1}, {Kind: rowmill.IDBool}},
		"date":   {{Kind: rowmill.IDLeafValue, Text: "\x01\x00\x00\x00"}, {Kind: rowmill.IDLeafValue, Text: "\x00\x00\x00\x00"}},
	}
	for name, ids := range want {
		rows := f.Rows(position[name])
		for i, id := range ids {
			must.Succeed(t, rows.Next())
			got, err := rows.ID(0)
			if err != nil || got != id {
				t.Errorf("%s, row %d: got %+v (%v), want %+v", name, i, got, err, id)
			}
		}
		if kind, err := f.IDType(position[name]); err != nil || kind.IDKind != ids[0].Kind {
			t.Errorf("%s: kind %d, %v, want %d", name, kind.IDKind, err, ids[0].Kind)
		}
	}
}

type pair struct {
	ID   *int64 `parquet:"id,optional"`
	Text string `parquet:"text,dict"`
}

func pairs(n int) []pair {
	rows := make([]pair, n)
	for i := range rows {
		id := int64(i)
		if rows[i].Text = fmt.Sprintf("text %d", i%97); i%5 != 0 {
			rows[i].ID = &id
		}
	}
	return rows
}

func TestEveryCodecPageVersionAndManyRowGroupsInLockStep(t *testing.T) {
	t.Parallel()
	codecs := map[string]compress.Codec{
		"none": &parquet.Uncompressed, "snappy": &parquet.Snappy, "gzip": &parquet.Gzip,
		"zstd": &parquet.Zstd, "lz4": &parquet.Lz4Raw, "brotli": &parquet.Brotli,
	}
	for name, codec := range codecs {
		for _, version := range []int{1, 2} {
			t.Run(fmt.Sprint(name, version), func(t *testing.T) {
				t.Parallel()
				rows := pairs(5_000)
				f := open(t, foreign(t, rows, parquet.Compression(codec), parquet.DataPageVersion(version),
					parquet.PageBufferSize(700), parquet.MaxRowsPerRowGroup(1_234)))
				r := f.Rows(1, 0)
				defer r.Close()
				for i, row := range rows {
					must.Succeed(t, r.Next())
					text, err := r.Text(0)
					if err != nil || text != row.Text {
						t.Fatalf("row %d: got %q, %v", i, text, err)
					}
					id, err := r.ID(1)
					if err != nil || (id.Kind == rowmill.IDNull) != (row.ID == nil) || row.ID != nil && id.Int != *row.ID {
						t.Fatalf("row %d: got id %v, %v", i, id, err)
					}
				}
				if err := r.Next(); !errors.Is(err, io.EOF) {
					t.Fatalf("after the last row: %v", err)
				}
			})
		}
	}
}

func TestBadFilesAreNamed(t *testing.T) {
	t.Parallel()
	good := foreign(t, pairs(100))
	cut := func(n int) []byte { return good[:len(good)-n] }
	footer := func(length uint32) []byte {
		data := bytes.Clone(good)
		binary.LittleEndian.PutUint32(data[len(data)-8:], length)
		return data
	}
	hostile := append([]byte("PAR1\x29\xfc\xff\xff\xff\xff\x07"), "\x07\x00\x00\x00PAR1"...) // a list of 2^31 structures
	tests := map[string]struct {
		data []byte
		want string
	}{
		"empty":                {nil, "truncated"},
		"not Parquet":          {[]byte("id,text\n1,hello\n"), "not Parquet"},
		"end missing":          {cut(1), "end is missing"},
		"cut in the middle":    {cut(len(good) / 2), "end is missing"},
		"encrypted footer":     {append([]byte("PARE........"), "\x04\x00\x00\x00PARE"...), "encrypted"},
		"footer too long":      {footer(1 << 31), "does not fit"},
		"footer too short":     {footer(5), "corrupt"},
		"list of 2^31 structs": {hostile, "too many"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := columnar.Open(bytes.NewReader(test.data), int64(len(test.data)), columnar.Limits{})
			var format *columnar.FormatError
			if !errors.As(err, &format) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want a FormatError about %q", err, test.want)
			}
		})
	}
}

// TestBSONIsRefused reads files with a BSON column. The other columns must be
// readable.
func TestBSONIsRefused(t *testing.T) {
	t.Parallel()
	schema := parquet.NewSchema("x", parquet.Group{
		"doc": parquet.BSON(), "group": parquet.Group{"inner": parquet.BSON()}, "text": parquet.String(),
	})
	var b bytes.Buffer
	w := parquet.NewWriter(&b, schema)
	doc := parquet.ByteArrayValue([]byte("\x05\x00\x00\x00\x00"))
	row := parquet.Row{doc.Level(0, 0, 0), doc.Level(0, 0, 1), parquet.ByteArrayValue([]byte("hello")).Level(0, 0, 2)}
	must.Get(w.WriteRows([]parquet.Row{row}))(t)
	must.Succeed(t, w.Close())
	f := open(t, b.Bytes())
	for i, column := range []string{"doc", "group.inner"} {
		rows := f.Rows(2, i)
		err := rows.Next()
		want := fmt.Sprintf("Column %q of the Parquet file has the type BSON, which is not supported. Write it as JSON or as plain text.", column)
		var format *columnar.FormatError
		if !errors.As(err, &format) || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
		if err := rows.Close(); err != nil {
			t.Error(err)
		}
	}
	if got := texts(t, f, "text"); len(got) != 1 || got[0] != "hello" {
		t.Errorf("the other column is %q", got)
	}
}

func TestLimitsHoldWhateverPagesClaim(t *testing.T) {
	t.Parallel()
	zeros := make([]pair, 100)
	for i := range zeros {
		zeros[i].Text = fmt.Sprint(i) + strings.Repeat("0", 100_000)
	}
	for name, codec := range map[string]compress.Codec{
		"none": &parquet.Uncompressed, "snappy": &parquet.Snappy, "gzip": &parquet.Gzip,
		"zstd": &parquet.Zstd, "lz4": &lz4.Codec{Level: lz4.Fastest}, "brotli": &parquet.Brotli,
	} {
		data := foreign(t, zeros, parquet.Compression(codec), parquet.PageBufferSize(64<<20))
		f := must.Get(columnar.Open(bytes.NewReader(data), int64(len(data)), columnar.Limits{MaxPageBytes: 1 << 20}))(t)
		r := f.Rows(1)
		if err := r.Next(); err == nil || !strings.Contains(err.Error(), "smaller pages") {
			t.Errorf("%s: got %v", name, err)
		}
		r.Close()
	}
	data := foreign(t, pairs(5_000))
	f := must.Get(columnar.Open(bytes.NewReader(data), int64(len(data)), columnar.Limits{MaxPageValues: 100}))(t)
	if err := f.Rows(0).Next(); err == nil || !strings.Contains(err.Error(), "5000 values") {
		t.Errorf("got %v", err)
	}
	if _, err := columnar.Open(bytes.NewReader(data), int64(len(data)), columnar.Limits{MaxFooterBytes: 10}); err == nil {
		t.Error("a footer above the limit was accepted")
	}
}

// broken fails every read after the first ones.
type broken struct {
	*bytes.Reader
	reads int
}

var errDisk = errors.New("disk is broken")

func (b *broken) ReadAt(p []byte, at int64) (int, error) {
	if b.reads--; b.reads < 0 {
		return 0, errDisk
	}
	return b.Reader.ReadAt(p, at)
}

func TestReadErrorsAreNotTheFilesFault(t *testing.T) {
	t.Parallel()
	data := foreign(t, pairs(1_000))
	seen := 0
	for reads := 0; ; reads++ {
		f, err := columnar.Open(&broken{bytes.NewReader(data), reads}, int64(len(data)), columnar.Limits{})
		if err == nil {
			r := f.Rows(0, 1)
			for err == nil {
				err = r.Next()
			}
			r.Close()
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if !errors.Is(err, errDisk) {
			t.Fatalf("after %d reads: got %v", reads, err)
		}
		seen++
	}
	if seen < 5 {
		t.Fatalf("only %d reads failed", seen)
	}
}

// readWhole reads a whole file and returns its text. It accepts only
// FormatErrors.
func readWhole(t testing.TB, data []byte) string {
	var all strings.Builder
	limits := columnar.Limits{MaxPageBytes: 4 << 20, MaxPageValues: 1 << 16, MaxFooterBytes: 1 << 20}
	f, err := columnar.Open(bytes.NewReader(data), int64(len(data)), limits)
	for i := range 64 {
		if err != nil || i >= len(f.Columns()) {
			break
		}
		r := f.Rows(i)
		for range 10_000 {
			if err = r.Next(); err != nil {
				break
			}
			var text string
			if text, err = r.Text(0); err != nil {
				break
			}
			all.WriteString(text)
			if _, err = r.ID(0); err != nil {
				break
			}
		}
		r.Close()
		if errors.Is(err, io.EOF) {
			err = nil
		}
	}
	var format *columnar.FormatError
	if err != nil && !errors.As(err, &format) {
		t.Fatalf("not a FormatError: %v", err)
	}
	return all.String()
}

func mutants(t testing.TB) [][]byte {
	word := "w"
	return [][]byte{
		foreign(t, pairs(50), parquet.Compression(&parquet.Snappy)),
		foreign(t, pairs(50), parquet.Compression(&parquet.Lz4Raw), parquet.DataPageVersion(1)),
		foreign(t, pairs(50), parquet.Compression(&parquet.Zstd)),
		foreign(t, pairs(50), parquet.Compression(&parquet.Gzip)),
		foreign(t, []everyType{{Text: "a", Maybe: &word, List: []string{"b"}, Map: map[string]int32{"c": 1}}, {}}),
	}
}

func TestDamageNeverPanics(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	for _, good := range mutants(t) {
		readWhole(t, good)
		for range 400 {
			bad := bytes.Clone(good)
			for range 1 + random.IntN(4) {
				bad[random.IntN(len(bad))] = byte(random.Uint32())
			}
			readWhole(t, bad)
			readWhole(t, bad[:random.IntN(len(bad))])
		}
	}
}

func BenchmarkReadText(b *testing.B) {
	type row struct {
		Text string `parquet:"text,plain"`
	}
	rows := make([]row, 200_000)
	for i := range rows {
		rows[i].Text = fmt.Sprintf("%d %s", i, strings.Repeat("some words ", 27))
	}
	data := foreign(b, rows, parquet.Compression(&parquet.Snappy), parquet.MaxRowsPerRowGroup(50_000))
	f := open(b, data)
	b.ReportAllocs()
	for b.Loop() {
		r := f.Rows(0)
		n := 0
		for r.Next() == nil {
			text, err := r.Text(0)
			if err != nil || len(text) < 290 {
				b.Fatal(err)
			}
			n++
		}
		if n != len(rows) {
			b.Fatalf("%d rows", n)
		}
		r.Close()
	}
	b.ReportMetric(float64(len(rows))*float64(b.N)/b.Elapsed().Seconds(), "rows/s")
}

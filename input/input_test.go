package input_test

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"
	"github.com/parquet-go/parquet-go"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/input"
	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/internal/shard"
)

// read reads a file in its original form and in its stored form. Both must give
// the same rows.
func read(t testing.TB, data []byte, opts input.Options) (rows []rowmill.Row, kind rowmill.IDKind, err error) {
	t.Helper()
	rows, kind, err = readPlain(t, data, opts)
	var kept bytes.Buffer
	c := input.NewCompressor(&kept)
	for rest := data; len(rest) > 0; {
		n := must.Get(c.Write(rest[:min(len(rest), 300)]))(t)
		rest = rest[n:]
	}
	must.Succeed(t, c.Close())
	again, kindAgain, errAgain := readPlain(t, kept.Bytes(), opts)
	if fmt.Sprint(errAgain) != fmt.Sprint(err) || kindAgain != kind || !slices.Equal(again, rows) {
		t.Fatalf("the stored form has %d rows (kind %v), %v; the original form %d (%v), %v", len(again), kindAgain, errAgain, len(rows), kind, err)
	}
	return rows, kind, err
}

func readPlain(t testing.TB, data []byte, opts input.Options) (rows []rowmill.Row, kind rowmill.IDKind, err error) {
	t.Helper()
	r, err := input.Open(bytes.NewReader(data), int64(len(data)), opts)
	if err != nil {
		return nil, 0, err
	}
	rows, err = drain(r)
	must.Succeed(t, r.Close())
	return rows, r.IDType().IDKind, err
}

func drain(r input.Reader) (rows []rowmill.Row, err error) {
	for {
		var row rowmill.Row
		err := r.Next(&row)
		if errors.Is(err, io.EOF) {
			return rows, nil
		}
		if err != nil {
			return rows, err
		}
		rows = append(rows, row)
	}
}

func zip(t testing.TB, data []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	must.Get(w.Write(data))(t)
	must.Succeed(t, w.Close())
	return b.Bytes()
}

// zstandard returns data compressed with zstd.
func zstandard(t testing.TB, data []byte) []byte {
	t.Helper()
	return must.Get(zstd.NewWriter(nil))(t).EncodeAll(data, nil)
}

type record struct {
	Text string   `parquet:"text"`
	ID   int64    `parquet:"id"`
	Tags []string `parquet:"tags,list"`
}

func parquetFile(t testing.TB, rows ...record) []byte {
	t.Helper()
	var b bytes.Buffer
	must.Succeed(t, parquet.Write(&b, rows))
	return b.Bytes()
}

func TestCSVRowsKeepTheirBytesAndIDs(t *testing.T) {
	t.Parallel()
	data := []byte("id,text\r\n007,\"a\r\nb\"\r\n,NaN\r\n")
	want := []rowmill.Row{
		{Index: 0, Text: "a\r\nb", ID: rowmill.ID{Kind: rowmill.IDString, Text: "007"}},
		{Index: 1, Text: "NaN", ID: rowmill.ID{Kind: rowmill.IDString}},
	}
	for name, file := range map[string][]byte{"plain": data, "gzip": zip(t, data), "zstd": zstandard(t, data)} {
		got, kind, err := read(t, file, input.Options{Column: "text", IDColumn: "id"})
		if err != nil || kind != rowmill.IDString {
			t.Fatalf("%s: kind %d, %v", name, kind, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestFirstColumnIsTheDefault(t *testing.T) {
	t.Parallel()
	rows, kind, err := read(t, []byte("a,b\n1,2\n"), input.Options{})
	if err != nil || kind != rowmill.IDNull || len(rows) != 1 || rows[0].Text != "1" || rows[0].ID != (rowmill.ID{}) {
		t.Fatalf("got %v, kind %d, %v", rows, kind, err)
	}
}

func TestParquetRowsKeepTypedIDs(t *testing.T) {
	t.Parallel()
	file := parquetFile(t, record{Text: "a", ID: -7}, record{Text: "b", ID: 8, Tags: []string{"x"}})
	got, kind, err := read(t, file, input.Options{Column: "text", IDColumn: "id"})
	want := []rowmill.Row{
		{Index: 0, Text: "a", ID: rowmill.ID{Kind: rowmill.IDInt, Int: -7}},
		{Index: 1, Text: "b", ID: rowmill.ID{Kind: rowmill.IDInt, Int: 8}},
	}
	if err != nil || kind != rowmill.IDInt {
		t.Fatalf("kind %d, %v", kind, err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	nested, _, err := read(t, file, input.Options{Column: "tags"})
	if err != nil || nested[1].Text != `["x"]` {
		t.Errorf("nested column: %v, %v", nested, err)
	}
}

func TestErrorsOfBadFiles(t *testing.T) {
	t.Parallel()
	pq := parquetFile(t, record{Text: "a"})
	gz := zip(t, []byte("a,b\n1,2\n"))
	zs := zstandard(t, []byte("a,b\n1,2\n"))
	damaged := bytes.Clone(gz)
	damaged[len(damaged)-5] ^= 1
	tests := map[string]struct {
		data []byte
		opts input.Options
		want []string // parts of the message
	}{
		"empty":                     {nil, input.Options{}, []string{"empty"}},
		"no header":                 {[]byte("\n\n"), input.Options{}, []string{"no header"}},
		"no rows":                   {[]byte("a,b\n"), input.Options{}, []string{"no rows"}},
		"missing column":            {[]byte("a,b\n1,2\n"), input.Options{Column: "c"}, []string{`"c"`, "column_name", `"a", "b"`}},
		"missing id column":         {[]byte("a,b\n1,2\n"), input.Options{IDColumn: "c"}, []string{`"c"`, "id_column_name"}},
		"wrong case":                {[]byte("Text,b\n1,2\n"), input.Options{Column: "text"}, []string{`Did you mean "Text"?`}},
		"semicolons":                {[]byte("a;b\n1;2\n"), input.Options{Column: "c"}, []string{`"c"`, `"a", "b"`}},
		"default is the id":         {[]byte("a,b\n1,2\n"), input.Options{IDColumn: "a"}, []string{"first column", "id column"}},
		"text is the id":            {[]byte("a,b\n1,2\n"), input.Options{Column: "b", IDColumn: "b"}, []string{"same column"}},
		"ambiguous":                 {[]byte("a,b,a\n1,2,3\n"), input.Options{Column: "a"}, []string{"2 times", "columns 1, 3"}},
		"ambiguous default":         {[]byte("a,b,a\n1,2,3\n"), input.Options{}, []string{"2 times"}},
		"ragged":                    {[]byte("a,b\n1,2\n3\n"), input.Options{}, []string{"Line 3", "1 fields", "has 2"}},
		"unclosed":                  {[]byte("a,b\n1,2\n\"3,\n"), input.Options{}, []string{"line 3", "not closed"}},
		"stray quote":               {[]byte("a,b\n1,2\"\n"), input.Options{}, []string{"Line 2", "stray quote"}},
		"Latin-1":                   {[]byte("a,b\n\xe9,2\n"), input.Options{}, []string{"not UTF-8", "byte 4"}},
		"UTF-16":                    {[]byte("\xff\xfea\x00"), input.Options{}, []string{"UTF-16", "Convert"}},
		"Excel":                     {[]byte("PK\x03\x04......."), input.Options{}, []string{"Excel", "Export"}},
		"web page":                  {[]byte("\n<!DOCTYPE html><html>"), input.Options{}, []string{"web page"}},
		"gzip truncated":            {gz[:len(gz)-9], input.Options{}, []string{"gzip", "truncated or damaged"}},
		"gzip header only":          {gz[:5], input.Options{}, []string{"gzip", "truncated or damaged"}},
		"gzip checksum":             {damaged, input.Options{}, []string{"gzip", "checksum"}},
		"gzip of Parquet":           {zip(t, pq), input.Options{}, []string{"Parquet file compressed with gzip", "Upload the Parquet file itself"}},
		"gzip of gzip":              {zip(t, gz), input.Options{}, []string{"twice"}},
		"zstd truncated":            {zs[:len(zs)-5], input.Options{}, []string{"zstd", "truncated or damaged"}},
		"zstd with a large window":  {[]byte("\x28\xb5\x2f\xfd\x00\xa0"), input.Options{}, []string{"window", "level"}},
		"zstd of Parquet":           {zstandard(t, pq), input.Options{}, []string{"Parquet file compressed with zstd"}},
		"zstd of gzip":              {zstandard(t, gz), input.Options{}, []string{"twice"}},
		"gzip of a web page":        {zip(t, []byte("<html>")), input.Options{}, []string{"web page"}},
		"Parquet truncated":         {pq[:len(pq)-3], input.Options{}, []string{"truncated"}},
		"Parquet without rows":      {parquetFile(t), input.Options{}, []string{"no rows"}},
		"Parquet, missing column":   {pq, input.Options{Column: "x"}, []string{`"text"`, `"id"`, `"tags"`}},
		"Parquet, nested id column": {pq, input.Options{Column: "text", IDColumn: "tags"}, []string{"LIST", "single values"}},
		"too many rows":             {[]byte("a\n1\n2\n3\n"), input.Options{Column: "a", Limits: input.Limits{MaxRows: 2}}, []string{"more than 2 rows"}},
		"Parquet, too many rows": {
			parquetFile(t, record{}, record{}), input.Options{Limits: input.Limits{MaxRows: 1}}, []string{"has 2 rows", "more than 1"},
		},
		"long row": {
			[]byte("a\n1\n12345\n"), input.Options{Column: "a", Limits: input.Limits{MaxRowBytes: 4}}, []string{"row 1 (line 3)", "5 bytes", "more than 4"},
		},
		"Parquet, long row": {
			parquetFile(t, record{Text: "12345"}), input.Options{Limits: input.Limits{MaxRowBytes: 4}}, []string{"row 0", "5 bytes"},
		},
		"gzip bomb": {
			zip(t, []byte("a\n"+strings.Repeat("x\n", 100_000))), input.Options{Column: "a", Limits: input.Limits{MaxInflatedBytes: 100_000}}, []string{"unpacks to more than"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, _, err := read(t, test.data, test.opts)
			var failure *rowmill.Failure
			if !errors.As(err, &failure) || failure.Code != rowmill.CodeInvalidInputFile {
				t.Fatalf("got %v, want a failure", err)
			}
			for _, part := range test.want {
				if !strings.Contains(failure.Message, part) {
					t.Errorf("%q does not contain %q", failure.Message, part)
				}
			}
		})
	}
}

// brokenFile fails for reads at offset from and later.
type brokenFile struct {
	data []byte
	from int64
}

var errDisk = errors.New("disk is broken")

func (f brokenFile) ReadAt(p []byte, at int64) (int, error) {
	if at+int64(len(p)) > f.from {
		n := copy(p, f.data[min(at, f.from):f.from])
		return n, errDisk
	}
	return copy(p, f.data[at:]), nil
}

func TestReadErrorsAreNotFailures(t *testing.T) {
	t.Parallel()
	text := []byte("a,b\n" + strings.Repeat("1,2\n", 1_000_000))
	random := make([]record, 2_000)
	for i := range random {
		random[i].Text = fmt.Sprint(i * 7919)
	}
	for name, data := range map[string][]byte{"CSV": text, "gzip": zip(t, text), "zstd": zstandard(t, text), "Parquet": parquetFile(t, random...)} {
		for _, from := range []int64{0, min(600, int64(len(data)/3)), int64(len(data) / 2)} {
			r, err := input.Open(brokenFile{data, from}, int64(len(data)), input.Options{})
			if err == nil {
				_, err = drain(r)
				must.Succeed(t, r.Close())
			}
			var failure *rowmill.Failure
			if !errors.Is(err, errDisk) || errors.As(err, &failure) {
				t.Errorf("%s, broken at %d: got %v", name, from, err)
			}
		}
	}
}

func TestSpooled(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("long \\ \" ", 100_000)
	want := []rowmill.Row{{Index: 0, Text: "a\nb"}, {Index: 1, Text: ""}, {Index: 2, Text: long}, {Index: 3, Text: "é"}}
	spool := "\"a\\nb\"\n\"\"\n\"" + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(long) + "\"\n\"\\u00e9\"\n"
	r := input.NewSpooledReader(strings.NewReader(spool))
	got, err := drain(r)
	if err != nil || r.IDType().IDKind != rowmill.IDNull || r.Close() != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestSpooledDamageIsAnErrorThatQuotesNothing(t *testing.T) {
	t.Parallel()
	for _, spool := range []string{"\"ok\"\n\"torn secret", "\"ok\"\nsecret\n", "\"ok\"\n\"secret\\x\"\n", "\"ok\"\n17\n", "\"ok\"\n\n"} {
		rows, err := drain(input.NewSpooledReader(strings.NewReader(spool)))
		var failure *rowmill.Failure
		if len(rows) != 1 || err == nil || errors.As(err, &failure) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: %d rows, %v", spool, len(rows), err)
		}
	}
}

func TestLimitsAreValidated(t *testing.T) {
	t.Parallel()
	for _, limits := range []input.Limits{{MaxRows: -1}, {MaxRowBytes: 2 << 30}, {MaxRecordBytes: -1}, {MaxInflatedBytes: -1}} {
		if _, _, err := read(t, []byte("a\n1\n"), input.Options{Limits: limits}); err == nil {
			t.Errorf("%+v was accepted", limits)
		}
	}
}

// Stored text must be smaller, for any size of writes. Files that would not get
// smaller must be stored unchanged.
func TestCompressorKeepsTextsSmall(t *testing.T) {
	t.Parallel()
	text := "id,text\n" + strings.Repeat("1,a text that is repeated\n", 200)
	for name, c := range map[string]struct {
		file  string
		small bool
	}{
		"text": {text, true}, "JSON Lines": {strings.Repeat("{\"text\": \"a\"}\n", 200), true}, "short": {"id,text\n1,2\n", false}, "empty": {"", false},
		"gzip": {string(zip(t, []byte(text))), false}, "zstd": {string(zstandard(t, []byte(text))), false}, "Parquet": {string(parquetFile(t, make([]record, 500)...)), false},
	} {
		var kept bytes.Buffer
		w := input.NewCompressor(&kept)
		must.Get(io.Copy(w, iotest.OneByteReader(strings.NewReader(c.file))))(t)
		must.Succeed(t, w.Close())
		if small := kept.Len() < len(c.file)/2; small != c.small || !small && kept.String() != c.file {
			t.Errorf("%s: %d bytes are stored as %d", name, len(c.file), kept.Len())
		}
	}
}

// FuzzOpen opens random files. Every error must be a failure.
func FuzzOpen(f *testing.F) {
	formats := append(input.Formats(), "")
	for i := range formats {
		f.Add([]byte("id,text\n1,\"a\n\"\n"), uint8(i))
		f.Add(zip(f, []byte("id,text\n1,2\n")), uint8(i))
		f.Add(zstandard(f, []byte("id,text\n1,2\n")), uint8(i))
		f.Add(parquetFile(f, record{Text: "a", ID: 1, Tags: []string{"b"}}), uint8(i))
		f.Add([]byte("\xff\xfea\x00"), uint8(i))
		f.Add([]byte("id,text\n"+strings.Repeat("1,\"a\n\"\n", 100)), uint8(i))
		f.Add([]byte("\"a\"\n\n\"b\""), uint8(i))
		f.Add([]byte("[{\"a\":1}]"), uint8(i))
	}
	f.Fuzz(func(t *testing.T, data []byte, format uint8) {
		limits := input.Limits{MaxRows: 10_000, MaxRowBytes: 1 << 20, MaxInflatedBytes: 4 << 20}
		limits.Parquet.MaxPageBytes, limits.Parquet.MaxPageValues = 4<<20, 1<<16
		_, _, err := read(t, data, input.Options{Format: input.Format(formats[int(format)%len(formats)]), Limits: limits})
		var failure *rowmill.Failure
		if err != nil && !errors.As(err, &failure) {
			t.Fatalf("not a failure: %v", err)
		}
	})
}

func BenchmarkIngest(b *testing.B) {
	const rows = 1_000_000
	var file bytes.Buffer
	file.WriteString("row_id,text,label\n")
	text := strings.Repeat("words of real prose, with commas ", 9)
	for i := range rows {
		fmt.Fprintf(&file, "%d,\"%s\n%d\",yes\n", i, text[:60+i%230], i)
	}
	data := file.Bytes()
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		r := must.Get(input.Open(bytes.NewReader(data), int64(len(data)), input.Options{Column: "text", IDColumn: "row_id"}))(b)
		var row rowmill.Row
		w := shard.NewWriter(io.Discard, 0, true)
		for {
			err := r.Next(&row)
			if errors.Is(err, io.EOF) {
				break
			}
			if err == nil {
				err = w.Add(row.Text, row.ID)
			}
			if err == nil && w.Rows() == 16_384 {
				err = w.Close()
				w = shard.NewWriter(io.Discard, row.Index+1, true)
			}
			must.Succeed(b, err)
		}
		if row.Index != rows-1 {
			b.Fatalf("last row is %d", row.Index)
		}
	}
	b.ReportMetric(float64(rows)*float64(b.N)/b.Elapsed().Seconds(), "rows/s")
}

// DescribeURL shows no part of a URL that may be a secret.
func TestDescribeURL(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]string{
		"https://user:pass@example.org:8443/secret/folder/big%20file.parquet?sig=x#y": "https://…@example.org:8443/…/big%20file.parquet?…",
		"http://example.org/a.csv": "http://example.org/a.csv",
		"http://example.org":       "http://example.org",
		"":                         "",
		"http://[":                 "",
	} {
		if got := input.DescribeURL(url); got != want {
			t.Errorf("%q is described as %q, want %q", url, got, want)
		}
	}
}

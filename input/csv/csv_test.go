package csv_test

import (
	"bytes"
	stdcsv "encoding/csv"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/rowmill/rowmill/input/csv"
	"github.com/rowmill/rowmill/internal/must"
)

func readAll(src io.Reader, cfg csv.Config) (records [][]string, err error) {
	r := csv.NewReader(src, cfg)
	for {
		n, err := r.Read()
		if errors.Is(err, io.EOF) {
			return records, nil
		}
		if err != nil {
			return records, err
		}
		record := make([]string, n)
		for i := range record {
			record[i] = string(r.Field(i))
		}
		records = append(records, record)
	}
}

func TestRead(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		in   string
		want [][]string
	}{
		"plain":                           {"a,b\n1,2\n", [][]string{{"a", "b"}, {"1", "2"}}},
		"no last line end":                {"a,b\n1,2", [][]string{{"a", "b"}, {"1", "2"}}},
		"CR LF":                           {"a,b\r\n1,2\r\n", [][]string{{"a", "b"}, {"1", "2"}}},
		"CR LF inside quotes stays":       {"a,b\r\n\"x\r\ny\",2\r\n", [][]string{{"a", "b"}, {"x\r\ny", "2"}}},
		"lone CR is data":                 {"a\rb,c\n", [][]string{{"a\rb", "c"}}},
		"byte order mark":                 {"\xEF\xBB\xBF\"a\",b\n", [][]string{{"a", "b"}}},
		"doubled quotes":                  {"a,b\n\"x\"\"y\"\"\"\"z\",\"\"\"\"\n", [][]string{{"a", "b"}, {`x"y""z`, `"`}}},
		"empty fields":                    {",\n\"\",\n", [][]string{{"", ""}, {"", ""}}},
		"last byte is a comma":            {"a,b\n1,", [][]string{{"a", "b"}, {"1", ""}}},
		"quoted commas and lines":         {"a,b\n\"1,\n2\",3\n", [][]string{{"a", "b"}, {"1,\n2", "3"}}},
		"NUL is data":                     {"ab,cd\nx\x00y,\"\x00\"\n", [][]string{{"ab", "cd"}, {"x\x00y", "\x00"}}},
		"blank lines are skipped":         {"\n\r\na,b\n\n1,2\n\r\n\n", [][]string{{"a", "b"}, {"1", "2"}}},
		"blank lines are rows of one":     {"a\n1\n\n2\r\n\r\n", [][]string{{"a"}, {"1"}, {""}, {"2"}, {""}}},
		"the end of a file is not a line": {"a\n1\n", [][]string{{"a"}, {"1"}}},
		"an empty quoted row of one":      {"a\n\"\"\n", [][]string{{"a"}, {""}}},
		"spaces are data":                 {" a , b \n", [][]string{{" a ", " b "}}},
		"characters of several bytes":     {"ä,日本\n\"😀\"\"\",x\n", [][]string{{"ä", "日本"}, {`😀"`, "x"}}},
		"nothing at all":                  {"", nil},
		"only blank lines":                {"\n\r\n", nil},
		"a last CR ends a line":           {"a,b\r", [][]string{{"a", "b"}}},
		"a last CR after quotes":          {"a,\"b\"\r", [][]string{{"a", "b"}}},
		"a last CR is a line of one":      {"a\n\r", [][]string{{"a"}, {""}}},
		"a last CR is skipped with two":   {"a,b\n\r", [][]string{{"a", "b"}}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, buffer := range []int{1, 2, 3, 7, 0} {
				got, err := readAll(strings.NewReader(test.in), csv.Config{Buffer: buffer})
				if err != nil {
					t.Fatalf("buffer %d: %v", buffer, err)
				}
				if diff := cmp.Diff(test.want, got); diff != "" {
					t.Errorf("buffer %d (-want +got):\n%s", buffer, diff)
				}
			}
		})
	}
}

func TestErrorsNameThePosition(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		in     string
		want   error
		line   int64
		offset int64
	}{
		"too few fields":          {"a,b\n1,2\n3\n", csv.ErrFields, 3, 8},
		"too many fields":         {"a,b\n\"x\ny\",2\n1,2,3\n", csv.ErrFields, 4, 12},
		"bare quote":              {"a,b\n1,x\"y\n", csv.ErrQuote, 2, 7},
		"bare quote after lines":  {"a,b\n\"1\n\"\"\n\",x\"y\n", csv.ErrQuote, 4, 13},
		"quote in the middle":     {"a,b\n\"1\n\"x,2\n", csv.ErrQuote, 3, 7},
		"quote, then a lone CR":   {"a,b\n\"1\"\rx,2\n", csv.ErrQuote, 2, 6},
		"never closed":            {"a,b\n\"1\n\",\"x\ny\nz", csv.ErrUnclosed, 3, 9},
		"never closed after two":  {"a,b\n1,\"x\"\"", csv.ErrUnclosed, 2, 6},
		"not UTF-8":               {"a,b\n1,\xff\n", csv.ErrNotUTF8, 0, 6},
		"cut off character":       {"a,b\n1,\xe6\x97", csv.ErrNotUTF8, 0, 6},
		"UTF-16 little-endian":    {"\xff\xfea\x00", csv.ErrUTF16, 1, 0},
		"UTF-16 big-endian":       {"\xfe\xff\x00a", csv.ErrUTF16, 1, 0},
		"UTF-16 without a mark":   {"a\x00,\x00b\x00\n\x00", csv.ErrUTF16, 1, 0},
		"UTF-32":                  {"\x00\x00\x00a\x00\x00\x00\n", csv.ErrUTF16, 1, 0},
		"Latin-1":                 {"name\ncaf\xe9\n", csv.ErrNotUTF8, 0, 8},
		"quote in the header":     {"a\"b,c\n", csv.ErrQuote, 1, 1},
		"two fields in one":       {"a\n1\n\n1,2\n", csv.ErrFields, 4, 5},
		"blank lines are counted": {"a,b\n\n\n1\n", csv.ErrFields, 4, 6},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, buffer := range []int{1, 2, 5, 0} {
				_, err := readAll(strings.NewReader(test.in), csv.Config{Buffer: buffer})
				var parse *csv.ParseError
				if !errors.As(err, &parse) || !errors.Is(err, test.want) {
					t.Fatalf("buffer %d: got %v, want %v", buffer, err, test.want)
				}
				if parse.Line != test.line || parse.Offset != test.offset {
					t.Errorf("buffer %d: at line %d, byte %d, want line %d, byte %d", buffer, parse.Line, parse.Offset, test.line, test.offset)
				}
			}
		})
	}
}

func TestErrorsStay(t *testing.T) {
	t.Parallel()
	r := csv.NewReader(strings.NewReader("a,b\n1\n1,2\n"), csv.Config{})
	var errs []error
	for range 4 {
		_, err := r.Read()
		errs = append(errs, err)
	}
	if errs[0] != nil || errs[1] == nil || !errors.Is(errs[2], errs[1]) || !errors.Is(errs[3], errs[1]) {
		t.Fatalf("got %v", errs)
	}
}

func TestHeaderTooWide(t *testing.T) {
	t.Parallel()
	_, err := readAll(strings.NewReader(strings.Repeat(",", 100)), csv.Config{MaxFields: 99})
	if !errors.Is(err, csv.ErrTooWide) {
		t.Fatalf("got %v", err)
	}
}

func TestSourceErrorsPassThrough(t *testing.T) {
	t.Parallel()
	broken := errors.New("disk is broken")
	src := io.MultiReader(strings.NewReader("a,b\n1,\"2"), iotest.ErrReader(broken))
	if _, err := readAll(src, csv.Config{}); !errors.Is(err, broken) {
		t.Fatalf("got %v", err)
	}
}

func TestConfigIsValidated(t *testing.T) {
	t.Parallel()
	for _, cfg := range []csv.Config{{MaxRecord: -1}, {MaxFields: -1}, {Buffer: -1}, {MaxRecord: 2 << 30}} {
		if _, err := readAll(strings.NewReader("a\n"), cfg); err == nil {
			t.Errorf("%+v was accepted", cfg)
		}
	}
}

// repeated returns head, and then body until n bytes are read.
type repeated struct {
	head, body string
	n          int
}

func (r *repeated) Read(p []byte) (int, error) {
	if r.n <= 0 {
		return 0, io.EOF
	}
	if r.head != "" {
		n := copy(p, r.head)
		r.head = r.head[n:]
		return n, nil
	}
	n := 0
	for n < len(p) && n < r.n {
		n += copy(p[n:], r.body)
	}
	r.n -= n
	return n, nil
}

func TestUnclosedQuoteInALargeFileTakesBoundedMemory(t *testing.T) {
	// Not parallel: it measures the memory of the whole process.
	const limit = 1 << 20
	src := &repeated{head: "a,b\n1,2\n\"oops,2\n", body: "three,four\n", n: 300 << 20}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := readAll(src, csv.Config{MaxRecord: limit})
	runtime.ReadMemStats(&after)
	var parse *csv.ParseError
	if !errors.As(err, &parse) || !errors.Is(err, csv.ErrUnclosed) || parse.Line != 3 {
		t.Fatalf("got %v", err)
	}
	if grown := after.TotalAlloc - before.TotalAlloc; grown > 8*limit {
		t.Errorf("allocated %d bytes with a limit of %d for a record", grown, limit)
	}
}

func TestOverlongLine(t *testing.T) {
	t.Parallel()
	src := &repeated{head: "a,b\n", body: "no line end ", n: 8 << 20}
	_, err := readAll(src, csv.Config{MaxRecord: 1 << 20})
	if !errors.Is(err, csv.ErrTooLong) {
		t.Fatalf("got %v", err)
	}
}

const separators = ",\t;|"

// FuzzAgainstStandardLibrary allows only the documented differences.
func FuzzAgainstStandardLibrary(f *testing.F) {
	for _, seed := range []string{
		"a,b\n1,2\n", "a,b\r\n\"x\r\ny\",\"\"\"\"\r\n", "a\n\n\"\"\n", "\xEF\xBB\xBFa\n", "a,b\n1\"2,3\n",
		"a,b\n\"1\"x,3\n", "a,b\n\"1", "a\r\n\r", ",\n,,\n", "\"a\"\r", "a\x00b\xff",
	} {
		f.Add([]byte(seed), uint8(3), uint8(0))
		for i := range separators {
			f.Add([]byte(strings.ReplaceAll(seed, ",", separators[i:i+1])), uint8(3), uint8(i))
		}
	}
	f.Fuzz(func(t *testing.T, data []byte, buffer, separator uint8) {
		comma := separators[int(separator)%len(separators)]
		got, err := readAll(bytes.NewReader(data), csv.Config{Buffer: int(buffer), Separator: comma})
		if errors.Is(err, csv.ErrNotUTF8) || errors.Is(err, csv.ErrUTF16) {
			if errors.Is(err, csv.ErrNotUTF8) && utf8.Valid(data) {
				t.Fatalf("valid UTF-8 was refused: %v", err)
			}
			return
		}
		std := stdcsv.NewReader(bytes.NewReader(bytes.TrimPrefix(data, []byte("\xEF\xBB\xBF"))))
		std.Comma = rune(comma)
		want, wantErr := [][]string(nil), error(nil)
		for {
			record, err := std.Read()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				wantErr = err
				break
			}
			want = append(want, record)
		}
		switch {
		case errors.Is(wantErr, stdcsv.ErrFieldCount):
			if !errors.Is(err, csv.ErrFields) {
				t.Fatalf("got %v, want %v", err, wantErr)
			}
		case errors.Is(wantErr, stdcsv.ErrBareQuote) && comma == '\t':
			return // in tab-separated values a field can contain a quote
		case wantErr != nil:
			if !errors.Is(err, csv.ErrQuote) && !errors.Is(err, csv.ErrUnclosed) {
				t.Fatalf("got %v, want %v", err, wantErr)
			}
		case err != nil:
			t.Fatalf("got %v, want no error", err)
		}
		for _, record := range got {
			for i, field := range record {
				record[i] = strings.ReplaceAll(field, "\r\n", "\n")
			}
		}
		if len(want) > 0 && len(want[0]) == 1 { // here blank lines are rows
			empty := func(record []string) bool { return len(record) == 1 && record[0] == "" }
			got, want = slices.DeleteFunc(got, empty), slices.DeleteFunc(want, empty)
		}
		if diff := cmp.Diff(want, got); diff != "" && len(want)+len(got) > 0 {
			t.Fatalf("(-standard +ours):\n%s", diff)
		}
	})
}

// Programs that write tab-separated values often do not quote.
func TestQuotesBetweenTabs(t *testing.T) {
	t.Parallel()
	got, err := readAll(strings.NewReader("id\ttext\n1\tsays \"hi\"\n2\t\"a\tb\"\"\"\n"), csv.Config{Separator: '\t'})
	if diff := cmp.Diff([][]string{{"id", "text"}, {"1", `says "hi"`}, {"2", "a\tb\""}}, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}

func benchmark(b *testing.B, row string) {
	data := []byte("id,text,label\n" + strings.Repeat(row, (64<<20)/len(row)))
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		r := csv.NewReader(bytes.NewReader(data), csv.Config{})
		rows := 0
		for {
			_, err := r.Read()
			if errors.Is(err, io.EOF) {
				break
			}
			must.Succeed(b, err)
			rows++
		}
		if rows != 1+(64<<20)/len(row) {
			b.Fatalf("%d rows", rows)
		}
	}
}

func BenchmarkRead(b *testing.B) {
	text := strings.Repeat("some words of plain text ", 12)
	b.Run("plain", func(b *testing.B) { benchmark(b, "123456,"+text+",positive\n") })
	b.Run("quoted", func(b *testing.B) {
		benchmark(b, fmt.Sprintf("123456,\"%s, with \"\"quotes\"\"\r\nand lines\",positive\n", text))
	})
	b.Run("short", func(b *testing.B) { benchmark(b, "123456,yes,no\n") })
	b.Run("non-ascii", func(b *testing.B) {
		benchmark(b, "123456,"+strings.Repeat("größer über naïve ", 18)+",positive\n")
	})
}

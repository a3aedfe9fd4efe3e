package submission

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/blob"
	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/internal/textfmt"
)

// FuzzRead compares our decoder with encoding/json.
func FuzzRead(f *testing.F) {
	for _, seed := range []string{
		`{"inputs":["a","b\n\u00e9\ud83d\ude00"],"model":"x","extra":{"a":[1,2,{"b":null}]}}`,
		`{"inputs":"https://example.org","name":null}`, `{"inputs":["\ud83d"]}`, `{"\ude00":1}`,
		` { } `, `{"inputs":[]}`, `{"inputs":[1,true,null,{},[]]}`, `{"inputs":["a"]}x`, `{"a":1,"a":2}`,
		`{"inputs":["a" ,"b"],"job_priority": 1e0 , "x":-0.5}`, "{\"inputs\":[\"\xff\"]}", `{"a":[}`, `[`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		intake := &Parser{MaxRow: 1 << 20, MaxInline: 1 << 30} // large enough to need no bucket
		sub, err := intake.Read(t.Context(), iotest.HalfReader(bytes.NewReader(body)))

		var theirs map[string]json.RawMessage
		theirErr := json.Unmarshal(body, &theirs)
		valid := theirErr == nil && theirs != nil && utf8.Valid(body) && !textfmt.HasLoneSurrogate(body)
		if !valid {
			if err == nil {
				t.Fatalf("accepted %q, which encoding/json refuses: %v", body, theirErr)
			}
			return
		}
		if err != nil {
			if strings.Contains(err.Error(), "twice") {
				return // our decoder is stricter on purpose
			}
			t.Fatalf("refused %q: %v", body, err)
		}
		for name, raw := range sub.fields {
			if !bytes.Equal(bytes.TrimSpace(theirs[name]), raw) {
				t.Fatalf("%s is %q, theirs %q", name, raw, theirs[name])
			}
		}
		if sub.checkRows(&CheckedJob{Spec: rowmill.Spec{Model: rowmill.Model{ID: "m"}}}); sub.problems.Len() > 0 || !sub.inline {
			return
		}
		var want []string
		if err := json.Unmarshal(theirs["inputs"], &want); err != nil {
			t.Fatalf("accepted rows %q: %v", theirs["inputs"], err)
		}
		got, _, err := sub.rows.finishRows(nil)
		must.Succeed(t, err)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("rows (-want +got):\n%s", diff)
		}
	})
}

func TestScanner_LimitCountsDecodedBytes(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "abc", `\n\t\"`, "é", `\u00e9`, "😀", `\ud83d\ude00`, `x\ud83d\ude00\ud83d\ude00`, `\u0000`} {
		decoded, err := unquote([]byte(text))
		must.Succeed(t, err)
		if _, err := newScanner(strings.NewReader(text + `"`)).readString(len(decoded)); err != nil {
			t.Errorf("%s has %d bytes: %v", text, len(decoded), err)
		}
		if _, err := newScanner(strings.NewReader(text + `"`)).readString(len(decoded) - 1); len(decoded) > 0 && !errors.Is(err, errTooLong) {
			t.Errorf("%s within %d bytes: %v", text, len(decoded)-1, err)
		}
	}
}

// repeated is a body of n equal rows, or of one row of n pieces. It is generated while it
// is read.
type repeated struct {
	head, piece, tail string // a %d in the piece counts
	n                 int
	rest              string
}

func (r *repeated) Read(p []byte) (int, error) {
	for r.rest == "" {
		switch {
		case r.head != "":
			r.rest, r.head = r.head, ""
		case r.n > 0:
			r.n--
			r.rest = strings.Replace(r.piece, "%d", strconv.Itoa(r.n), 1)
		case r.tail != "":
			r.rest, r.tail = r.tail, ""
		default:
			return strings.NewReader("").Read(p)
		}
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

// nowhere drops all rows, so that only the decoder uses memory.
type nowhere struct {
	blob.Bucket
	blob.Writer
}

func (n nowhere) Create(context.Context, string, string) (blob.Writer, error) { return n, nil }
func (nowhere) Write(p []byte) (int, error)                                   { return len(p), nil }
func (nowhere) Abort()                                                        {}

func TestRead_MemoryDoesNotGrowWithTheBody(t *testing.T) {
	// Not parallel, because it measures the heap of the process.
	const mib = 1 << 20
	for name, body := range map[string]*repeated{
		"ManyRows":     {head: `{"inputs":["a"`, piece: `,"` + strings.Repeat("x", 1000) + `"`, tail: `]}`, n: 24 * mib / 1000},
		"ManyObjects":  {head: `{"inputs":["a"`, piece: `,{"a":"` + strings.Repeat("x", 1000) + "\",\n\"b\":1}", tail: `]}`, n: 24 * mib / 1000},
		"OneHugeRow":   {head: `{"inputs":["`, piece: strings.Repeat("x", 4096), tail: `"]}`, n: 24 * mib / 4096},
		"HugeEscapes":  {head: `{"inputs":["`, piece: strings.Repeat(`\u0061`, 1000), tail: `"]}`, n: 24 * mib / 6000},
		"HugeUnknown":  {head: `{"x":["`, piece: strings.Repeat("x", 4096), tail: `"],"inputs":["a"]}`, n: 24 * mib / 4096},
		"HugeKnown":    {head: `{"name":"`, piece: strings.Repeat("x", 4096), tail: `","inputs":["a"]}`, n: 24 * mib / 4096},
		"HugeURL":      {head: `{"inputs":"`, piece: strings.Repeat("x", 4096), tail: `"}`, n: 24 * mib / 4096},
		"ManyBadRows":  {head: `{"inputs":[1`, piece: `,1,2,3,4,5,6,7,8,9`, tail: `]}`, n: mib / 18},
		"ManyUnknowns": {head: `{"inputs":["a"]`, piece: `,"a":1`, tail: `}`, n: mib / 6},
		"ManyNames":    {head: `{"inputs":["a"]`, piece: `,"field number %d with a name that is longer than most names":1`, tail: `}`, n: 24 * mib / 65},
	} {
		intake := &Parser{Bucket: nowhere{}, MaxRow: mib, MaxInline: 1024}
		peak := &peakReader{r: body}
		sub, err := intake.Read(t.Context(), peak)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		sub.Close()
		if limit := uint64(16 * mib); peak.grown() > limit {
			t.Errorf("%s: the heap grew by %d MiB, want at most %d", name, peak.grown()/mib, limit/mib)
		}
	}
}

// peakReader measures the live heap every few MiB.
type peakReader struct {
	r          *repeated
	read, next int
	base, peak uint64
}

func (p *peakReader) Read(b []byte) (int, error) {
	n, err := p.r.Read(b)
	if p.read += n; p.read >= p.next {
		p.next += 4 << 20
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		if p.base == 0 {
			p.base = m.HeapAlloc
		}
		p.peak = max(p.peak, m.HeapAlloc)
	}
	return n, err
}

func (p *peakReader) grown() uint64 { return p.peak - p.base }

func BenchmarkRead(b *testing.B) {
	body := []byte(`{"inputs":["a"` + strings.Repeat(`,"`+strings.Repeat("x", 990)+`\n"`, 10_000) + `]}`)
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		intake := &Parser{Bucket: nowhere{}, MaxRow: 8 << 20, MaxInline: 64 << 10}
		sub, err := intake.Read(b.Context(), bytes.NewReader(body))
		must.Succeed(b, err)
		sub.Close()
	}
}

package textfmt

import (
	"bytes"
	"encoding/json"
	"math"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/rowmill/rowmill/internal/must"
)

func FuzzAppendString(f *testing.F) {
	for _, s := range []string{"", "plain", "a\"b\\c", "\b\f\n\r\t", "\x00\x1f\x7f", "é日🦙\u2028", "\xff\xc3(\xed\xa0\x80", "\ufffd", "</script>&"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		// Compare with the output of encoding/json.
		theirs := must.Get(json.Marshal(s))(t)
		var want, got string
		must.Succeed(t, json.Unmarshal(theirs, &want))
		ours := AppendString([]byte("before"), []byte(s))
		if err := json.Unmarshal(bytes.TrimPrefix(ours, []byte("before")), &got); err != nil || got != want {
			t.Fatalf("%q became %s, which reads %q, %v; want %q", s, ours, got, err, want)
		}
		if valid := string(AppendValidUTF8(nil, []byte(s))); valid != want {
			t.Fatalf("%q became %q, want %q", s, valid, want)
		}
	})
}

func TestPlain(t *testing.T) {
	t.Parallel()
	for _, stop := range []byte{'"', '\\', 0, 0x1f, '\n'} {
		for length := range 40 {
			b := bytes.Repeat([]byte{0xC3, 0x20, 0x7F, 'x', 0x80, '!', '#', ']', '['}, 6)[:length+1]
			b[length] = stop
			if got := PlainPrefixLen(b); got != length {
				t.Errorf("stop %#x at %d: Plain says %d", stop, length, got)
			}
			if got := PlainPrefixLen(b[:length]); got != length {
				t.Errorf("%d bytes without a stop: Plain says %d", length, got)
			}
		}
	}
}

func FuzzAppendDecimal(f *testing.F) {
	for _, v := range []float64{0, 1, -1, 0.1, 1e21, 1e20, 1e-7, math.MaxFloat64, math.SmallestNonzeroFloat64} {
		f.Add(v)
	}
	f.Fuzz(func(t *testing.T, v float64) {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return
		}
		var back float64
		made := string(AppendDecimal(nil, v, 64))
		if err := json.Unmarshal([]byte(made), &back); err != nil || back != v || !strings.ContainsAny(made, ".e") {
			t.Errorf("%v is %s, which reads back as %v, %v", v, made, back, err)
		}
		var back32 float32
		made = string(AppendDecimal(nil, float64(float32(v)), 32))
		if err := json.Unmarshal([]byte(made), &back32); !math.IsInf(float64(float32(v)), 0) && (err != nil || back32 != float32(v)) {
			t.Errorf("%v is %s, which reads back as %v, %v", float32(v), made, back32, err)
		}
	})
}

func TestShorten(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{"": "", "abcd": "abcd", "abcde": "abcd…", "abcé": "abc…", "a\xff": "a\ufffd", "日本": "日…"} {
		if got := Shorten(in, 4); got != want || !utf8.ValidString(got) {
			t.Errorf("%q became %q, want %q", in, got, want)
		}
	}
}

func FuzzDistance(f *testing.F) {
	for _, s := range [][2]string{{"", ""}, {"temprature", "temperature"}, {"kitten", "sitting"}, {"abc", ""}, {"ab", "ba"}} {
		f.Add(s[0], s[1])
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		d := EditDistance(a, b)
		if d != EditDistance(b, a) {
			t.Errorf("%q and %q: %d one way, %d the other", a, b, d, EditDistance(b, a))
		}
		if (d == 0) != (a == b) || d < max(len(a), len(b))-min(len(a), len(b)) || d > max(len(a), len(b)) {
			t.Errorf("%q and %q: %d", a, b, d)
		}
		if with := EditDistance(a+"x", b+"x"); with > d {
			t.Errorf("%q and %q: %d, with a common end %d", a, b, d, with)
		}
	})
}

func TestDistance(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		a, b string
		want int
	}{{"kitten", "sitting", 3}, {"temprature", "temperature", 1}, {"ab", "ba", 2}, {"abc", "", 3}} {
		if got := EditDistance(c.a, c.b); got != c.want {
			t.Errorf("%q and %q: %d, want %d", c.a, c.b, got, c.want)
		}
	}
}

func TestSize(t *testing.T) {
	t.Parallel()
	for n, want := range map[int64]string{0: "0 B", 999: "999 B", 1500: "1.5 kB", 40e6: "40.0 MB", 2e9: "2.0 GB"} {
		if got := FormatSize(n); got != want {
			t.Errorf("%d: %q, want %q", n, got, want)
		}
	}
}

package tokenize

import (
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// longestPrefix returns the prefix that Truncate promises, by trying all
// prefixes. text must be in the encoding's normal form.
func longestPrefix(e *Encoding, text string, n int) string {
	for end := len(text); end > 0; end-- {
		if (end == len(text) || utf8.RuneStart(text[end])) && e.Count(text[:end]) <= n {
			return text[:end]
		}
	}
	return ""
}

func checkTruncate(t *testing.T, e *Encoding, text string, n int) {
	t.Helper()
	got := e.Truncate(text, n)
	if count := e.Count(got); count > max(n, 0) {
		t.Fatalf("%s: %q is cut to %q with %d tokens, more than %d", e.name, text, got, count, n)
	}
	if want := longestPrefix(e, text, n); len(got) < len(want) {
		t.Fatalf("%s: %q is cut to %d tokens as %q, longer is %q", e.name, text, n, got, want)
	} else if !strings.HasPrefix(text, got) {
		t.Fatalf("%s: %q is cut to %q", e.name, text, got)
	}
}

func truncators(t testing.TB) []*Encoding {
	return append(trained(t)[:2], load(t, "o200k_base"), load(t, "cl100k_base"), load(t, "r50k_base"))
}

func TestTruncate(t *testing.T) {
	skipIfShort(t)
	t.Parallel()
	for _, e := range truncators(t) {
		for _, text := range hardTexts {
			for n := range len(text) + 1 {
				if got := e.Truncate(text, n); e.Count(got) > n {
					t.Fatalf("%s: %q is cut to %q with %d tokens, more than %d", e.name, text, got, e.Count(got), n)
				}
			}
			text = toValidUTF8(text)
			for n := -1; n <= e.Count(text)+1; n++ {
				checkTruncate(t, e, text, n)
			}
		}
		r := rand.New(rand.NewPCG(7, 8))
		for range 2000 {
			text := randomText(r, 40)
			checkTruncate(t, e, text, r.IntN(e.Count(text)+2))
		}
		for range 300 {
			text := strings.Repeat(randomText(r, 3), 60) // long pieces
			if len(text) < 1500 {
				checkTruncate(t, e, text, r.IntN(e.Count(text)+2))
			}
		}
	}
}

// TestTruncateOthers cuts with vocabularies that have added tokens, put a space
// before the text, normalize it, or have several stages.
func TestTruncateOthers(t *testing.T) {
	skipIfShort(t)
	t.Parallel()
	all := trained(t)[2:]
	for i, e := range append(all, all[1].WithSpecials(), load(t, "o200k_harmony").WithSpecials()) {
		r := rand.New(rand.NewPCG(uint64(i), 9))
		for range 1500 {
			text := randomText(r, 20)
			for range r.IntN(3) {
				at := r.IntN(len(text) + 1)
				text = toValidUTF8(text[:at]) + []string{"<think>", "<", "<|im_start|>", "<|end|>"}[r.IntN(4)] + toValidUTF8(text[at:])
			}
			if e.nfc {
				text = norm.NFC.String(text)
			}
			n := r.IntN(e.Count(text) + 2)
			got := e.Truncate(text, n)
			want := ""
			s := new(scratch)
			for part := range e.splitAtAddedTokens(s, text) {
				for end := part.begin; end <= part.end; end++ {
					inside := part.id >= 0 && end > part.begin && end < part.end
					if !inside && (end == len(text) || utf8.RuneStart(text[end])) && e.Count(text[:end]) <= n {
						want = text[:end]
					}
				}
			}
			if got != want {
				t.Fatalf("vocabulary %d: %q is cut to %d tokens as %q, want %q", i, text, n, got, want)
			}
		}
	}
}

func TestTruncateNormalizes(t *testing.T) {
	t.Parallel()
	e := trained(t)[2]
	text := strings.Repeat("A\u030a e\u0301 \u0958 ", 20)
	if got := e.Truncate(text, e.Count(text)); got != text {
		t.Errorf("a text that fits becomes %q", got)
	}
	got := e.Truncate(text, 30)
	if got == "" || e.Count(got) > 30 || !strings.HasPrefix(norm.NFC.String(text), got) {
		t.Errorf("%q with %d tokens", got, e.Count(got))
	}
}

// TestComposed compares the slow form C with x/text.
func TestComposed(t *testing.T) {
	skipIfShort(t)
	t.Parallel()
	r := rand.New(rand.NewPCG(13, 14))
	for range 5000 {
		text := randomText(r, 12)
		if strings.ContainsFunc(text, isLaterMark) || strings.Count(text, "\u0301") > 20 {
			continue
		}
		text = norm.NFD.String(text)
		if got, want := composeSlowly(text), norm.NFC.String(text); got != want {
			t.Fatalf("%+q becomes %+q, want %+q", text, got, want)
		}
	}
	marks := "a" + strings.Repeat("\u0301", 40) + "\u0323" + strings.Repeat("\u0316", 40)
	if got, want := normalizeNFC(marks), "\u1ea1"+strings.Repeat("\u0316", 40)+strings.Repeat("\u0301", 40); got != want {
		t.Errorf("%+q, want %+q", got, want)
	}
}

func FuzzTruncate(f *testing.F) {
	for i, text := range hardTexts {
		f.Add(text, i)
	}
	all := truncators(f)
	f.Fuzz(func(t *testing.T, text string, n int) {
		if len(text) > 400 {
			return
		}
		text = toValidUTF8(text)
		for _, e := range all {
			checkTruncate(t, e, text, n%(e.Count(text)+2))
		}
	})
}

package tokenize

import (
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/rowmill/rowmill/internal/must"
)

func checkRoundTrip(t *testing.T, e *Encoding, text string) {
	t.Helper()
	ids := e.Encode([]int{-7}, text)
	if ids[0] != -7 || len(ids)-1 != e.Count(text) || e.CountBytes([]byte(text)) != len(ids)-1 {
		t.Fatalf("%s, %q: Encode appends %d tokens to one, Count has %d", e.name, text, len(ids)-1, e.Count(text))
	}
	if got, want := decoded(t, e, ids[1:]), toValidUTF8(text); got != want {
		t.Fatalf("%s: %q becomes %q", e.name, want, got)
	}
}

// decoded returns the text of tokens.
func decoded(t *testing.T, e *Encoding, ids []int) string {
	t.Helper()
	var text []byte
	v := e.vocabulary
	for _, id := range ids {
		at := slices.IndexFunc(e.tokens, func(a addedToken) bool { return a.id == id })
		switch {
		case at >= 0:
			text = append(text, e.tokens[at].text...)
		case id >= 0 && id < len(v.byID) && v.byID[id] != none:
			text = append(text, v.text(v.byID[id])...)
		default:
			t.Fatalf("%s has no token with the id %d", e.name, id)
		}
	}
	return string(text)
}

func FuzzRoundTrip(f *testing.F) {
	for _, text := range hardTexts {
		f.Add(text)
	}
	var all []*Encoding
	for _, name := range encodings() {
		e := load(f, name)
		all = append(all, e, e.WithSpecials())
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, e := range all {
			checkRoundTrip(t, e, text)
		}
	})
}

// naive merges exactly as the rule says.
func naive(v *vocabulary, piece string) []token {
	var tokens []token
	for _, b := range []byte(piece) {
		tokens = append(tokens, token(b))
	}
	for {
		least, at := none, 0
		for i := range len(tokens) - 1 {
			if p := v.pairs.find(tokens[i], tokens[i+1]); p < least {
				least, at = p, i
			}
		}
		if least == none {
			return tokens
		}
		tokens[at] = least
		tokens = slices.Delete(tokens, at+1, at+2)
	}
}

func checkMerges(t *testing.T, e *Encoding, piece string) {
	t.Helper()
	if piece == "" {
		return
	}
	v, s := e.vocabulary, new(scratch)
	want := naive(v, piece)
	if got := v.merge(s, piece); !slices.Equal(got, want) {
		t.Fatalf("%s, %q: tokens %d, want %d", e.name, piece, got, want)
	}
	s.tokens, s.products = grow(s.tokens, len(piece)), grow(s.products, len(piece))
	if got := v.mergeHeap(s, v.fillInitialTokens(s.tokens, piece)); !slices.Equal(got, want) {
		t.Fatalf("%s, %q: by a heap tokens %d, want %d", e.name, piece, got, want)
	}
	for _, size := range []int{8, 40, 150} {
		if got := v.mergeLong(s, piece, size); !slices.Equal(got, want) {
			t.Fatalf("%s, %q: in windows of %d tokens %d, want %d", e.name, piece, size, got, want)
		}
	}
}

// TestMerges compares all ways to merge with the simplest one.
func TestMerges(t *testing.T) {
	skipIfShort(t)
	t.Parallel()
	for _, e := range append(trained(t), load(t, "o200k_base"), load(t, "cl100k_base"), load(t, "r50k_base")) {
		for _, text := range hardTexts {
			checkMerges(t, e, text)
		}
		r := rand.New(rand.NewPCG(5, 6))
		for range 500 {
			checkMerges(t, e, randomText(r, 60))
		}
		for range 200 {
			// Bytes of all kinds, also parts of characters.
			text := randomText(r, 60)
			checkMerges(t, e, text[r.IntN(len(text)+1):])
		}
	}
}

func FuzzMerges(f *testing.F) {
	for _, text := range hardTexts {
		f.Add(text)
	}
	all := append(trained(f), load(f, "o200k_base"), load(f, "cl100k_base"))
	f.Fuzz(func(t *testing.T, piece string) {
		if len(piece) > 1000 {
			return
		}
		for _, e := range all {
			checkMerges(t, e, piece)
		}
	})
}

// TestRankDefinition compares the pairs of o200k with tiktoken's rule: two
// neighbours merge if their bytes together are a token.
func TestRankDefinition(t *testing.T) {
	skipIfShort(t)
	t.Parallel()
	v := load(t, "o200k_base").vocabulary
	unmade := 0
	for n := token(256); n < token(len(v.ids)); n++ {
		text := string(v.text(n))
		tokens := naive(v, text)
		if len(tokens) != 1 {
			unmade++
		} else if tokens[0] != n {
			t.Fatalf("%q is token %d, its bytes merge to %d", text, n, tokens[0])
		}
		if v.ids[n-1] >= v.ids[n] && n > 256 && len(tokens) == 1 {
			t.Fatalf("token %q, rank %d, comes after rank %d", text, v.ids[n], v.ids[n-1])
		}
	}
	if unmade > 0 {
		t.Errorf("%d tokens of o200k_base are not made by merges", unmade)
	}
}

func TestInvalidText(t *testing.T) {
	t.Parallel()
	e := load(t, "o200k_base")
	for text, want := range map[string]string{
		"a\xffb": "a\ufffdb", "\xe4\xbd": "\ufffd\ufffd", "\xed\xa0\x80": "\ufffd\ufffd\ufffd", "\xf0\x9f\x99": "\ufffd\ufffd\ufffd",
	} {
		if got, want := e.Encode(nil, text), e.Encode(nil, want); !slices.Equal(got, want) {
			t.Errorf("%q: %d, want %d", text, got, want)
		}
		if got := e.Truncate(text+" and more of it", e.Count(want)); got != want || !utf8.ValidString(got) {
			t.Errorf("%q is cut to %q, want %q", text, got, want)
		}
	}
}

func TestSpecials(t *testing.T) {
	t.Parallel()
	e := load(t, "o200k_harmony")
	text := "<|start|>user<|message|>Hi <|end|><|start|>assistant<|reserved_200500|>"
	if got := e.Encode(nil, text); slices.Contains(got, 200006) {
		t.Errorf("the special token is taken from ordinary text: %d", got)
	}
	hi := e.Encode(nil, "Hi ")
	want := append(append([]int{200006}, e.Encode(nil, "user")...), 200008)
	want = append(append(want, hi...), 200007, 200006)
	want = append(append(want, e.Encode(nil, "assistant")...), 200500)
	with := e.WithSpecials()
	if got := with.Encode(nil, text); !slices.Equal(got, want) {
		t.Errorf("tokens %d, want %d", got, want)
	}
	checkRoundTrip(t, with, text)
	if id := e.special["<|return|>"]; id != 200002 || len(e.special) != 1091 {
		t.Errorf("<|return|> is %d; %d special tokens, want 1091", id, len(e.special))
	}
}

// TestAllocations counts the allocations for a row.
func TestAllocations(t *testing.T) {
	if raced {
		t.Skip("pools drop memory under the race detector")
	}
	texts := append(slices.Clone(hardTexts[:len(hardTexts)-4]), strings.Repeat("a", 3000), strings.Repeat("你好世界", 200))
	for _, name := range []string{"o200k_base", "cl100k_base"} {
		e := load(t, name)
		ids := make([]int, 0, 4096)
		for _, text := range texts {
			bytes := []byte(text)
			for what, f := range map[string]func(){
				"Count":      func() { e.Count(text) },
				"CountBytes": func() { e.CountBytes(bytes) },
				"Encode":     func() { ids = e.Encode(ids[:0], text) },
				"Truncate":   func() { e.Truncate(text, 5) },
			} {
				if n := testing.AllocsPerRun(20, f); n != 0 {
					t.Errorf("%s, %.40q: %s allocates %v times", name, text, what, n)
				}
			}
		}
	}
}

func TestConcurrentUse(t *testing.T) {
	t.Parallel()
	e := load(t, "o200k_base")
	want := make([]int, len(hardTexts))
	for i, text := range hardTexts {
		want[i] = e.Count(text)
	}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 50 {
				for i, text := range hardTexts {
					if got := e.Count(text); got != want[i] {
						t.Errorf("%q: %d tokens, alone %d", text, got, want[i])
					}
				}
			}
		})
	}
	all.Wait()
}

// TestLongPieces counts and cuts long pieces. This would take minutes if the
// time grew with the square of the length. make soak/quick compares the time
// with the length.
func TestLongPieces(t *testing.T) {
	sizes := map[string][]int{"a": {1 << 19, 1 << 20}, " ": {1 << 18}, "你": {1 << 18, 1 << 19}}
	for _, unit := range []string{"-", "\n", "ab", "\u0301", "\n ", "北京赛车", "🙂", "ʰA"} {
		sizes[unit] = []int{1 << 17}
	}
	if testing.Short() {
		sizes = map[string][]int{"a": {1 << 16}, "你": {1 << 16}}
	}
	timed := os.Getenv("ROWMILL_SOAK") != "" && !raced
	for _, name := range []string{"o200k_base", "cl100k_base"} {
		e := load(t, name)
		for unit, sizes := range sizes {
			for _, size := range sizes {
				text, limit := strings.Repeat(unit, size/len(unit)), time.Duration(size)*limit>>20
				begun := processorTime(t)
				count := e.Count(text)
				counted := processorTime(t)
				cut := e.Truncate(text, count/2)
				done := processorTime(t)
				if took := counted - begun; took > limit && timed {
					t.Errorf("%s: %d bytes of %q take %v, more than %v", name, size, unit, took, limit)
				}
				if took := done - counted; took > 4*limit && timed {
					t.Errorf("%s: to cut %d bytes of %q takes %v", name, size, unit, took)
				}
				if e.Count(cut) > count/2 || len(cut) < len(text)/3 {
					t.Errorf("%s: %d × %q: %d tokens are cut to %d bytes with %d", name, size, unit, count, len(cut), e.Count(cut))
				}
			}
		}
	}
}

// skipIfShort skips a slow test that has one goroutine when the race detector
// is used.
func skipIfShort(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("nothing in it is concurrent")
	}
}

// raced is true in a build with the race detector.
var raced bool

// limit is the time for a megabyte: many times the usual time, but quadratic
// merging would take minutes.
const limit = 2 * time.Second

// processorTime returns the processor time of this process. Other work on the
// machine does not count.
func processorTime(t *testing.T) time.Duration {
	t.Helper()
	var used syscall.Rusage
	must.Succeed(t, syscall.Getrusage(syscall.RUSAGE_SELF, &used))
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

package tokenize

import (
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/dlclark/regexp2"
	"github.com/pkoukk/tiktoken-go"
	loader "github.com/pkoukk/tiktoken-go-loader"

	"github.com/rowmill/rowmill/internal/must"
)

// port returns an encoding of tiktoken-go, which is a port of the original.
func port(t testing.TB, name string) *tiktoken.Tiktoken {
	t.Helper()
	portOnce.Do(func() { tiktoken.SetBpeLoader(loader.NewOfflineLoader()) })
	e := must.Get(tiktoken.GetEncoding(name))(t)
	return e
}

var portOnce sync.Once

// load returns a built-in encoding, or one of two older encodings for
// comparison.
func load(t testing.TB, name string) *Encoding {
	t.Helper()
	if name == "p50k_base" || name == "r50k_base" {
		return openRanks(t, published(t, name), patternGPT2, map[string]int{"<|endoftext|>": 50256})
	}
	e := must.Get(Load(name))(t)
	return e
}

func checkPort(t *testing.T, e *Encoding, port *tiktoken.Tiktoken, text string) {
	t.Helper()
	if newer(text) {
		return
	}
	want, got := port.EncodeOrdinary(text), e.Encode(nil, text)
	if !slices.Equal(got, want) {
		t.Fatalf("%s, %q: tokens %d, tiktoken-go has %d", e.name, text, got, want)
	}
	if n := e.Count(text); n != len(want) {
		t.Fatalf("%s, %q: count %d, tiktoken-go has %d", e.name, text, n, len(want))
	}
}

func TestTiktokenGo(t *testing.T) {
	skipIfShort(t)
	t.Parallel()
	for _, name := range []string{"o200k_base", "cl100k_base", "r50k_base", "p50k_base"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e, port := load(t, name), port(t, name)
			for _, text := range hardTexts {
				checkPort(t, e, port, text)
			}
			r := rand.New(rand.NewPCG(1, 2))
			for range 3000 {
				checkPort(t, e, port, randomText(r, 24))
			}
			for range 20 {
				checkPort(t, e, port, randomText(r, 400))
			}
		})
	}
}

func FuzzTiktokenGo(f *testing.F) {
	for _, text := range hardTexts {
		f.Add(text)
	}
	o200k, cl100k := load(f, "o200k_base"), load(f, "cl100k_base")
	portO, portCL := port(f, "o200k_base"), port(f, "cl100k_base")
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) > 2000 {
			return // tiktoken-go's time grows with the square of the length
		}
		checkPort(t, o200k, portO, text)
		checkPort(t, cl100k, portCL, text)
	})
}

// scannerPatterns are the patterns that have a scanner.
var scannerPatterns = []string{patternO200K, patternCL100K, patternQwen, patternQwenMarks, patternGPT2}

// checkScanner compares a scanner with its pattern.
func checkScanner(t *testing.T, scan *scanner, pattern string, expression *regexp2.Regexp, text string) {
	t.Helper()
	if newer(text) {
		return
	}
	text = toValidUTF8(text)
	want := regexSplitter{expression}.appendPieceEnds(nil, text, 0)
	if got := scan.appendPieceEnds(nil, text, 0); !slices.Equal(got, want) {
		t.Fatalf("%s\n%q: pieces end at %d, by regexp2 at %d", pattern, text, got, want)
	}
}

func TestScanners(t *testing.T) {
	skipIfShort(t)
	t.Parallel()
	for _, pattern := range scannerPatterns {
		scan, expression := scannerFor(pattern), regexp2.MustCompile(pattern, regexp2.None)
		for _, text := range hardTexts {
			checkScanner(t, scan, pattern, expression, text)
		}
		r := rand.New(rand.NewPCG(3, 4))
		for range 3000 {
			checkScanner(t, scan, pattern, expression, randomText(r, 16))
		}
	}
}

func FuzzScanners(f *testing.F) {
	for _, text := range hardTexts {
		f.Add(text)
	}
	var scans []*scanner
	var expressions []*regexp2.Regexp
	for _, pattern := range scannerPatterns {
		scans = append(scans, scannerFor(pattern))
		expressions = append(expressions, regexp2.MustCompile(pattern, regexp2.None))
	}
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) > 2000 {
			return
		}
		for i, pattern := range scannerPatterns {
			checkScanner(t, scans[i], pattern, expressions[i], text)
		}
	})
}

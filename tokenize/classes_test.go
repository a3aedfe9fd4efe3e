package tokenize

import (
	"testing"
	"unicode"

	"github.com/dlclark/regexp2"
)

// TestClasses compares the class of every character with Go's tables, which
// regexp2 also uses, except for the additions of Unicode 16.
func TestClasses(t *testing.T) {
	skipIfShort(t)
	t.Parallel()
	if unicode.Version != "15.0.0" {
		t.Fatal("the tables of Go now have Unicode " + unicode.Version + ": update unicode16")
	}
	added := make(map[rune]charClass)
	for _, span := range unicode16 {
		for r := span.first; r <= span.last; r++ {
			if added[r] != 0 || unicode.In(r, unicode.L, unicode.M, unicode.N, unicode.Z, unicode.P, unicode.S) {
				t.Errorf("%U is added, but Go knows it", r)
			}
			added[r] = span.class
		}
	}
	if len(added) != 5055 {
		t.Errorf("%d characters are added", len(added))
	}
	sets := map[charClass]*regexp2.Regexp{}
	for c, pattern := range map[charClass]string{
		upper: `[\p{Lu}\p{Lt}]`, lower: `\p{Ll}`, other: `[\p{Lm}\p{Lo}]`, mark: `\p{M}`, number: `\p{N}`, space: `\s`, line: `[\r\n]`,
	} {
		sets[c] = regexp2.MustCompile(pattern, regexp2.None)
	}
	table := classes()
	for r := rune(0); r <= unicode.MaxRune; r++ {
		if r >= 0xD800 && r < 0xE000 {
			continue // not in UTF-8
		}
		want := added[r]
		for c, set := range sets {
			if ok, err := set.MatchRunes([]rune{r}); err != nil {
				t.Fatal(err)
			} else if ok {
				want |= c
			}
		}
		c, n := table.classAt(string(r)+"x", 0)
		if c != want || n != len(string(r)) || table.classOf(r) != want {
			t.Errorf("%U is of class %b and %d bytes, want %b", r, c, n, want)
		}
	}
}

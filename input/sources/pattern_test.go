package sources

import (
	"path"
	"slices"
	"strings"
	"testing"
)

// FuzzPattern compares patterns without ** with path.Match. No accepted pattern may choose a file
// outside of an allowed folder.
func FuzzPattern(f *testing.F) {
	for _, seed := range [][2]string{
		{"a/*.csv", "a/b.csv"}, {"a/**", "a/b/c"}, {"**/c", "c"}, {"a/**/b/**/c", "a/x/b/b/c"}, {"[a-c]?/\\*", "bx/*"}, {"[^a]", "b"},
	} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, text, file string) {
		p, err := parsePattern(text)
		if err != nil {
			return
		}
		again, err := parsePattern(p.text)
		if err != nil || again.text != p.text || again.literal != p.literal {
			t.Fatalf("%q is %q, which is %q, %v", text, p.text, again.text, err)
		}
		names := strings.Split(file, "/")
		if slices.ContainsFunc(names, func(name string) bool { return name == "" || name == "." || name == ".." }) {
			return // no place has such paths
		}
		matches := p.matches(file)
		if matches && !strings.HasPrefix(file, p.literal) {
			t.Fatalf("%q chooses %q, which does not begin with %q", text, file, p.literal)
		}
		if slices.Contains(p.elements, anyFolders) {
			if len(p.elements) > 8 || len(names) > 8 {
				return // matchesSlowly takes too long
			}
			if want := matchesSlowly(p.elements, names); matches != want {
				t.Fatalf("%q, %q: got %t, want %t", text, file, matches, want)
			}
			return
		}
		want, err := path.Match(p.text, file)
		switch {
		case err != nil:
			t.Fatalf("%q was accepted: %v", text, err)
		case matches && !want, !matches && want && !slices.ContainsFunc(names, isHidden) && !strings.Contains(text, "["): // in path.Match, [^a] matches a slash
			t.Fatalf("%q, %q: got %t, want %t", text, file, matches, want)
		}
	})
}

// matchesSlowly tries all numbers of names for each **.
func matchesSlowly(elements, names []string) bool {
	switch {
	case len(elements) == 0:
		return len(names) == 0
	case elements[0] != anyFolders:
		return len(names) > 0 && matchesName(elements[0], names[0]) && matchesSlowly(elements[1:], names[1:])
	}
	for n := range len(names) + 1 {
		if matchesSlowly(elements[1:], names[n:]) {
			return true
		}
		if n < len(names) && isHidden(names[n]) {
			return false
		}
	}
	return false
}

// TestPattern_ManyFolders checks that many ** take no long time.
func TestPattern_ManyFolders(t *testing.T) {
	t.Parallel()
	p, err := parsePattern(strings.Repeat("**/a/", 100) + "b")
	if err != nil || p.matches(strings.Repeat("a/", 500)+"c") {
		t.Errorf("got %v", err)
	}
}

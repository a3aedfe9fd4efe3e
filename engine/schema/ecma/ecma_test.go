package ecma

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/rowmill/rowmill/internal/must"
)

var record = flag.Bool("record", false, "write what Node.js says into testdata and properties.txt")

const recordFile = "testdata/recorded.jsonl"

// A question is a pattern and a text, with the answers of Node.js: with the flag u, and
// without flags.
type question struct {
	pattern, text    string
	unicode, without string
}

// want is the right answer: the one with the flag u, or if the flag refuses the pattern,
// the other one.
func (q question) want() string {
	if q.unicode == "refused" && !slices.Contains(refusedHere, q.pattern) {
		return q.without
	}
	return q.unicode
}

const (
	size  = 1 << 16
	steps = 1 << 20
)

// answer is the answer of this package to a pattern and a text.
func answer(pattern, text string) string {
	p, err := Compile(pattern, size)
	if err != nil {
		return "refused"
	}
	left := steps
	found, err := p.Match(text, &left)
	switch {
	case err != nil:
		return err.Error()
	case found:
		return "match"
	}
	return "none"
}

func questions() []question {
	var all []question
	for _, c := range cases {
		for _, text := range c.texts {
			all = append(all, question{pattern: c.pattern, text: text})
		}
	}
	for _, pattern := range refusedHere {
		all = append(all, question{pattern: pattern})
	}
	return all
}

func recorded(t testing.TB) []question {
	t.Helper()
	file := must.Get(os.Open(recordFile))(t)
	defer file.Close()
	var all []question
	for lines := bufio.NewScanner(file); lines.Scan(); {
		var q [4]string
		must.Succeed(t, json.Unmarshal(lines.Bytes(), &q))
		all = append(all, question{q[0], q[1], q[2], q[3]})
	}
	return all
}

// nodeJS returns the output of a script of testdata. On a machine without Node.js the
// test is skipped, and fails under ROWMILL_CI.
func nodeJS(t *testing.T, script string, input []byte) []byte {
	t.Helper()
	node, err := exec.LookPath("node")
	if err != nil {
		if os.Getenv("ROWMILL_CI") != "" {
			t.Fatal("no node on this machine: install Node.js 20")
		}
		t.Skip("NOT TESTED: patterns against those of JavaScript, since there is no node on this machine")
	}
	cmd := exec.CommandContext(t.Context(), node, script)
	cmd.Stdin, cmd.Stderr = bytes.NewReader(input), os.Stderr
	out := must.Get(cmd.Output())(t)
	return out
}

// ask has Node.js answer the questions.
func ask(t *testing.T, all []question) {
	t.Helper()
	var input bytes.Buffer
	for _, q := range all {
		line, _ := json.Marshal([]string{q.pattern, q.text})
		input.Write(append(line, '\n'))
	}
	answers := strings.Split(strings.TrimSpace(string(nodeJS(t, "testdata/node.js", input.Bytes()))), "\n")
	if len(answers) != len(all) {
		t.Fatalf("%d answers to %d questions", len(answers), len(all))
	}
	for i, line := range answers {
		var two [2]string
		must.Succeed(t, json.Unmarshal([]byte(line), &two))
		all[i].unicode, all[i].without = two[0], two[1]
	}
}

func TestRecord(t *testing.T) {
	if !*record {
		t.Skip("only with -record")
	}
	all := questions()
	ask(t, all)
	var lines bytes.Buffer
	for _, q := range all {
		encoder := json.NewEncoder(&lines)
		encoder.SetEscapeHTML(false)
		must.Succeed(t, encoder.Encode([]string{q.pattern, q.text, q.unicode, q.without}))
	}
	must.Succeed(t, os.WriteFile(recordFile, lines.Bytes(), 0o644))
	scripts := strings.Join(slices.Sorted(maps.Keys(unicode.Scripts)), "\n")
	must.Succeed(t, os.WriteFile("properties.txt", nodeJS(t, "testdata/properties.js", []byte(scripts)), 0o644))
}

func TestPatternsMeanWhatECMA262Says(t *testing.T) {
	t.Parallel()
	all := recorded(t)
	if want := questions(); len(all) != len(want) || len(all) < 200 {
		t.Fatalf("%d recorded answers to %d cases; run go test ./engine/schema/ecma -run Record -record", len(all), len(want))
	}
	for _, q := range all {
		if got := answer(q.pattern, q.text); got != q.want() {
			t.Errorf("%s on %q: %s, want %s", q.pattern, q.text, got, q.want())
		}
	}
}

// TestNodeJSSaysTheSame asks Node.js about all cases and about patterns that are put
// together at random, the same ones each time.
func TestNodeJSSaysTheSame(t *testing.T) {
	t.Parallel()
	all := questions()
	draw := drawer{rand.New(rand.NewPCG(1, 2))}
	for range 4000 {
		all = append(all, question{pattern: draw.pattern(3), text: draw.text()})
	}
	ask(t, all)
	matches := 0
	for _, q := range all {
		got := answer(q.pattern, q.text)
		if got != q.want() {
			t.Errorf("%s on %q: %s, want %s", q.pattern, q.text, got, q.want())
		}
		if got == "match" {
			matches++
		}
	}
	if matches < len(all)/5 || matches > len(all)*4/5 {
		t.Errorf("%d of %d match: such patterns say little", matches, len(all))
	}
}

// A drawer makes patterns of a few groups and short texts that they may match.
type drawer struct{ *rand.Rand }

func (d drawer) of(list ...string) string { return list[d.IntN(len(list))] }

func (d drawer) text() string {
	var b strings.Builder
	for range d.IntN(9) {
		b.WriteString(d.of("a", "a", "b", "b", "c", "1", "_", " ", "\n", "é", "😀"))
	}
	return b.String()
}

// pattern makes a pattern with up to nine groups, so that \1 names the first group or none.
func (d drawer) pattern(depth int) string {
	p := d.alternatives(depth)
	if d.IntN(4) == 0 {
		p = "(" + d.of("a", "b", "ab?", "[ab]+", "a|b") + ")" + p + `\1` + d.of("", "b", "$", p)
	}
	return d.of("", "^") + p + d.of("", "$")
}

func (d drawer) alternatives(depth int) string {
	p := d.terms(depth)
	for range d.IntN(3) * d.IntN(2) {
		p += "|" + d.terms(depth)
	}
	return p
}

func (d drawer) terms(depth int) (p string) {
	for range d.IntN(4) {
		p += d.term(depth)
	}
	return p
}

func (d drawer) term(depth int) string {
	if depth > 0 && d.IntN(3) == 0 {
		inner := d.alternatives(depth-1) + ")"
		switch d.IntN(8) {
		case 0:
			return "(?=" + inner
		case 1:
			return "(?!" + inner
		case 2:
			return "(?<=" + inner
		case 3:
			return "(?<!" + inner
		case 4, 5:
			return "(?:" + inner + d.quantifier()
		}
		return "(" + inner + d.quantifier()
	}
	if d.IntN(8) == 0 {
		return d.of("^", "$", `\b`, `\B`)
	}
	return d.of("a", "b", "c", ".", "[ab]", "[^a]", `\w`, `\W`, `\d`, `\s`, "é", "😀", `\p{L}`, "[^]", "[]", "[b-é]", `\u{1F600}`) + d.quantifier()
}

func (d drawer) quantifier() string {
	return d.of("", "", "", "", "*", "+", "?", "*?", "+?", "??", "{2}", "{1,2}", "{0,2}?", "{2,}", "{0}")
}

// TestBothMatchersAgree runs patterns that Go's regexp can run by backtracking too.
func TestBothMatchersAgree(t *testing.T) {
	t.Parallel()
	for _, q := range recorded(t) {
		agree(t, q.pattern, q.text)
	}
}

func agree(t *testing.T, pattern, text string) {
	t.Helper()
	p, err := Compile(pattern, size)
	if err != nil || p.linear == nil {
		return
	}
	parsed := parser{text: []rune(pattern), most: size}
	root := must.Get(parsed.parse())(t)
	left := steps
	found, err := newProgram(root, parsed.groups, parsed.wanted).match(text, &left)
	if err == nil && found != p.linear.MatchString(text) {
		t.Errorf("%s on %q: %t by backtracking, %t by Go's regexp", pattern, text, found, !found)
	}
}

// maxChanged is how many characters of a property may differ. Go and Node.js have
// different versions of Unicode, and each version moves a few characters.
const maxChanged = 64

// TestPropertiesHaveTheirCharacters compares sets of characters with the sets of Node.js.
// Characters that one of the two versions of Unicode does not have are left out.
func TestPropertiesHaveTheirCharacters(t *testing.T) {
	t.Parallel()
	names := []string{"Any", "ASCII", "Assigned", "Alphabetic", "Lowercase", "Uppercase", "Cased", "Math", "ID_Start", "ID_Continue"}
	names = append(names, slices.Collect(maps.Keys(known().properties))...)
	names = append(names, slices.Collect(maps.Keys(shortNames))...)
	names = append(names, slices.Collect(maps.Values(shortNames))...)
	for name := range unicode.Categories {
		names = append(names, name, "gc="+name)
	}
	names = append(names, slices.Collect(maps.Keys(unicode.CategoryAliases))...)
	for name := range unicode.Properties {
		names = append(names, name)
	}
	for name := range unicode.Scripts {
		names = append(names, "Script="+name)
	}
	for name := range known().scripts {
		names = append(names, "sc="+name)
	}
	slices.Sort(names)
	names = slices.Compact(names)
	out := nodeJS(t, "testdata/sets.js", []byte(strings.Join(names, "\n")))
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	if len(lines) != len(names) {
		t.Fatalf("%d answers for %d names", len(lines), len(names))
	}
	theirs := map[string]charSet{}
	for i, line := range lines {
		if line == "refused" {
			continue
		}
		var s charSet
		must.Succeed(t, json.Unmarshal([]byte(line), &s))
		theirs[names[i]] = s
	}
	ours, _ := binaryPropertySet("Assigned")
	absent := append(append(theirs["Assigned"].complement(), ours.complement()...), 0xd800, 0xdfff, 0x32400, 0xdffff, 0xe0200, unicode.MaxRune).normalized()
	for _, name := range names {
		name, value, named := strings.Cut(name, "=")
		got, err := propertySet(name, value, named)
		want, taken := theirs[strings.TrimSuffix(name+"="+value, "=")]
		if taken != (err == nil) {
			t.Errorf("%s=%s: %v, taken by Node.js: %t", name, value, err, taken)
			continue
		}
		changed := 0
		wrong := append(want.without(got), got.without(want)...).normalized().without(absent)
		for i := 0; i < len(wrong); i += 2 {
			changed += int(wrong[i+1]-wrong[i]) + 1
		}
		if changed > maxChanged {
			t.Errorf("%s=%s differs in %d characters, from %x on", name, value, changed, wrong[0])
		}
	}
}

// TestWorkIsBounded runs patterns that backtrack for ever, by steps and not by a clock.
func TestWorkIsBounded(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("a", 1<<20)
	for name, c := range map[string]struct {
		pattern, text string
		want          error
	}{
		"nested repetitions":    {`^(?=(a+)+$)`, strings.Repeat("a", 40) + "b", errSteps},
		"alternatives":          {`^(?!(a|aa)+$)`, strings.Repeat("a", 60) + "b", errSteps},
		"back references":       {`^(.*)(.*)(.*)(.*)\1\2\3\4x$`, strings.Repeat("a", 200), errSteps},
		"every place":           {`(?!x)a*b`, long, errSteps},
		"a long back reference": {`^(a*)(?:\1)*b`, long, errSteps},
		"nothing for ever":      {`^(?=)(?:){2000000000}$`, "", ErrPlaces},
		"lookbehind":            {`(?<=^(a+)+)b`, strings.Repeat("a", 50) + "cb", nil},
		"places":                {`^(?!x)(?:a|b)*$`, strings.Repeat("a", 2*MaxPlaces), ErrPlaces},
		"one long run":          {`^(?!x)[^b]*$`, long, nil},
		"a counted run":         {`^(?!x).{1,5000000}$`, long, nil},
		"a lazy run":            {`^(?!x).*?$`, long, nil},
		"many steps for Go":     {`(a{0,1000}){0,1}(b{0,1000})c`, long, errSteps},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, err := Compile(c.pattern, size)
			must.Succeed(t, err)
			left := 1 << 25
			if _, err = p.Match(c.text, &left); !errors.Is(err, c.want) {
				t.Errorf("%v, want %v", err, c.want)
			}
			if left < -len(c.text)-MaxPlaces && p.linear == nil {
				t.Errorf("%d steps too many", -left)
			}
		})
	}
}

// TestStepsAreTheSame pins the cost of a match, which must not differ between machines.
func TestStepsAreTheSame(t *testing.T) {
	t.Parallel()
	p := must.Get(Compile(cases[0].pattern, size))(t)
	for range 2 {
		left := steps
		if found, err := p.Match("someone@mail.example.org", &left); !found || err != nil || steps-left != 129 {
			t.Errorf("%t, %v after %d steps, want 129", found, err, steps-left)
		}
	}
}

func TestLargePatternsAreRefused(t *testing.T) {
	t.Parallel()
	for name, pattern := range map[string]string{
		"groups":     strings.Repeat("(", 10_000) + strings.Repeat(")", 10_000),
		"lookaheads": strings.Repeat("(?=", 10_000) + strings.Repeat(")", 10_000),
		"sets":       strings.Repeat(`\p{L}`, 10_000),
		"a class":    "[" + strings.Repeat(`\P{L}`, 10_000) + "]",
		"joined":     strings.Repeat(`[\p{Assigned}\P{Assigned}]`, 300),
		"counts":     strings.Repeat("x{0,1000}", 70),
		"characters": "(?=" + strings.Repeat("x", size) + ")",
	} {
		if _, err := Compile(pattern, size); err == nil || !strings.Contains(err.Error(), "less") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestErrorsSayWhatIsWrong(t *testing.T) {
	t.Parallel()
	for pattern, want := range map[string]string{
		`^\Aabc`:      `"\\A" at character 2 means nothing in ECMA-262; write ^`,
		`a\Z`:         `"\\Z" at character 2 means nothing in ECMA-262; write $`,
		`a\z`:         `"\\z" at character 2 means nothing in ECMA-262; write $`,
		`(?P<n>a)`:    `"(?P" at character 1 begins no group of ECMA-262; write (?<name>…)`,
		`(?i)a`:       `"(?i" at character 1 begins no group of ECMA-262, which has no flags in a pattern; write both cases, such as [Aa]`,
		`a(?s:.)`:     `"(?s" at character 2 begins no group of ECMA-262, which has no flags in a pattern; write [^] for a dot that takes all characters`,
		`(?m)^a`:      `"(?m" at character 1 begins no group of ECMA-262, which has no flags in a pattern; leave the flag out, and write its effect`,
		`é(a`:         `"(" at character 2 opens a group that nothing closes; write \( or add )`,
		`a)`:          `")" at character 2 closes a group that nothing opens; write \)`,
		`a**`:         `"*" at character 3 has nothing before it to repeat; write \*`,
		`\p{Foo}`:     `"\\p{Foo}" at character 1 names a property that is not known here`,
		`(a)\2`:       `\2 names a group that the pattern lacks; it has 1 groups`,
		`[z-a]`:       `"z-a" at character 2 is a range that ends before it begins`,
		`x{5,2}`:      `"{5,2}" at character 2 has a smallest number above the largest`,
		`(?<=a)*`:     `"*" at character 7 repeats "(?<=a)", which cannot be repeated`,
		`[\1]`:        `"\\1" at character 2 is an octal number; write \x and two digits`,
		`\u12`:        `"\\u" at character 1 needs 4 hexadecimal digits`,
		`(?<1>a)`:     `"(?<" at character 1 is no name of a group; write (?<name>…)`,
		`\k<a>`:       `\k<a> names a group that the pattern lacks`,
		`[a`:          `"[" at character 1 opens a class that nothing closes; write \[ or add ]`,
		`\`:           `"\\" at character 1 ends the pattern; write \\`,
		`\u{110000}a`: `"\\u{110000}" at character 1 is no character; write up to \u{10FFFF}`,
	} {
		if _, err := Compile(pattern, size); err == nil || err.Error() != want {
			t.Errorf("%s: %v\nwant %s", pattern, err, want)
		}
	}
}

// FuzzMatch looks for patterns and texts that both matchers answer differently, that
// have another answer than the recorded one, or that take more steps than allowed.
func FuzzMatch(f *testing.F) {
	known := map[[2]string]string{}
	for _, q := range recorded(f) {
		f.Add(q.pattern, q.text)
		known[[2]string{q.pattern, q.text}] = q.want()
	}
	f.Fuzz(func(t *testing.T, pattern, text string) {
		if len(pattern) > 1<<10 || len(text) > 1<<10 {
			return // length alone costs time, and is bounded elsewhere
		}
		got := answer(pattern, text)
		if want, ok := known[[2]string{pattern, text}]; ok && got != want {
			t.Errorf("%s on %q: %s, want %s", pattern, text, got, want)
		}
		agree(t, pattern, text)
	})
}

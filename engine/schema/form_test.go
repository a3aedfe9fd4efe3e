package schema

import (
	"strings"
	"testing"
)

func list(n int, text string) []any {
	made := make([]any, n)
	for i := range made {
		made[i] = text
	}
	return made
}

func TestConstraint(t *testing.T) {
	t.Parallel()
	const grammar = "root ::= \"yes (\" | [^)\\]\"] tail{2,5} # a comment with (((\ntail ::= (\"a\" | \"b\")* \"\\\"{\"\n"
	for name, c := range map[string]struct {
		rule   map[string]any
		answer string
		want   string // part of the violation
	}{
		"regex":                {map[string]any{"regex": `[a-z]+@example\.org`}, "ab@example.org", ""},
		"regex, with anchors":  {map[string]any{"regex": `^\d{4}$`}, "2026", ""},
		"regex, of lines":      {map[string]any{"regex": `a.b`}, "a\nb", ""},
		"regex, alternatives":  {map[string]any{"regex": `a|b`}, "b", ""},
		"regex, part matches":  {map[string]any{"regex": `a|b`}, "bc", "does not match"},
		"regex, line matches":  {map[string]any{"regex": `^a$`}, "a\nb", "does not match"},
		"regex, cut":           {map[string]any{"regex": `\d{4}`}, "20", "does not match"},
		"choice":               {map[string]any{"choice": []any{"yes", "no"}}, "no", ""},
		"choice, another":      {map[string]any{"choice": []any{"yes", "no"}}, "No", "not one of the choices"},
		"choice, with a space": {map[string]any{"choice": []any{"yes", "no"}}, " no", "not one of the choices"},
		"grammar":              {map[string]any{"grammar": grammar}, "anything", ""},
		"grammar of Lark":      {map[string]any{"grammar": `start: /[(]{3}\(/ "x"i ~ 3`}, "anything", ""},
	} {
		f, err := CompileConstraint(c.rule)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got := f.Violation(c.answer); (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: violation of %q is %q, want %q", name, got, c.answer, c.want)
		}
	}
}

func TestConstraintLimits(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		rule map[string]any
		want string
	}{
		"nothing":           {nil, "one of regex, choice and grammar"},
		"two rules":         {map[string]any{"regex": "a", "grammar": "b"}, "one of regex, choice and grammar"},
		"another rule":      {map[string]any{"json": "{}"}, "wrong type or name"},
		"a regex of 5":      {map[string]any{"regex": 5}, "wrong type or name"},
		"choices as text":   {map[string]any{"choice": "a"}, "wrong type or name"},
		"an empty regex":    {map[string]any{"regex": ""}, "an empty regex"},
		"an empty grammar":  {map[string]any{"grammar": " \n"}, "an empty grammar"},
		"NUL":               {map[string]any{"regex": "a\x00"}, "NUL"},
		"lookahead":         {map[string]any{"regex": "(?=a)b"}, "no lookaround"},
		"out of its group":  {map[string]any{"regex": "a)|(b"}, "not valid RE2 syntax"},
		"a long regex":      {map[string]any{"regex": strings.Repeat("x", maxPatternBytes+1)}, "8193 bytes"},
		"steps":             {map[string]any{"regex": strings.Repeat("x{0,1000}", 5)}, "more than 4096"},
		"no choice":         {map[string]any{"choice": []any{}}, "0 choices"},
		"many choices":      {map[string]any{"choice": list(1001, "a")}, "1001 choices; give 1 to 1000"},
		"a choice of 1":     {map[string]any{"choice": []any{"a", 1}}, "choice[1]"},
		"an empty choice":   {map[string]any{"choice": []any{""}}, "choice[0]"},
		"a long choice":     {map[string]any{"choice": list(1, strings.Repeat("x", 1025))}, "1 to 1024 bytes"},
		"a long grammar":    {map[string]any{"grammar": "root ::= " + strings.Repeat("\"x\" ", 20_000)}, "80009 bytes"},
		"a deep grammar":    {map[string]any{"grammar": "root ::= " + strings.Repeat("(", 65) + "\"x\"" + strings.Repeat(")", 65)}, "nested more than 64"},
		"a great number":    {map[string]any{"grammar": `root ::= "x"{99999999999999999999}`}, "more than 65536 steps"},
		"repeated repeats":  {map[string]any{"grammar": `root ::= (("x"{1000} "y"){0,1000}){3,}`}, "more than 65536 steps"},
		"two numbers":       {map[string]any{"grammar": `root ::= ("x" "y"){1,70000}`}, "more than 65536 steps"},
		"repeated at once":  {map[string]any{"grammar": `root ::= "x"{1000}{1000}`}, "more than 65536 steps"},
		"unclosed, repeats": {map[string]any{"grammar": `root ::= [a]{1000000`}, "more than 65536 steps"},
	} {
		if _, err := CompileConstraint(c.rule); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v; want %q", name, err, c.want)
		}
	}
}

// The check ends on a grammar that is cut off at any place.
func TestGrammarsCutOff(t *testing.T) {
	t.Parallel()
	for _, text := range []string{`root ::= "a\`, `[`, `[\`, `{`, `{3,`, `#`, `"`, "(){2}", ")){2}", "root ::= [\\"} {
		if err := checkGrammar(text); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
}

package function_test

import (
	"encoding/json"
	"errors"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/input/function"
	"github.com/rowmill/rowmill/internal/must"
)

// inputs declares fields; a name that ends in ? is optional.
func inputs(names ...string) (declared []rowmill.FunctionInput) {
	for _, name := range names {
		plain, optional := strings.CutSuffix(name, "?")
		declared = append(declared, rowmill.FunctionInput{Name: plain, Required: !optional})
	}
	return declared
}

func newPrompt(t *testing.T, text string, names ...string) *function.Prompt {
	t.Helper()
	p := must.Get(function.NewPrompt(rowmill.FunctionPrompt{Inputs: inputs(names...), Prompt: text}))(t)
	return p
}

func TestRender(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ prompt, want string }{
		{"no fields", "no fields"},
		{"{{a}}", "A"},
		{"{{a}}{{b}}{{a}}", "ABA"},
		{"x {{ a }} y {{\tb\n}} z", "x A y B z"},
		{`{"json": {"nested": 1}} {{a}}}`, `{"json": {"nested": 1}} A}`},
		{"{ {a} } }} {{product name}}", "{ {a} } }} P"},
		{"é{{größe}}é", "éGé"},
	} {
		p := newPrompt(t, test.prompt, "a", "b", "product name", "größe")
		values := []string{"A", "B", "P", "G"}
		if got := p.Render(values); got != test.want || p.Size(values) != int64(len(got)) {
			t.Errorf("%q makes %q of %d bytes, want %q", test.prompt, got, p.Size(values), test.want)
		}
	}
}

// Placeholders in a value are not replaced.
func TestRender_PlaceholdersInValuesStay(t *testing.T) {
	t.Parallel()
	p := newPrompt(t, "{{a}} {{b}}", "a", "b")
	if got := p.Render([]string{"{{b}}", "}}{{a"}); got != "{{b}} }}{{a" {
		t.Errorf("got %q", got)
	}
}

func TestNewPrompt_Refuses(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		prompt, message string
		offset          int
	}{
		{"ab {{x}}", "{{x}} is not among the declared inputs", 3},
		{"{{ a }}{{a}}é{{x}}", "{{x}} is not among", 14},
		{"{{a}} {{b", "not closed", 6},
		{"{{a}} {{ }}", "is empty", 6},
		{"{{{a}}}", "must not contain braces", 0},
		{"{{#if a}}", `{{#if a}} is not among the declared inputs`, 0},
		{"{{a\nb}}", "must not contain line breaks", 0},
		{"{{" + strings.Repeat("a", 65) + "}}", "more than 64", 0},
		{"{{\xff}}", "not UTF-8", 0},
	} {
		_, err := function.NewPrompt(rowmill.FunctionPrompt{Inputs: inputs("a"), Prompt: test.prompt})
		var syntax *function.SyntaxError
		if !errors.As(err, &syntax) || syntax.Offset != test.offset || !strings.Contains(err.Error(), test.message) {
			t.Errorf("%q: %v; want %q at byte %d", test.prompt, err, test.message, test.offset)
		}
	}
}

// By the API, input values become strings, and null becomes the empty string.
func TestText_ConvertsValues(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]string{
		`null`: "", `"a\n\u00e9"`: "a\né", `""`: "", `1`: "1", `1.0`: "1.0", `-1e400`: "-1e400",
		`12345678901234567890`: "12345678901234567890", `true`: "true", `false`: "false",
		`[]`: "[]", ` [1, "a",
		 null] `: `[1,"a",null]`,
		`{"z": 1.50, "a": {"é": "<&>"}}`: `{"z":1.50,"a":{"é":"<&>"}}`,
		`["\u00e9\u003c", "\"\\"]`:       `["é<","\"\\"]`,
	} {
		if got := function.FormatValue(json.RawMessage(value)); got != want {
			t.Errorf("%s becomes %q, want %q", value, got, want)
		}
	}
}

// By the API, required fields must be present, optional fields may be missing, and
// other fields are ignored.
func TestValues(t *testing.T) {
	t.Parallel()
	p := newPrompt(t, "{{a}}", "a", "b", "c?", "d?")
	for row, want := range map[string]struct{ values, missing []string }{
		`{"a":1,"b":"x","extra":[1]}`: {[]string{"1", "x", "", ""}, nil},
		`{"d":{"k":1},"a":null}`:      {[]string{"", "", "", `{"k":1}`}, []string{"b"}},
		`{}`:                          {make([]string, 4), []string{"a", "b"}},
		`{"a":1,"a":2,"b":3}`:         {[]string{"2", "3", "", ""}, nil},
	} {
		fields := must.Get(function.ParseRow([]byte(row)))(t)
		values, missing := p.Values(fields)
		if diff := cmp.Diff([][]string{want.values, want.missing}, [][]string{values, missing}); diff != "" {
			t.Errorf("%s (-want +got):\n%s", row, diff)
		}
	}
	for _, row := range []string{"null", `"secret"`, "[1]", "{", ""} {
		if _, err := function.ParseRow([]byte(row)); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: %v", row, err)
		}
	}
}

// placeholder is an independent definition of a placeholder.
var placeholder = regexp.MustCompile(`\{\{\s*([^{}]*?)\s*\}\}`)

// FuzzPrompt compares the renderer with a regular expression.
func FuzzPrompt(f *testing.F) {
	for _, seed := range []string{"", "{{a}}", "x{{ a }}y{{b}}", "{{{a}}}", "{{a}}}", "}}{{", "{{a}} {{", "{{a{{b}}", "{ {a}}", "{{\u00a0a}}", "{{\x00}}", "{{é\xff}}"} {
		f.Add(seed, "{{a}}", "v")
	}
	f.Fuzz(func(t *testing.T, prompt, first, second string) {
		p, err := function.NewPrompt(rowmill.FunctionPrompt{Inputs: inputs("a", "b"), Prompt: prompt})
		values := map[string]string{"a": first, "b": second}
		if err != nil {
			var syntax *function.SyntaxError
			if !errors.As(err, &syntax) || !strings.HasPrefix(prompt[syntax.Offset:], "{{") {
				t.Fatalf("%q: %v does not give the position of the braces", prompt, err)
			}
			return
		}
		want := placeholder.ReplaceAllStringFunc(prompt, func(found string) string {
			value, known := values[placeholder.FindStringSubmatch(found)[1]]
			if !known {
				// strings.TrimSpace removes more kinds of blanks than \s.
				value, known = values[strings.TrimSpace(found[2:len(found)-2])]
			}
			if !known {
				t.Fatalf("%q was accepted with %q", prompt, found)
			}
			return value
		})
		given := []string{first, second}
		if got := p.Render(given); got != want || p.Size(given) != int64(len(got)) {
			t.Fatalf("%q makes %q of %d bytes, want %q", prompt, got, p.Size(given), want)
		}
	})
}

// FuzzText checks that FormatValue keeps a JSON value unchanged.
func FuzzText(f *testing.F) {
	for _, seed := range []string{`null`, `"\ud83d\ude00 \ud83d"`, `[1,{"a":"\u0000\\\""}]`, `{"\u00e9":[]}`, ` 1.50 `, `["\\u00e9"]`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		var want any
		if json.Unmarshal(raw, &want) != nil {
			return
		}
		text := function.FormatValue(raw)
		switch v := want.(type) {
		case nil:
			want = ""
		case string:
			want = v
		default:
			if strings.Contains(text, "\n") {
				t.Fatalf("%q becomes %q", raw, text)
			}
			var got any
			if err := json.Unmarshal([]byte(text), &got); err != nil {
				t.Fatalf("%q becomes %q: %v", raw, text, err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Fatalf("%q becomes %q (-want +got):\n%s", raw, text, diff)
			}
			return
		}
		if text != want {
			t.Fatalf("%q becomes %q, want %q", raw, text, want)
		}
	})
}

package schema

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/rowmill/rowmill/internal/must"
)

func compile(t testing.TB, text string) *Schema {
	t.Helper()
	s := must.Get(Compile(json.RawMessage(text)))(t)
	return s
}

func TestCompileAcceptsSchemas(t *testing.T) {
	t.Parallel()
	text, err := Check(json.RawMessage("{ \"type\" : \"object\",\n \"properties\": {\"a b\": {\"minimum\": -1.5e300}} }"))
	if err != nil || string(text) != `{"type":"object","properties":{"a b":{"minimum":-1.5e300}}}` {
		t.Errorf("text = %s, %v, want it without white space", text, err)
	}
	for name, text := range map[string]string{
		"empty":                   `{}`,
		"an older draft":          `{"$schema":"http://json-schema.org/draft-07/schema#","definitions":{"a":{}},"$ref":"#/definitions/a"}`,
		"recursion":               `{"$defs":{"n":{"properties":{"next":{"$ref":"#/$defs/n"}}}},"$ref":"#/$defs/n"}`,
		"a reference by full URI": `{"$defs":{"n":{"type":"null"}},"$ref":"` + address + `#/$defs/n"}`,
		"levels":                  strings.Repeat(`{"not":`, maxLevels-1) + "{}" + strings.Repeat("}", maxLevels-1),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			compile(t, text)
		})
	}
}

func TestCompileErrors(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ text, want string }{
		"nothing":            {``, "must be an object"},
		"no object":          {`[]`, "must be an object"},
		"no JSON":            {`{"a":}`, "not valid JSON"},
		"two values":         {`{} {}`, "not valid JSON"},
		"no schema":          {`{"type":"strin"}`, "is not a valid JSON Schema: at /type: value must be one of 'array', "},
		"two errors":         {`{"properties":{"a":{"type":"strin"}},"required":"a"}`, "'string'; at /required: got string, want array"},
		"a remote reference": {`{"$ref":"https://example.com/a"}`, "leaves the schema"},
		"a file":             {`{"$ref":"file:///etc/hostname"}`, "leaves the schema"},
		"a remote draft":     {`{"$schema":"https://example.com/draft"}`, "leaves the schema"},
		"too long":           {`{"title":"` + strings.Repeat("x", maxBytes) + `"}`, "send a smaller schema"},
		"too deep":           {strings.Repeat(`{"not":`, maxLevels) + "{}" + strings.Repeat("}", maxLevels), "65 levels deep"},
		"a tiny step":        {`{"multipleOf":1e-99999999}`, `at "/multipleOf" that is out of range: 1e-99999999`},
		"a huge bound":       {`{"properties":{"a/b":{"anyOf":[{},{"maximum":1E+9999999}]}}}`, `"/properties/a~1b/anyOf/1/maximum"`},
		"a huge constant":    {`{"enum":[1,2e99999999999999999999]}`, `"/enum/1"`},
		"many digits":        {`{"minimum":` + strings.Repeat("9", 2000) + `}`, `"/minimum"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := Compile(json.RawMessage(c.text))
			if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), address) {
				t.Errorf("error = %v, want one with %q", err, c.want)
			}
		})
	}
}

func TestViolation(t *testing.T) {
	t.Parallel()
	const object = `{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}`
	distinct := `[` + strings.Repeat("0,", 25) + `1e-99999999]` // the library compares more than 20 elements by hash
	for name, c := range map[string]struct{ schema, answer, want string }{
		"conforms":                 {object, ` {"n": 1} `, ""},
		"as an integer":            {object, `{"n": 1e3}`, ""},
		"of another type":          {object, `{"n": "1"}`, "at '/n': got string, want integer"},
		"two problems":             {object[:len(object)-1] + `,"maxProperties":1}`, `{"a":1,"b":2}`, "; the whole answer: "},
		"a second value":           {object, `{"n": 1} x`, "it is not JSON"},
		"cut":                      {object, `{"n": `, "it is not JSON"},
		"below a minimum":          {`{"type":"number","minimum":0}`, `-1e-300`, "minimum"},
		"a large float":            {`{"minimum":0}`, `1.7976931348623157e308`, ""},
		"no fraction for a bound":  {`{"type":"number","minimum":0}`, `1e-99999999`, "out of range: 1e-99999999"},
		"no fraction for a step":   {`{"multipleOf":3}`, `1e9999999`, "out of range"},
		"no fraction to compare":   {`{"uniqueItems":true}`, distinct, `"/25" is out of range`},
		"no fraction, not used":    {`{}`, `{"a":[1E-400]}`, `"/a/0" is out of range`},
		"an exponent beyond int64": {`{}`, `1e+99999999999999999999`, "out of range"},
		"an exponent with zeros":   {`{}`, `1e-00000000000000000300`, ""},
		"many digits":              {`{}`, strings.Repeat("7", 5000), "out of range: 77777777777777777777777777777777…"},
		"a long problem":           {`{"additionalProperties":false}`, `{"` + strings.Repeat("ä", 600) + `":1}`, "additional properties"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := compile(t, c.schema).Violation(t.Context(), c.answer)
			if c.want == "" && got != "" || !strings.Contains(got, c.want) {
				t.Errorf("violation = %q, want %q", got, c.want)
			}
			if len(got) > maxProblem+len("…") {
				t.Errorf("the violation has %d bytes", len(got))
			}
		})
	}
}

// A panic of the library must not end the process.
func TestPanicIsAViolation(t *testing.T) {
	t.Parallel()
	if got := new(Schema).Violation(t.Context(), `{}`); got != "it cannot be checked" {
		t.Errorf("violation = %q", got)
	}
}

// branches returns a schema with this many levels. Each level names the next one twice,
// in a keyword that takes a list, below a property if one is given.
func branches(levels int, keyword, property, draft string) string {
	name := "$defs"
	if draft != "" {
		name = "definitions"
	}
	text := fmt.Sprintf(`{"$schema":%q,"$ref":"#/%[2]s/l0","%[2]s":{`, cmp.Or(draft, "https://json-schema.org/draft/2020-12/schema"), name)
	for i := range levels {
		next := fmt.Sprintf(`{"$ref":"#/%s/l%d"}`, name, (i+1)%(levels+1))
		if property != "" {
			next = fmt.Sprintf(`{"properties":{%q:%s}}`, property, next)
		}
		text += fmt.Sprintf(`"l%d":{"%s":[%s,{"title":"t","allOf":[%s]}]},`, i, keyword, next, next)
	}
	return text + fmt.Sprintf(`"l%d":{"type":"object"}}}`, levels)
}

// A schema that doubles the work with every level hits the limit, for every keyword and
// draft. The next answer starts with all steps again.
func TestBranchesAreBounded(t *testing.T) {
	t.Parallel()
	deep := strings.Repeat(`{"a":`, 40) + "{}" + strings.Repeat("}", 40)
	for name, c := range map[string]struct{ schema, answer string }{
		"allOf":           {branches(40, "allOf", "", ""), `{}`},
		"oneOf":           {branches(40, "oneOf", "", ""), `{}`},
		"an older draft":  {branches(40, "allOf", "", "http://json-schema.org/draft-07/schema#"), `{}`},
		"the oldest":      {branches(40, "anyOf", "", "http://json-schema.org/draft-04/schema#"), `1`},
		"another version": {branches(40, "allOf", "", "https://json-schema.org/draft/2019-09/schema"), `{}`},
		"with the answer": {branches(40, "allOf", "a", ""), deep},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := compile(t, c.schema)
			s.steps.limit /= 16 // each step takes microseconds
			if got := s.Violation(t.Context(), c.answer); !strings.Contains(got, "too many branches") {
				t.Errorf("violation = %q", got)
			}
		})
	}
	s := compile(t, branches(12, "allOf", "", ""))
	for range 100 { // all answers together need more steps than one answer may take
		if got := s.Violation(t.Context(), `{}`); got != "" {
			t.Fatalf("violation = %q of a conforming answer", got)
		}
	}
}

// A check ends when its context ends.
func TestStepsEndWithTheirContext(t *testing.T) {
	t.Parallel()
	s := compile(t, branches(40, "allOf", "", ""))
	ctx, cancel := context.WithCancel(t.Context())
	s.steps.ctx, s.steps.taken = ctx, checkEvery-1
	cancel()
	defer func() {
		if err, _ := recover().(error); !errors.Is(err, errStopped) {
			t.Errorf("a step after the end of the context panics with %v", err)
		}
	}()
	if got := s.Violation(ctx, `{}`); got != "" {
		t.Errorf("violation = %q", got)
	}
	s.steps.Validate(nil, nil)
}

// slow reports whether f takes longer than most three times in a row: a stall of the
// machine seldom happens three times.
func slow(most time.Duration, f func()) bool {
	for range 3 {
		began := time.Now()
		f()
		if time.Since(began) <= most {
			return false
		}
	}
	return true
}

// Any number is checked within a second, and every float64 is accepted.
func TestNumbersAreChecked(t *testing.T) {
	t.Parallel()
	s := compile(t, `{"minimum":-1e308,"multipleOf":0.01}`)
	rapid.Check(t, func(t *rapid.T) {
		number := rapid.StringMatching(`-?(0|[1-9][0-9]{0,40})(\.[0-9]{1,40})?([eE][+-]?[0-9]{1,12})?`).Draw(t, "number")
		if slow(time.Second, func() { s.violation(context.Background(), number) }) {
			t.Fatalf("%s takes more than a second", number)
		}
		exact, _ := json.Marshal(rapid.Float64().Draw(t, "float"))
		if place, found := findOutOfRange(json.Number(exact)); found != "" {
			t.Fatalf("%s at %q is out of range", exact, place)
		}
	})
}

// FuzzViolation looks for schemas and answers that make the library panic, including
// panics that Violation recovers.
func FuzzViolation(f *testing.F) {
	f.Fuzz(func(t *testing.T, schema, answer string) {
		if len(schema)+len(answer) > 1<<10 {
			return // costs that come from the length alone do not count
		}
		s, err := Compile(json.RawMessage(schema))
		if err == nil {
			s.violation(t.Context(), answer)
		}
	})
}

// FuzzCompile looks for small schemas that would block a node: a schema of a few
// hundred bytes must compile, or be refused with a reason, within two seconds.
func FuzzCompile(f *testing.F) {
	f.Add(`{"$defs":{"a":{"allOf":[{"$ref":"#/$defs/b"},{"$ref":"#/$defs/b","title":"x"}]},"b":{"allOf":[{"$ref":"#/$defs/a"}]}},"$ref":"#/$defs/a"}`)
	f.Add(`{"patternProperties":{"(x{0,1000}){0,1}":{"pattern":"((a{1,100}){1,100})"}},"multipleOf":1e-300}`)
	f.Add(`{"$dynamicRef":"#x","$dynamicAnchor":"x","unevaluatedItems":{"$recursiveRef":"#"},"enum":[1e324,-0]}`)
	f.Fuzz(func(t *testing.T, schema string) {
		if len(schema) > 1<<10 {
			return
		}
		var s *Schema
		var err error
		if slow(2*time.Second, func() { s, err = Compile(json.RawMessage(schema)) }) {
			t.Error("it takes more than two seconds")
		}
		if (s == nil) == (err == nil) || err != nil && len(err.Error()) > 4096 {
			t.Errorf("%v, %v", s, err)
		}
	})
}

// Violation does not decode an answer after its context has ended.
func TestViolation_EndedContext(t *testing.T) {
	t.Parallel()
	s := must.Get(Compile(json.RawMessage(`{"type":"object"}`)))(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if got := s.Violation(ctx, "{"); got != "" {
		t.Errorf("violation = %q", got)
	}
}

// Check removes the wrappers that clients send around a schema: the whole
// response_format, its json_schema (the case schema-openai-wrapper), the form of the
// Responses API (NVIDIA-NeMo/Switchyard 377), and the forms of llama.cpp's
// documentation (ggml-org/llama.cpp 28697, ollama/ollama 3102).
func TestCheck_OpenAIWrapper(t *testing.T) {
	t.Parallel()
	const inner = `{"type":"object","properties":{"a":{"type":"integer"}},"required":["a"]}`
	for _, wrapped := range []string{
		inner,
		`{"name":"x","strict":true,"schema":` + inner + `}`,
		`{"name":"x","description":"d","schema":` + inner + `}`,
		`{"type":"json_schema","json_schema":{"name":"x","strict":true,"schema":` + inner + `}}`,
		`{"type":"json_schema","json_schema":{"schema":` + inner + `,"strict":false}}`,
		`{"type":"json_schema","name":"x","strict":true,"schema":` + inner + `}`,
		`{"type":"json_schema","schema":` + inner + `}`,
		`{"type":"json_object","schema":` + inner + `}`,
	} {
		got, err := Check([]byte(wrapped))
		if err != nil || string(got) != inner {
			t.Errorf("%s becomes %s, %v", wrapped, got, err)
		}
	}
	for _, schemas := range []string{`{"schema":{"type":"object"}}`, `{"type":"object","name":"x"}`, `{"properties":{"schema":{}},"name":"x"}`, `{"type":"object","description":"d"}`} {
		if got, err := Check([]byte(schemas)); err != nil || string(got) != schemas {
			t.Errorf("%s becomes %s, %v", schemas, got, err)
		}
	}
}

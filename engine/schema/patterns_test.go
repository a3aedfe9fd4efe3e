package schema

import (
	"encoding/json"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"testing"
)

// schemaOfPatterns returns a schema with n patterns; %d in the pattern becomes its
// number.
func schemaOfPatterns(draft, pattern string, n int) string {
	fields := make([]string, n)
	for i := range fields {
		fields[i] = fmt.Sprintf(`"f%d":{"pattern":"%s"}`, i, strings.ReplaceAll(pattern, "%d", strconv.Itoa(i)))
	}
	return `{` + draft + `"properties":{` + strings.Join(fields, ",") + `}}`
}

func TestPatternsAreBounded(t *testing.T) {
	t.Parallel()
	const old = `"$schema":"http://json-schema.org/draft-07/schema#",` // which checks patterns twice
	for name, c := range map[string]struct{ schema, piece, place string }{
		"Many":        {schemaOfPatterns("", "^%d$", maxPatterns+1), "more than 1000 patterns", "#/properties/f"},
		"Large":       {schemaOfPatterns("", strings.Repeat("x", maxPatternBytes)+"%d", 1), "more than 8192; shorten", "#/properties/f0/pattern"},
		"Steps":       {schemaOfPatterns("", "(x{0,1000}y%d)?", 100), "more than 65536 steps", "#/properties/f"},
		"Classes":     {schemaOfPatterns("", strings.Repeat(`\\p{L}`, 1200)+"%d", 1), "more than 65536 steps", "#/properties/f0/pattern"},
		"OldDraft":    {schemaOfPatterns(old, "(x{0,1000}y%d)?", 100), "more than 65536 steps", "/properties/f"},
		"OldestDraft": {schemaOfPatterns(`"$schema":"http://json-schema.org/draft-04/schema#",`, "(x{0,1000}y%d)?", 100), "more than 65536 steps", "#/properties/f"},
		"Properties":  {`{"patternProperties":{"(x{0,1000}y{0,1000}){1}` + strings.Repeat("z{0,999}", 70) + `":{}}}`, "steps", "#/patternProperties"},
	} {
		_, err := Compile([]byte(c.schema))
		if err == nil || !strings.Contains(err.Error(), c.piece) || !strings.Contains(err.Error(), c.place) {
			t.Errorf("%s: %v; want %q and %q", name, err, c.piece, c.place)
		}
	}
	for name, schema := range map[string]string{
		"Different": schemaOfPatterns("", "^%d$", maxPatterns),
		"Equal":     schemaOfPatterns("", "^x{0,1000}$", 5000),
		"OldDraft":  schemaOfPatterns(old, "^%d$", maxPatterns),
	} {
		if _, err := Compile([]byte(schema)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Compiling this schema once took 17 s and 480 MB.
func TestExpensivePatternsAreRefused(t *testing.T) {
	// not parallel: it measures the allocations of the process
	schema := schemaOfPatterns("", "(x{0,1000}y%d)?", 4700)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := Compile([]byte(schema))
	runtime.ReadMemStats(&after)
	if err == nil {
		t.Fatal("accepted")
	}
	if took, limit := after.TotalAlloc-before.TotalAlloc, uint64(64<<20); took > limit {
		t.Errorf("%d MiB were allocated, want at most %d", took>>20, limit>>20)
	}
}

// Patterns follow ECMA-262 in every draft and every place. Compile refuses any other
// pattern with an error that names the pattern and its place.
func TestPatternsFollowECMA262(t *testing.T) {
	t.Parallel()
	for _, draft := range drafts {
		for name, c := range map[string]struct {
			pattern, yes, no string
		}{
			"zod's mail address":       {`^(?!\.)(?!.*\.\.)([A-Za-z0-9_'+\-\.]*)[A-Za-z0-9_+-]@([A-Za-z0-9][A-Za-z0-9\-]*\.)+[A-Za-z]{2,}$`, "a@b.co", "a..b@c.de"},
			"pydantic's decimal":       {`^(?!^[-+.]*$)[+-]?0*\d*\.?\d*$`, "-1.40", "+."},  // pydantic/pydantic#13630
			"lookbehind":               {`^(?!_)(?!.*__)[a-z_]{1,64}(?<!_)$`, "a_b", "a_"}, // pydantic/pydantic#6374
			"escapes without need":     {`^[\_\'\/\-\&\<\:]+$`, "_-'", "a"},                // python-jsonschema/check-jsonschema#521
			"brackets without escapes": {`^[a-z@#{};:"|,<>]*$`, "a{}", "A"},                // ajv-validator/ajv#1474
			"named groups":             {`^(?<a>[^,. ]+)\s*\.\s*\k<a>$`, "x . x", "x.y"},   // java-json-tools/json-schema-validator#413
			"letters of any script":    {`^\p{L}+$`, "東京", "a1"},                           // ajv-validator/ajv#1026
			"digits of ASCII":          {`^\d+$`, "42", "৪২"},                              // json-schema-org/JSON-Schema-Test-Suite#498
			"the very end":             {`^a$`, "a", "a\n"},
		} {
			text, _ := json.Marshal(c.pattern)
			schemas := map[string]string{
				"value": `{"$schema":"` + draft + `","pattern":` + string(text) + `}`,
				"name":  `{"$schema":"` + draft + `","patternProperties":{` + string(text) + `:{}},"additionalProperties":false}`,
			}
			for place, schema := range schemas {
				s := compile(t, schema)
				for answer, want := range map[string]bool{c.yes: true, c.no: false} {
					value, _ := json.Marshal(answer)
					if place == "name" {
						value = []byte(`{` + string(value) + `:1}`)
					}
					if got := s.Violation(t.Context(), string(value)); (got == "") != want {
						t.Errorf("%s, %s, %s: violation of %s is %q", draft, name, place, value, got)
					}
				}
			}
		}
		const first = `{"$schema":"` // begins a schema with a pattern that Compile refuses
		for schema, want := range map[string]string{
			`","properties":{"a/b":{"pattern":"^\\Ax"}}}`:                                      `is not a valid JSON Schema: the pattern "^\\Ax" at #/properties/a~1b/pattern is refused: "\\A" at character 2 means nothing in ECMA-262; write ^`,
			`","allOf":[{},{"patternProperties":{"(?i)x":{}}}]}`:                               `is not a valid JSON Schema: the pattern "(?i)x" at #/allOf/1/patternProperties/(?i)x is refused: "(?i" at character 1 begins no group of ECMA-262, which has no flags in a pattern; write both cases, such as [Aa]`,
			`","anyOf":[{"items":{"pattern":"^a\\z"}}]}`:                                       `is not a valid JSON Schema: the pattern "^a\\z" at #/anyOf/0/items/pattern is refused: "\\z" at character 3 means nothing in ECMA-262; write $`,
			`","enum":[{"pattern":"("}],"properties":{"pattern":{"pattern":"("}}}`:             `is not a valid JSON Schema: the pattern "(" at #/properties/pattern/pattern is refused: "(" at character 1 opens a group`,
			`","definitions":{"x":{"items":{"pattern":"[a"}}},"$ref":"#/definitions/x"}`:       `is not a valid JSON Schema: the pattern "[a" at #/definitions/x/items/pattern is refused`,
			`","patternProperties":{"a":{"additionalProperties":{"pattern":"\\p{Klingon}"}}}}`: `at #/patternProperties/a/additionalProperties/pattern is refused: "\\p{Klingon}" at character 1 names a property`,
		} {
			_, err := Compile(json.RawMessage(first + draft + schema))
			if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "regexp") {
				t.Errorf("%s: %v; want %s", draft, err, want)
			}
		}
	}
}

// Too many match steps for an answer are a violation after limited work. The next
// answer starts with all steps again.
func TestMatchesAreBounded(t *testing.T) {
	t.Parallel()
	s := compile(t, `{"properties":{"email":{"pattern":"^(?=(a+)+$)"},"n":{"items":{"pattern":"^(?!b)"}}}}`)
	if s.patterns.limit != 33_554_432 {
		t.Errorf("an answer may take %d steps, which docs/api.md does not say", s.patterns.limit)
	}
	s.patterns.limit /= 64 // to save time
	const want = `the pattern "^(?=(a+)+$)" at #/properties/email/pattern needs more than 524288 steps for this answer`
	if got := s.Violation(t.Context(), `{"email":"`+strings.Repeat("a", 50)+`b"}`); got != want {
		t.Errorf("violation = %q", got)
	}
	if got := s.Violation(t.Context(), `{"email":"aaa","n":["a",""]}`); got != "" {
		t.Errorf("violation = %q", got)
	}
	s = compile(t, `{"patternProperties":{"^(?!x)(?:a|b)*$":{}}}`)
	got := s.Violation(t.Context(), `{"`+strings.Repeat("a", 2<<20)+`":1}`)
	if want := `the pattern "^(?!x)(?:a|b)*$" at #/patternProperties/^(?!x)(?:a|b)*$ needs to remember more than 1048576 places of this answer`; got != want {
		t.Errorf("violation = %q", got)
	}
	// All values of an answer share the steps.
	s = compile(t, `{"items":{"pattern":"^(?=(a+)+$)"}}`)
	s.patterns.limit /= 64
	got = s.Violation(t.Context(), `[`+strings.Repeat(`"`+strings.Repeat("a", 10)+`b",`, 2000)+`"a"]`)
	if !strings.Contains(got, "at #/items/pattern needs more than") {
		t.Errorf("violation = %q", got)
	}
}

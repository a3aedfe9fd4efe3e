package jsongen

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/rowmill/rowmill/internal/must"
)

// generous is a limit no value of these tests reaches.
const generous = 1 << 20

func compile(t testing.TB, schema string) *Generator {
	t.Helper()
	g := must.Get(Compile([]byte(schema)))(t)
	return g
}

func TestValuesConform(t *testing.T) {
	t.Parallel()
	tests := map[string]string{
		"object":               `{"type":"object","properties":{"name":{"type":"string"},"age":{"type":"integer","minimum":0,"maximum":130}},"required":["name","age"],"additionalProperties":false}`,
		"true":                 `true`,
		"empty":                `{}`,
		"null":                 `{"type":"null"}`,
		"list of types":        `{"type":["string","null","integer"]}`,
		"enum":                 `{"enum":["a",1,null,{"x":[1,2]}]}`,
		"enum beside type":     `{"type":"string","enum":["a",1,"b"],"minLength":1}`,
		"enum beside pattern":  `{"enum":["a","bb","ccc"],"pattern":"^..$"}`,
		"const":                `{"const":{"a":[true,1.50]}}`,
		"const and enum":       `{"const":2,"enum":[1,2.0,3]}`,
		"open range":           `{"type":"number","exclusiveMinimum":0,"exclusiveMaximum":0.001}`,
		"point":                `{"type":"number","minimum":0.125,"maximum":0.125}`,
		"multiple":             `{"type":"number","multipleOf":0.07,"minimum":-3,"maximum":3}`,
		"two multiples":        `{"allOf":[{"type":"integer","multipleOf":6},{"multipleOf":4}],"minimum":1}`,
		"big integer":          `{"type":"integer","minimum":90071992547409930,"maximum":90071992547409931}`,
		"huge number":          `{"type":"number","minimum":1e100}`,
		"whole multiple":       `{"type":"integer","multipleOf":2.5,"minimum":3,"maximum":7}`,
		"negative":             `{"type":"integer","maximum":-5}`,
		"wide range":           `{"type":"integer","minimum":-9223372036854775808,"maximum":9223372036854775807}`,
		"short string":         `{"type":"string","maxLength":3}`,
		"empty string":         `{"type":"string","maxLength":0}`,
		"long string":          `{"type":"string","minLength":300,"maxLength":300}`,
		"pattern":              `{"type":"string","pattern":"^[A-Z]{2}-\\d{4}(-x|-y)?$"}`,
		"pattern and length":   `{"type":"string","pattern":"^[a-z]+$","minLength":20,"maxLength":20}`,
		"open pattern, length": `{"type":"string","pattern":"\\d","minLength":40}`,
		"non-ASCII pattern":    `{"type":"string","pattern":"^[äöü]{3,5}$"}`,
		"two patterns":         `{"allOf":[{"type":"string","pattern":"^[a-z0-9]{4}$"},{"pattern":"\\d"}]}`,
		"array":                `{"type":"array","items":{"type":"boolean"},"minItems":2,"maxItems":4}`,
		"array without bounds": `{"type":"array"}`,
		"tuple":                `{"type":"array","prefixItems":[{"type":"string"},{"type":"integer"}],"items":false,"minItems":2}`,
		"unique":               `{"type":"array","items":{"enum":[1,2,3]},"uniqueItems":true,"minItems":3}`,
		"unique, few values":   `{"type":"array","items":{"type":"boolean"},"uniqueItems":true}`,
		"anyOf":                `{"anyOf":[{"type":"string","maxLength":5},{"type":"integer"}]}`,
		"oneOf":                `{"oneOf":[{"type":"integer","multipleOf":3},{"type":"integer","multipleOf":5}]}`,
		"oneOf objects":        `{"oneOf":[{"type":"object","properties":{"k":{"const":"a"},"v":{"type":"integer"}},"required":["k","v"]},{"type":"object","properties":{"k":{"const":"b"}},"required":["k"]}]}`,
		"allOf":                `{"allOf":[{"type":"object","properties":{"a":{"type":"integer","minimum":3}},"required":["a"]},{"properties":{"a":{"maximum":4},"b":{"type":"string"}},"required":["b"]}]}`,
		"choice in choice":     `{"anyOf":[{"type":"integer"},{"type":"string"}],"oneOf":[{"type":"string","maxLength":20},{"type":"array"}]}`,
		"choice with dead end": `{"type":"object","properties":{"a":{"anyOf":[false,{"type":"integer"}]}},"required":["a"]}`,
		"not":                  `{"type":"integer","minimum":0,"maximum":5,"not":{"enum":[1,2,3]}}`,
		"recursive list":       `{"$defs":{"node":{"type":"object","properties":{"v":{"type":"integer"},"next":{"anyOf":[{"$ref":"#/$defs/node"},{"type":"null"}]}},"required":["v","next"]}},"$ref":"#/$defs/node"}`,
		"recursive tree":       `{"type":"object","properties":{"kids":{"type":"array","items":{"$ref":"#"},"maxItems":3},"x":{"$ref":"#"}},"required":["kids"]}`,
		"ref with siblings":    `{"$defs":{"n":{"type":"integer"}},"properties":{"a":{"$ref":"#/$defs/n","minimum":10,"maximum":12}},"required":["a"],"type":"object"}`,
		"anchor":               `{"$defs":{"n":{"$anchor":"num","type":"integer"}},"type":"array","items":{"$ref":"#num"},"minItems":1}`,
		"escaped pointer":      `{"$defs":{"a/b c":{"type":"integer"}},"$ref":"#/$defs/a~1b%20c"}`,
		"embedded id":          `{"$id":"urn:x:root","$defs":{"n":{"$id":"urn:x:n","type":"boolean"}},"$ref":"urn:x:n"}`,
		"required unknown":     `{"type":"object","required":["z"],"additionalProperties":{"type":"integer"}}`,
		"maxProperties":        `{"type":"object","properties":{"a":{},"b":{},"c":{}},"maxProperties":1}`,
		"dependentRequired":    `{"type":"object","properties":{"a":{"type":"null"},"b":{"type":"null"}},"dependentRequired":{"a":["b"]}}`,
		"dependentSchemas":     `{"type":"object","properties":{"a":{"type":"null"}},"dependentSchemas":{"a":{"required":["q"]}}}`,
		"unevaluated":          `{"type":"object","allOf":[{"properties":{"a":{"type":"integer"}}}],"properties":{"b":{"type":"string"}},"unevaluatedProperties":false}`,
		"draft 7 tuple":        `{"$schema":"http://json-schema.org/draft-07/schema#","type":"array","items":[{"type":"integer"}],"additionalItems":{"type":"string"},"minItems":2,"definitions":{}}`,
		"optional dead end":    `{"type":"object","properties":{"a":false,"b":{"type":"integer"}},"required":["b"]}`,
		"escapes":              `{"type":"object","properties":{"a\"\\\n\u00e4":{"const":"\"\\\u0001é"}},"required":["a\"\\\n\u00e4"]}`,
		"formats":              formatsSchema(),
	}
	for name, schema := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := compile(t, schema)
			for seed := range 200 {
				random := rand.NewPCG(uint64(seed), 0)
				value, complete := g.Append(nil, random, generous)
				if !complete {
					t.Fatalf("value of %d bytes is not complete", len(value))
				}
				if err := g.Validate(value); err != nil {
					t.Fatalf("%s: %v", value, err)
				}
			}
		})
	}
}

var formats = []string{
	"date-time", "date", "time", "duration", "email", "idn-email", "hostname", "idn-hostname", "ipv4", "ipv6", "uri", "iri",
	"uri-reference", "iri-reference", "uri-template", "uuid", "json-pointer", "relative-json-pointer", "regex", "color",
}

func formatsSchema() string {
	var members []string
	for _, format := range formats {
		members = append(members, fmt.Sprintf(`%q:{"type":"string","format":%q}`, format, format))
	}
	return `{"type":"object","properties":{` + strings.Join(members, ",") + `}}`
}

// Validate knows the formats, so values are dates, addresses and so on.
func TestFormatsAreValidated(t *testing.T) {
	t.Parallel()
	g := compile(t, `{"type":"string","format":"date"}`)
	if g.Validate([]byte(`"2026-02-28"`)) != nil || g.Validate([]byte(`"simulated amber"`)) == nil {
		t.Error("a date is not told from another text")
	}
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, schema, reason string }{
		{"not JSON", `{"type":`, "read schema"},
		{"text after", `{} {}`, "read schema"},
		{"unknown type", `{"type":"strng"}`, "compile schema"},
		{"remote reference", `{"$ref":"https://example.com/s.json"}`, "only references within the schema"},
		{"file reference", `{"$ref":"file:///etc/hostname"}`, "only references within the schema"},
		{"missing definition", `{"$ref":"#/$defs/x"}`, "$defs/x"},
		{"false", `false`, "a subschema is false"},
		{"types exclude", `{"allOf":[{"type":"string"},{"type":"object"}]}`, "no JSON type is allowed by all schemas of the value"},
		{"empty range", `{"type":"integer","minimum":3,"maximum":2}`, "no number lies in the range"},
		{"no whole number", `{"type":"integer","exclusiveMinimum":1,"exclusiveMaximum":2}`, "no number lies in the range"},
		{"lengths", `{"type":"string","minLength":3,"maxLength":2}`, "minLength 3 exceeds maxLength 2"},
		{"pattern and length", `{"type":"string","pattern":"^a{3}$","maxLength":2}`, "pattern and length"},
		{"lookahead", `{"type":"string","pattern":"^(?=a)b"}`, `compile schema: the simulator makes no texts for the pattern "^(?=a)b"`},
		{"lookahead in an older draft", `{"$schema":"http://json-schema.org/draft-07/schema#","pattern":"^(?=a)b"}`, `compile schema: the simulator makes no texts`},
		{"endless nesting", `{"type":"object","properties":{"a":{"$ref":"#"}},"required":["a"]}`, "value was found for the schema: the schema demands endless nesting"},
		{"endless alternatives", `{"anyOf":[{"required":["a"],"properties":{"a":{"$ref":"#"}}},{"required":["b"],"properties":{"b":{"$ref":"#"}}}]}`, "endless nesting"},
		{"items", `{"type":"array","items":false,"minItems":1}`, "item 0"},
		{"maxItems", `{"type":"array","minItems":3,"maxItems":1}`, "exceeds maxItems 1"},
		{"required over maxProperties", `{"type":"object","required":["a","b"],"maxProperties":1}`, "maxProperties: got 2, want 1"},
		{"minProperties closed", `{"type":"object","minProperties":1,"additionalProperties":false}`, "minProperties: got 0, want 1"},
		{"not everything", `{"not":{}}`, "'not' failed"},
		{"beyond every number", `{"maximum":1e-99999999}`, "beyond 1e±400"},
		{"enum excluded", `{"type":"string","enum":[1,2]}`, "got number, want string"},
		{"const excluded", `{"const":1,"enum":[2]}`, "value must be 2"},
		{"never conforms", `{"type":"integer","not":{"type":"number"}}`, "no conforming value was found"},
		{"no alternative", `{"anyOf":[{"type":"integer","minimum":1,"maximum":0}]}`, "no number lies in the range"},
		{"no name for members", `{"type":"object","patternProperties":{"^x-":{"type":"null"}},"minProperties":2}`, "minProperties: got 0, want 2"},
		{"contains", `{"type":"array","contains":{"const":"x"},"items":{"type":"string"}}`, "contains"},
		{"a condition", `{"properties":{"a":{"type":"string"}},"required":["a"],"then":{"properties":{"a":{"pattern":"^\\d$"}}},"if":true}`, "does not match pattern"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := Compile([]byte(tt.schema))
			if err == nil {
				t.Fatal("the schema was accepted")
			}
			if !strings.Contains(err.Error(), tt.reason) {
				t.Errorf("error %q does not say %q", err, tt.reason)
			}
		})
	}
}

// TestManyAlternatives has 16,384 combinations of alternatives.
func TestManyAlternatives(t *testing.T) {
	t.Parallel()
	var all []string
	for i := range 14 {
		all = append(all, fmt.Sprintf(`{"anyOf":[{"minLength":%d},{"maxLength":%d}]}`, i, 100+i))
	}
	g := compile(t, `{"type":"string","allOf":[`+strings.Join(all, ",")+`]}`)
	if value, complete := g.Append(nil, rand.NewPCG(1, 0), generous); !complete || g.Validate(value) != nil {
		t.Errorf("%s does not conform", value)
	}
}

func TestSameSeedSameValue(t *testing.T) {
	t.Parallel()
	schema := []byte(`{"type":"object","properties":{"a":{"type":"string"},"b":{"type":"number"}},"required":["a","b"]}`)
	values := map[string]bool{}
	for seed := range 20 {
		var both [2][]byte
		for i := range both {
			g := must.Get(Compile(schema))(t)
			random := rand.NewPCG(uint64(seed), 0)
			both[i], _ = g.Append(nil, random, generous)
		}
		if !bytes.Equal(both[0], both[1]) {
			t.Fatalf("seed %d made %s and %s", seed, both[0], both[1])
		}
		values[string(both[0])] = true
	}
	if len(values) < 15 {
		t.Errorf("20 seeds made only %d values", len(values))
	}
}

func TestMembersKeepOrder(t *testing.T) {
	t.Parallel()
	g := compile(t, `{"type":"object","properties":{"zeta":{"type":"null"},"alpha":{"type":"null"},"mid":{"type":"null"}},"required":["mid","alpha","zeta"]}`)
	random := rand.NewPCG(1, 0)
	value, _ := g.Append(nil, random, generous)
	if want := `{"zeta": null, "alpha": null, "mid": null}`; string(value) != want {
		t.Errorf("got %s, want %s", value, want)
	}
}

func TestLimitStopsEarly(t *testing.T) {
	t.Parallel()
	g := compile(t, `{"type":"array","items":{"type":"array","items":{"type":"integer"},"minItems":1000},"minItems":100000}`)
	random := rand.NewPCG(1, 0)
	value, complete := g.Append([]byte("x"), random, 200)
	if complete || len(value) < 200 || len(value) > 1000 {
		t.Errorf("complete %v after %d bytes", complete, len(value))
	}
}

func TestViolate(t *testing.T) {
	t.Parallel()
	for _, schema := range []string{`{"type":"object","required":["a"]}`, `{"type":"object"}`, `{"type":["object","string"]}`, `{"type":"integer"}`} {
		g := compile(t, schema)
		value := must.Get(g.GenerateViolation())(t)
		if !json.Valid(value) || g.Validate(value) == nil {
			t.Errorf("%s: %s does not violate it, or is no JSON", schema, value)
		}
	}
	g := compile(t, `true`)
	if _, err := g.GenerateViolation(); err == nil {
		t.Error("a schema that accepts everything was violated")
	}
}

// schemaOf draws schemas that can be satisfied.
func schemaOf(t *rapid.T, depth int) map[string]any {
	shapes := []string{"string", "integer", "number", "boolean", "null", "enum", "types"}
	if depth > 0 {
		shapes = append(shapes, "object", "object", "array", "tuple", "anyOf", "allOf", "ref")
	}
	text := rapid.StringN(0, 8, 16)
	switch shape := rapid.SampledFrom(shapes).Draw(t, "shape"); shape {
	case "string":
		low := rapid.IntRange(0, 40).Draw(t, "low")
		return map[string]any{"type": "string", "minLength": low, "maxLength": low + rapid.IntRange(0, 20).Draw(t, "more")}
	case "integer":
		low := rapid.Int64().Draw(t, "low") / 2
		return map[string]any{"type": "integer", "minimum": low, "maximum": low + rapid.Int64Range(0, 1<<40).Draw(t, "more")}
	case "number":
		low := rapid.Float64Range(-1e9, 1e9).Draw(t, "low")
		return map[string]any{"type": "number", "minimum": low, "exclusiveMaximum": low + rapid.Float64Range(0.001, 1e9).Draw(t, "more")}
	case "enum":
		return map[string]any{"enum": rapid.SliceOfNDistinct(text, 1, 5, rapid.ID).Draw(t, "values")}
	case "types":
		return map[string]any{"type": rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"string", "integer", "null", "array", "object"}), 1, 3, rapid.ID).Draw(t, "types")}
	case "object":
		members, names := map[string]any{}, []string{}
		for range rapid.IntRange(0, 4).Draw(t, "members") {
			name := text.Draw(t, "name")
			members[name] = schemaOf(t, depth-1)
			if rapid.Bool().Draw(t, "required") && !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
		return map[string]any{"type": "object", "properties": members, "required": names, "additionalProperties": rapid.Bool().Draw(t, "additional")}
	case "array":
		low := rapid.IntRange(0, 3).Draw(t, "low")
		return map[string]any{"type": "array", "items": schemaOf(t, depth-1), "minItems": low, "maxItems": low + rapid.IntRange(0, 3).Draw(t, "more")}
	case "tuple":
		return map[string]any{"type": "array", "prefixItems": []any{schemaOf(t, depth-1), schemaOf(t, depth-1)}, "items": rapid.Bool().Draw(t, "open"), "minItems": rapid.IntRange(0, 2).Draw(t, "low")}
	case "anyOf":
		return map[string]any{"anyOf": []any{schemaOf(t, depth-1), schemaOf(t, depth-1)}}
	case "allOf":
		return map[string]any{"allOf": []any{schemaOf(t, depth-1), map[string]any{}, true}}
	case "ref":
		return map[string]any{"$ref": "#/$defs/leaf"}
	default:
		return map[string]any{"type": shape}
	}
}

func TestAnySchemaYieldsConformingValues(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		document := schemaOf(t, 3)
		document["$defs"] = map[string]any{"leaf": schemaOf(t, 0)}
		schema, err := json.Marshal(document)
		must.Succeed(t, err)
		g, err := Compile(schema)
		if err != nil {
			t.Fatalf("%s: %v", schema, err)
		}
		random := rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0)
		for range 5 {
			// appendRandom, not Append: what construction alone makes must conform.
			value, err := g.appendRandom(nil, random, generous)
			if err != nil {
				t.Fatalf("%s: %v", schema, err)
			}
			if err := g.Validate(value); err != nil {
				t.Fatalf("%s: %s: %v", schema, value, err)
			}
		}
	})
}

// FuzzCompile feeds arbitrary schemas: they are refused, or their values
// conform.
func FuzzCompile(f *testing.F) {
	f.Add([]byte(`{"type":"object","properties":{"a":{"$ref":"#"}}}`), uint64(1))
	f.Add([]byte(`{"oneOf":[{"type":"integer"},{"const":1.5}],"not":{"const":3}}`), uint64(2))
	f.Add([]byte(`{"type":"array","contains":{"type":"null"},"uniqueItems":true,"maxItems":9}`), uint64(3))
	f.Add([]byte(`{"type":"string","pattern":"(a|b)*c{2,9}$","minLength":7}`), uint64(4))
	f.Add([]byte(`{"minProperties":3,"patternProperties":{"^[x-z]":{"multipleOf":0.3}}}`), uint64(5))
	f.Fuzz(func(t *testing.T, schema []byte, seed uint64) {
		g, err := Compile(schema)
		if err != nil {
			return
		}
		random := rand.NewPCG(uint64(seed), 0)
		value, complete := g.Append(nil, random, 1<<16)
		if !complete {
			return
		}
		if err := g.Validate(value); err != nil {
			t.Fatalf("%s: %s: %v", schema, value, err)
		}
	})
}

func BenchmarkAppend(b *testing.B) {
	g := compile(b, `{"type":"object","properties":{"label":{"enum":["good","bad"]},"score":{"type":"number","minimum":0,"maximum":1},"reason":{"type":"string"},"tags":{"type":"array","items":{"type":"string"},"maxItems":3}},"required":["label","score","reason","tags"],"additionalProperties":false}`)
	random := rand.NewPCG(1, 0)
	var dst []byte
	for b.Loop() {
		dst, _ = g.Append(dst[:0], random, generous)
	}
}

package schema

import (
	"bufio"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/rowmill/rowmill/internal/must"
)

// versions are the drafts in order, with their names in testdata/keywords.jsonl.
var versions = []string{"4", "6", "7", "2019", "2020"}

// mandatory are the keywords of each draft that refuse values or name schemas.
var mandatory = map[string]string{
	"4": "type enum minimum maximum exclusiveMinimum exclusiveMaximum multipleOf minLength maxLength pattern minItems maxItems uniqueItems items " +
		"additionalItems minProperties maxProperties required properties patternProperties additionalProperties dependencies allOf anyOf oneOf not " +
		"definitions $ref default id",
	"6":    "const contains propertyNames boolean_schema examples $id exclusiveMinimum exclusiveMaximum",
	"7":    "if contentMediaType",
	"2019": "$defs $anchor dependentRequired dependentSchemas minContains maxContains unevaluatedItems unevaluatedProperties contentSchema $recursiveRef",
	"2020": "prefixItems items $dynamicRef",
}

// gone are the keywords that a draft has dropped.
var gone = map[string]string{"6": "id", "2019": "dependencies", "2020": "additionalItems $recursiveRef"}

// keywordCase is a line of testdata/keywords.jsonl: drafts, keyword, schema, conforming
// values, violating values.
type keywordCase struct {
	drafts, keyword string
	schema          map[string]json.RawMessage
	good, bad       []json.RawMessage
}

func (c *keywordCase) UnmarshalJSON(line []byte) error {
	return json.Unmarshal(line, &[]any{&c.drafts, &c.keyword, &c.schema, &c.good, &c.bad})
}

// in reports whether a case applies to a draft: "6-" means 6 and later, "4-7" is a
// range.
func (c *keywordCase) in(t *testing.T, version string) bool {
	first, last, isRange := strings.Cut(c.drafts, "-")
	switch {
	case !isRange:
		last = first
	case last == "":
		last = versions[len(versions)-1]
	}
	from, to, at := slices.Index(versions, first), slices.Index(versions, last), slices.Index(versions, version)
	if from < 0 || to < from {
		t.Fatalf("no drafts %q", c.drafts)
	}
	return from <= at && at <= to
}

// TestSuite_Keywords tests every keyword of every draft with the functions that compile
// a job's schema and check its answers.
func TestSuite_Keywords(t *testing.T) {
	t.Parallel()
	file := must.Get(os.Open("testdata/keywords.jsonl"))(t)
	defer file.Close()
	type count struct{ good, bad int }
	seen, cases := map[string]*count{}, 0
	for lines := bufio.NewScanner(file); lines.Scan(); {
		var c keywordCase
		if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
			t.Fatalf("%s: %v", lines.Text(), err)
		}
		for i, version := range versions {
			if !c.in(t, version) {
				continue
			}
			if seen[version+" "+c.keyword] == nil {
				seen[version+" "+c.keyword] = &count{}
			}
			counted := seen[version+" "+c.keyword]
			counted.good += len(c.good)
			counted.bad += len(c.bad)
			cases += len(c.good) + len(c.bad)
			c.check(t, drafts[i])
		}
	}
	if cases < 600 {
		t.Errorf("got only %d cases", cases)
	}
	var keywords []string
	for _, version := range versions {
		for _, word := range strings.Fields(gone[version]) {
			keywords = slices.DeleteFunc(keywords, func(k string) bool { return k == word })
		}
		keywords = append(keywords, strings.Fields(mandatory[version])...)
		for _, keyword := range keywords {
			c := seen[version+" "+keyword]
			if c == nil || c.good == 0 || c.bad == 0 && !strings.HasPrefix(keyword, "content") {
				t.Errorf("draft %s, %s: conforming or violating cases are missing", version, keyword)
			}
		}
	}
}

func (c *keywordCase) check(t *testing.T, draft string) {
	t.Helper()
	c.schema["$schema"], _ = json.Marshal(draft)
	text := must.Get(json.Marshal(c.schema))(t)
	checked, err := Check(text)
	if err != nil {
		t.Errorf("%s: %v", text, err)
		return
	}
	s, err := Compile(checked)
	if err != nil {
		t.Errorf("%s: %v", text, err)
		return
	}
	for _, value := range c.good {
		if got := s.Violation(t.Context(), string(value)); got != "" {
			t.Errorf("%s: %s violates it: %s", text, value, got)
		}
	}
	for _, value := range c.bad {
		if got := s.Violation(t.Context(), string(value)); got == "" {
			t.Errorf("%s: %s conforms, want a violation", text, value)
		}
	}
}

// TestSuite_KeywordsOfAWrongForm gives every keyword a value that its draft does not
// allow.
func TestSuite_KeywordsOfAWrongForm(t *testing.T) {
	t.Parallel()
	all := `{"type":"text"} {"type":1} {"type":[]} {"type":["string","string"]} {"minimum":"1"} {"maximum":null} {"multipleOf":0} {"multipleOf":-1}
		{"multipleOf":"2"} {"minLength":-1} {"maxLength":1.5} {"minItems":"1"} {"maxItems":-1} {"uniqueItems":1} {"minProperties":-1} {"maxProperties":0.5}
		{"required":"a"} {"required":[1]} {"required":["a","a"]} {"properties":[]} {"properties":{"a":1}} {"patternProperties":1} {"patternProperties":{"(":{}}}
		{"pattern":1} {"pattern":"("} {"additionalProperties":1} {"items":1} {"allOf":{}} {"allOf":[]} {"anyOf":[]} {"oneOf":[]} {"oneOf":1} {"not":1}
		{"enum":1} {"$ref":1} {"$ref":"#/none"} {"$ref":"http://example.com/other"}`
	newer := map[string]string{
		"4":    `{"definitions":1} {"exclusiveMinimum":1,"minimum":1} {"required":[]} {"dependencies":{"a":1}} {"additionalItems":1} {"id":1} {"exclusiveMaximum":true}`,
		"6":    `{"definitions":1} {"exclusiveMinimum":true} {"contains":1} {"propertyNames":1} {"dependencies":{"a":1}} {"additionalItems":1} {"$id":1}`,
		"7":    `{"definitions":1} {"exclusiveMaximum":true} {"if":1} {"then":[]} {"else":"x"} {"contains":[]} {"contentMediaType":1}`,
		"2019": `{"dependentRequired":{"a":1}} {"dependentSchemas":[]} {"minContains":-1} {"maxContains":"1"} {"unevaluatedItems":1} {"unevaluatedProperties":1} {"$anchor":"#a"} {"$defs":1} {"$recursiveRef":1}`,
		"2020": `{"prefixItems":[]} {"prefixItems":{}} {"items":[{}]} {"dependentRequired":{"a":1}} {"minContains":-1} {"unevaluatedItems":1} {"$anchor":"#a"} {"$dynamicRef":1} {"$dynamicAnchor":"#"}`,
	}
	for i, version := range versions {
		for _, text := range append(strings.Fields(all), strings.Fields(newer[version])...) {
			text = `{"$schema":"` + drafts[i] + `",` + text[1:]
			if _, err := Compile([]byte(text)); err == nil {
				t.Errorf("%s is accepted", text)
			}
		}
	}
}

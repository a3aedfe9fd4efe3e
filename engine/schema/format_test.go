package schema

import (
	"slices"
	"testing"
)

var drafts = []string{
	"http://json-schema.org/draft-04/schema#", "http://json-schema.org/draft-06/schema#", "http://json-schema.org/draft-07/schema#",
	"https://json-schema.org/draft/2019-09/schema", "https://json-schema.org/draft/2020-12/schema",
}

// Formats refuse no answer, in any draft. pydantic's datetime allows a time without a
// zone, unlike "date-time".
func TestFormatsAssertNothing(t *testing.T) {
	t.Parallel()
	formats := []string{
		"date-time", "date", "time", "duration", "email", "idn-email", "hostname", "idn-hostname", "ipv4", "ipv6", "uri", "uri-reference", "iri",
		"iri-reference", "uuid", "uri-template", "json-pointer", "relative-json-pointer", "regex", "period", "semver", "binary", "unknown",
	}
	for _, draft := range append(slices.Clone(drafts), "") {
		first := `{`
		if draft != "" {
			first = `{"$schema":"` + draft + `",`
		}
		for _, format := range formats {
			for _, schema := range []string{
				first + `"format":"` + format + `"}`,
				first + `"properties":{"format":{"format":"` + format + `"}},"additionalProperties":{"format":"` + format + `"}}`,
				first + `"definitions":{"x":{"format":"` + format + `"}},"allOf":[{"$ref":"#/definitions/x"}]}`,
			} {
				s := compile(t, schema)
				for _, answer := range []string{`"( no such thing"`, `{"format":"(","x":"("}`, `1`} {
					if got := s.Violation(t.Context(), answer); got != "" {
						t.Errorf("%s: violation of %s is %q", schema, answer, got)
					}
				}
			}
		}
		if _, err := Compile([]byte(first + `"properties":{"format":"email"}}`)); err == nil {
			t.Errorf("%s: a text in place of a schema is accepted", draft)
		}
		s := compile(t, first+`"enum":[{"format":"email"}],"required":["format"]}`)
		if got := s.Violation(t.Context(), `{"format":"email"}`); got != "" {
			t.Errorf("a value that looks like a schema was changed: %s", got)
		}
	}
}

package schema

import (
	"errors"
	"testing"

	"github.com/rowmill/rowmill/internal/oddjson"
)

// TestSuite_Schemas puts every kind of JSON into a schema.
func TestSuite_Schemas(t *testing.T) {
	t.Parallel()
	oddjson.CheckReader(t, oddjson.ReaderUnderTest{
		Wrap: func(value string) string { return `{"const":` + value + `}` },
		Take: func(document string) error {
			checked, err := Check([]byte(document))
			if err == nil {
				_, err = Compile(checked)
			}
			return err
		},
		Verdicts: verdicts(oddjson.Refused),
	})
}

// TestSuite_Answers puts every kind of JSON into an answer to a schema.
func TestSuite_Answers(t *testing.T) {
	t.Parallel()
	s := compile(t, `{"type":["object","array","string","number","boolean","null"]}`)
	oddjson.CheckReader(t, oddjson.ReaderUnderTest{
		Wrap: func(value string) string { return `{"x":` + value + `}` },
		Take: func(document string) error {
			if problem := s.Violation(t.Context(), document); problem != "" {
				return errors.New(problem)
			}
			return nil
		},
		Verdicts: verdicts(oddjson.Taken),
	})
}

// verdicts returns the verdicts for schemas and for answers. Numbers are compared
// exactly, so their digits and exponents are limited.
func verdicts(deep oddjson.Verdict) map[string]oddjson.Verdict {
	return map[string]oddjson.Verdict{
		"NaN": oddjson.Refused, "number of many digits": oddjson.Taken, "number of endless digits": oddjson.Refused,
		"number beyond float64": oddjson.Refused, "number below float64": oddjson.Refused,
		"lone surrogate": oddjson.Taken, "lone surrogate in a name": oddjson.Taken, "bytes that are not UTF-8 in a string": oddjson.Taken,
		"nested 60 deep": oddjson.Taken, "nested 1,000 deep": deep,
		"byte-order mark": oddjson.Refused, "two byte-order marks": oddjson.Refused, "text behind the value": oddjson.Refused,
	}
}

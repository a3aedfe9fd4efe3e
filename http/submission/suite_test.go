package submission

import (
	"testing"

	"github.com/rowmill/rowmill/internal/oddjson"
)

// TestSuite_Submissions puts JSON of every kind into a submission: into an unknown field,
// and into a schema.
func TestSuite_Submissions(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		before, after string
		numbers, deep oddjson.Verdict
	}{
		"unknown field": {`{"inputs":["a"],"x":`, `}`, oddjson.Taken, oddjson.Taken},
		"schema":        {`{"inputs":["a"],"json_schema":{"const":`, `}}`, oddjson.Refused, oddjson.Refused},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := setup(t)
			oddjson.CheckReader(t, oddjson.ReaderUnderTest{
				Wrap: func(value string) string { return c.before + value + c.after },
				Take: func(document string) error {
					_, err := w.take(document)
					return err
				},
				Verdicts: map[string]oddjson.Verdict{
					"NaN": oddjson.Refused, "number of many digits": oddjson.Taken, "number of endless digits": c.numbers,
					"number beyond float64": c.numbers, "number below float64": c.numbers,
					"lone surrogate": oddjson.Refused, "lone surrogate in a name": oddjson.Refused, "bytes that are not UTF-8 in a string": oddjson.Refused,
					"nested 60 deep": oddjson.Taken, "nested 1,000 deep": c.deep,
					"byte-order mark": oddjson.Refused, "two byte-order marks": oddjson.Refused, "text behind the value": oddjson.Refused,
				},
			})
		})
	}
}

package request

import (
	"testing"

	"github.com/rowmill/rowmill/internal/oddjson"
)

// TestSuite_SmallObjects puts JSON of every kind into a small body.
func TestSuite_SmallObjects(t *testing.T) {
	t.Parallel()
	oddjson.CheckReader(t, oddjson.ReaderUnderTest{
		Wrap: func(value string) string { return `{"a":` + value + `}` },
		Take: func(document string) error {
			_, err := ReadObject([]byte(document))
			return err
		},
		Verdicts: map[string]oddjson.Verdict{
			"NaN": oddjson.Refused, "number of many digits": oddjson.Taken, "number of endless digits": oddjson.Taken,
			"number beyond float64": oddjson.Taken, "number below float64": oddjson.Taken,
			"lone surrogate": oddjson.Refused, "lone surrogate in a name": oddjson.Refused, "bytes that are not UTF-8 in a string": oddjson.Taken,
			"nested 60 deep": oddjson.Taken, "nested 1,000 deep": oddjson.Taken,
			"byte-order mark": oddjson.Refused, "two byte-order marks": oddjson.Refused, "text behind the value": oddjson.Refused,
		},
	})
}

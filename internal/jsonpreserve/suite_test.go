package jsonpreserve_test

import (
	"testing"

	"github.com/rowmill/rowmill/internal/jsonpreserve"
	"github.com/rowmill/rowmill/internal/oddjson"
)

// TestSuite_Records puts every kind of JSON into a record. Records hold parts of
// requests unchanged. Decode ignores text after a record.
func TestSuite_Records(t *testing.T) {
	t.Parallel()
	oddjson.CheckReader(t, oddjson.ReaderUnderTest{
		Wrap: func(value string) string { return `{"new":1,"x":` + value + `}` },
		Take: func(text string) error {
			var into struct {
				New int `json:"new"`
			}
			return jsonpreserve.Decode(text, &into)
		},
		Verdicts: map[string]oddjson.Verdict{
			"NaN": oddjson.Refused, "number of many digits": oddjson.Taken, "number of endless digits": oddjson.Taken,
			"number beyond float64": oddjson.Taken, "number below float64": oddjson.Taken,
			"lone surrogate": oddjson.Taken, "lone surrogate in a name": oddjson.Taken, "bytes that are not UTF-8 in a string": oddjson.Taken,
			"nested 60 deep": oddjson.Taken, "nested 1,000 deep": oddjson.Taken,
			"byte-order mark": oddjson.Refused, "two byte-order marks": oddjson.Refused, "text behind the value": oddjson.Taken,
		},
	})
}

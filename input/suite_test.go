package input

import (
	"errors"
	"testing"

	"github.com/rowmill/rowmill/internal/oddjson"
)

// TestSuite_JSONLines puts every kind of JSON into a line of a file, as the
// text of a row or beside it.
func TestSuite_JSONLines(t *testing.T) {
	t.Parallel()
	for _, column := range []string{"x", "a"} {
		t.Run(column, func(t *testing.T) {
			t.Parallel()
			oddjson.CheckReader(t, oddjson.ReaderUnderTest{
				Wrap: func(value string) string { return `{"a":"b","x":` + value + `}` },
				Take: func(document string) error {
					_, failure := readFile(t, "{\"a\":\"\",\"x\":0}\n"+document+"\n", Options{Column: column})
					if failure != "" {
						return errors.New(failure)
					}
					return nil
				},
				Verdicts: map[string]oddjson.Verdict{
					"NaN": oddjson.Refused, "number of many digits": oddjson.Taken, "number of endless digits": oddjson.Taken,
					"number beyond float64": oddjson.Taken, "number below float64": oddjson.Taken,
					"lone surrogate": oddjson.Refused, "lone surrogate in a name": oddjson.Refused, "bytes that are not UTF-8 in a string": oddjson.Refused,
					"nested 60 deep": oddjson.Taken, "nested 1,000 deep": oddjson.Taken,
					"byte-order mark": oddjson.Refused, "two byte-order marks": oddjson.Refused, "text behind the value": oddjson.Refused,
				},
			})
		})
	}
}

// TestSuite_Batches puts every kind of JSON into a request of a batch.
func TestSuite_Batches(t *testing.T) {
	t.Parallel()
	oddjson.CheckReader(t, oddjson.ReaderUnderTest{
		Wrap: func(value string) string { return batchLine("a", `{"model":"m","x":`+value+`}`) },
		Take: func(document string) error {
			_, _, faults, _ := readBatch(t, document, Limits{})
			if len(faults) > 0 {
				return errors.New(faults[0])
			}
			return nil
		},
		Verdicts: map[string]oddjson.Verdict{
			"NaN": oddjson.Refused, "number of many digits": oddjson.Taken, "number of endless digits": oddjson.Taken,
			"number beyond float64": oddjson.Taken, "number below float64": oddjson.Taken,
			"lone surrogate": oddjson.Taken, "lone surrogate in a name": oddjson.Taken, "bytes that are not UTF-8 in a string": oddjson.Refused,
			"nested 60 deep": oddjson.Taken, "nested 1,000 deep": oddjson.Taken,
			"byte-order mark": oddjson.Taken, "two byte-order marks": oddjson.Refused, "text behind the value": oddjson.Refused,
		},
	})
}

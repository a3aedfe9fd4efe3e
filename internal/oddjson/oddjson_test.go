package oddjson

import (
	"encoding/json"
	"errors"
	"testing"
)

// TestEncodingJSON checks Go's parser with all kinds, so that the verdicts here agree
// with the standard.
func TestEncodingJSON(t *testing.T) {
	t.Parallel()
	CheckReader(t, ReaderUnderTest{
		Wrap: func(value string) string { return `{"x":` + value + `}` },
		Take: func(document string) error {
			if !json.Valid([]byte(document)) {
				return errors.New("no JSON")
			}
			return nil
		},
		Verdicts: map[string]Verdict{
			"NaN": Refused, "number of many digits": Taken, "number of endless digits": Taken, "number beyond float64": Taken, "number below float64": Taken,
			"lone surrogate": Taken, "lone surrogate in a name": Taken, "bytes that are not UTF-8 in a string": Taken, "nested 60 deep": Taken,
			"nested 1,000 deep": Taken, "byte-order mark": Refused, "two byte-order marks": Refused, "text behind the value": Refused,
		},
	})
	if n := Count(); n < 600 {
		t.Errorf("%d texts", n)
	}
}

package openai

import (
	"testing"

	"github.com/rowmill/rowmill/internal/oddjson"
)

// TestSuite_AnswersOfServers puts every kind of JSON into an unused field of an answer.
// Servers write NaN and numbers of any length.
func TestSuite_AnswersOfServers(t *testing.T) {
	t.Parallel()
	for name, before := range map[string]string{
		"chat":   `{"choices":[{"message":{"content":"a"},"finish_reason":"stop"}],"x":`,
		"member": `{"choices":[{"x":[],"message":{"content":"a"},"finish_reason":"stop"}],"usage":{"prompt_tokens":1,"x":`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			after := `}`
			if name == "member" {
				after = `}}`
			}
			oddjson.CheckReader(t, oddjson.ReaderUnderTest{
				Wrap: func(value string) string { return before + value + after },
				Take: func(document string) error {
					_, err := scanned(&bytesSource{rest: []byte(document)}, 1<<20)
					_, cut := scanned(&pieces{rest: []byte(document), size: func() int { return 1 }}, 1<<20)
					if (err == nil) != (cut == nil) {
						t.Errorf("%.100q: %v in one window, %v in pieces", document, err, cut)
					}
					return err
				},
				Verdicts: map[string]oddjson.Verdict{
					"NaN": oddjson.Taken, "number of many digits": oddjson.Taken, "number of endless digits": oddjson.Taken,
					"number beyond float64": oddjson.Taken, "number below float64": oddjson.Taken,
					"lone surrogate": oddjson.Taken, "lone surrogate in a name": oddjson.Taken, "bytes that are not UTF-8 in a string": oddjson.Taken,
					"nested 60 deep": oddjson.Taken, "nested 1,000 deep": oddjson.Refused,
					"byte-order mark": oddjson.Refused, "two byte-order marks": oddjson.Refused, "text behind the value": oddjson.Refused,
				},
			})
		})
	}
}

// TestSuite_RawAnswers puts every kind of JSON into a raw answer.
func TestSuite_RawAnswers(t *testing.T) {
	t.Parallel()
	oddjson.CheckReader(t, oddjson.ReaderUnderTest{
		Wrap: func(value string) string { return `{"choices":[{"index":0}],"x":` + value + `}` },
		Take: func(document string) error {
			_, err := parseRawReply([]byte(document))
			return err
		},
		Verdicts: map[string]oddjson.Verdict{
			"NaN": oddjson.Refused, "number of many digits": oddjson.Taken, "number of endless digits": oddjson.Taken,
			"number beyond float64": oddjson.Taken, "number below float64": oddjson.Taken,
			"lone surrogate": oddjson.Taken, "lone surrogate in a name": oddjson.Taken, "bytes that are not UTF-8 in a string": oddjson.Refused,
			"nested 60 deep": oddjson.Taken, "nested 1,000 deep": oddjson.Taken,
			"byte-order mark": oddjson.Refused, "two byte-order marks": oddjson.Refused, "text behind the value": oddjson.Refused,
		},
	})
}

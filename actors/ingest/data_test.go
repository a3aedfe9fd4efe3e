package ingest

import (
	"strings"
	"testing"
)

func TestWithoutData(t *testing.T) {
	t.Parallel()
	long, words := strings.Repeat("QUJD", dataBytes/4), strings.Repeat("a word ", dataBytes)
	for body, want := range map[string]string{
		`{"a":"b"}`: `{"a":"b"}`,
		`{"url":"data:image/png;base64,` + long + `","text":"` + words + `"}`: `{"url":"","text":"` + words + `"}`,
		`{"a":"\\\"","b":"` + long + `"}`:                                     `{"a":"\\\"","b":""}`,
		`{"n":1,"b":["` + long + `",2]}`:                                      `{"n":1,"b":["",2]}`,
	} {
		if got := stripEncodedData(body); got != want {
			t.Errorf("%.80s became %.80s", body, got)
		}
	}
}

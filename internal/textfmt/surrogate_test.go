package textfmt

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestLoneSurrogate(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		``: false, `a`: false, `\n\u0041`: false, `\ud83d\ude00`: false, `\uD83D\uDE00 and \uD83D\uDE00`: false, `\\ud800`: false, `\\\\ud800\"`: false,
		`\ud800`: true, `\udc00`: true, `\ud800\ud800`: true, `\udc00\ud800`: true, `\ud83d\ud83d\ude00`: true, `\ud800x`: true, `\ud800\n`: true,
		`\ud800\u0061`: true, `\\\ud800`: true, `\ud83d\ude00\udfff`: true,
	} {
		if got := HasLoneSurrogate([]byte(text)); got != want {
			t.Errorf("%s: %v, want %v", text, got, want)
		}
	}
}

// FuzzLoneSurrogate compares with what encoding/json replaces.
func FuzzLoneSurrogate(f *testing.F) {
	for _, text := range []string{`\ud800`, `\ud83d\ude00`, `\\ud800`, `\ufffd`, "\uFFFD", `\udc00\ud800\udc00`} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var decoded string
		if json.Unmarshal([]byte(`"`+text+`"`), &decoded) != nil {
			return
		}
		// Count the replacement characters that are written as such.
		written := strings.Count(text, "\uFFFD")
		if strings.ToValidUTF8(text, "") != text || strings.Contains(strings.ToLower(text), `\ufffd`) {
			return
		}
		if replaced := strings.Count(decoded, "\uFFFD") > written; replaced != HasLoneSurrogate([]byte(text)) {
			t.Errorf("%q decodes to %q", text, decoded)
		}
	})
}

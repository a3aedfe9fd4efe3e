package textfmt

import (
	"bytes"
	"strconv"
	"unicode/utf16"
)

// HasLoneSurrogate reports whether a text has an escape such as \ud800 that is half of a
// surrogate pair without the other half. text is valid JSON, or the inside of a valid
// JSON string. Such an escape is not a character, and decoders replace it by U+FFFD
// without an error.
func HasLoneSurrogate(text []byte) bool {
	for {
		at := bytes.IndexByte(text, '\\')
		if at < 0 {
			return false
		}
		text = text[at:]
		code, escaped := parseSurrogate(text)
		if !escaped {
			text = text[min(2, len(text)):]
			continue
		}
		low, paired := parseSurrogate(text[escapeBytes:])
		if !paired || utf16.DecodeRune(code, low) == '\uFFFD' {
			return true
		}
		text = text[2*escapeBytes:]
	}
}

// escapeBytes is the length in bytes of an escape such as \ud800.
const escapeBytes = 6

// parseSurrogate returns the code of the escape at the beginning of text, if it is half of a
// surrogate pair.
func parseSurrogate(text []byte) (code rune, is bool) {
	if len(text) < escapeBytes || text[0] != '\\' || text[1] != 'u' {
		return 0, false
	}
	n, err := strconv.ParseUint(string(text[2:escapeBytes]), 16, 16)
	return rune(n), err == nil && utf16.IsSurrogate(rune(n)) //nolint:gosec // 16 bits
}

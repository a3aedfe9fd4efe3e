package blob

import (
	"fmt"
	"strings"
	"unicode"
)

// Disposition is the Content-Disposition (RFC 6266) that makes a browser save a download
// under a name, or under one of its own where that is empty. A character that could lead
// into another folder, end the header or hide what the name is becomes a "_". A name that
// needs more than plain ASCII stands in filename* (RFC 8187), beside a filename in ASCII
// for programs that know no other.
func Disposition(filename string) string {
	if filename == "" {
		return "attachment"
	}
	name := strings.Map(harmless, strings.ToValidUTF8(filename, "_"))
	if strings.Trim(name, ".") == "" { // "." and ".." are folders
		name = strings.ReplaceAll(name, ".", "_")
	}
	plain := strings.Map(ascii, name)
	if plain == name {
		return `attachment; filename="` + name + `"`
	}
	return `attachment; filename="` + plain + `"; filename*=UTF-8''` + percent(name)
}

// harmless replaces a character that must not stand in the name of a download.
func harmless(r rune) rune {
	if r == '/' || r == '\\' || r == ':' || !unicode.IsGraphic(r) {
		return '_'
	}
	return r
}

// ascii replaces a character that clients do not read alike in a quoted filename.
func ascii(r rune) rune {
	if r > unicode.MaxASCII || r == '"' || r == '%' {
		return '_'
	}
	return r
}

// percent escapes all but the characters that RFC 8187 calls attr-char.
func percent(name string) string {
	var b strings.Builder
	for _, c := range []byte(name) {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', strings.IndexByte("!#$&+-.^_`|~", c) >= 0:
			b.WriteByte(c)
		default:
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}

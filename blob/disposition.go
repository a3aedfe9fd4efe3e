package blob

import (
	"fmt"
	"strings"
	"unicode"
)

// ContentDisposition returns the Content-ContentDisposition (RFC 6266) that makes a browser
// save a download under filename, or under a name of its own choice if filename
// is empty. Characters that could lead into another folder, end the header or
// hide the real name become "_". A name that is not plain ASCII also gets a
// filename* (RFC 8187); the filename in ASCII is for programs that do not know
// filename*.
func ContentDisposition(filename string) string {
	if filename == "" {
		return "attachment"
	}
	name := strings.Map(replaceUnsafe, strings.ToValidUTF8(filename, "_"))
	if strings.Trim(name, ".") == "" { // "." and ".." are folders
		name = strings.ReplaceAll(name, ".", "_")
	}
	plain := strings.Map(replaceNonASCII, name)
	if plain == name {
		return `attachment; filename="` + name + `"`
	}
	return `attachment; filename="` + plain + `"; filename*=UTF-8''` + percentEncode(name)
}

// replaceUnsafe replaces a character that is not allowed in the name of a download.
func replaceUnsafe(r rune) rune {
	if r == '/' || r == '\\' || r == ':' || !unicode.IsGraphic(r) {
		return '_'
	}
	return r
}

// replaceNonASCII replaces a character that is not ASCII, and the ASCII characters
// that not all clients read in the same way in a quoted filename.
func replaceNonASCII(r rune) rune {
	if r > unicode.MaxASCII || r == '"' || r == '%' {
		return '_'
	}
	return r
}

// percentEncode escapes all characters except attr-char of RFC 8187.
func percentEncode(name string) string {
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

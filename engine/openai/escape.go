package openai

import "unicode/utf8"

// appendEscaped appends text as the inside of a JSON string. Bytes that are no
// UTF-8 become U+FFFD.
func appendEscaped(dst, text []byte) []byte {
	if !utf8.Valid(text) {
		text = appendValid(make([]byte, 0, len(text)+len(text)/8), text)
	}
	for {
		n := plain(text)
		dst = append(dst, text[:n]...)
		if n == len(text) {
			return dst
		}
		switch c := text[n]; c {
		case '"', '\\':
			dst = append(dst, '\\', c)
		case '\n':
			dst = append(dst, '\\', 'n')
		case '\r':
			dst = append(dst, '\\', 'r')
		case '\t':
			dst = append(dst, '\\', 't')
		default:
			const hex = "0123456789abcdef"
			dst = append(dst, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		}
		text = text[n+1:]
	}
}

// appendString appends text as a JSON string.
func appendString(dst, text []byte) []byte {
	return append(appendEscaped(append(dst, '"'), text), '"')
}

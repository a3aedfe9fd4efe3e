// Package textfmt formats texts and numbers: JSON strings, decimal numbers, sizes for
// people and texts cut for messages. It also measures the distance between two names.
package textfmt

import (
	"encoding/binary"
	"math"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// AppendString appends s as a JSON string.
func AppendString(dst, s []byte) []byte { return append(AppendEscaped(append(dst, '"'), s), '"') }

// AppendEscaped appends s as the inside of a JSON string: quotes, backslashes and
// control characters are escaped, and each byte that is not UTF-8 becomes U+FFFD. Other
// bytes do not change.
func AppendEscaped(dst, s []byte) []byte {
	const hex = "0123456789abcdef"
	if !utf8.Valid(s) {
		s = AppendValidUTF8(make([]byte, 0, len(s)+len(s)/8), s)
	}
	for {
		n := PlainPrefixLen(s)
		dst = append(dst, s[:n]...)
		if n == len(s) {
			return dst
		}
		switch c := s[n]; c {
		case '"', '\\':
			dst = append(dst, '\\', c)
		case '\n':
			dst = append(dst, '\\', 'n')
		case '\r':
			dst = append(dst, '\\', 'r')
		case '\t':
			dst = append(dst, '\\', 't')
		default:
			dst = append(dst, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		}
		s = s[n+1:]
	}
}

// AppendValidUTF8 appends s as valid UTF-8: U+FFFD replaces every byte that is not part of
// valid UTF-8.
func AppendValidUTF8(dst, s []byte) []byte {
	for len(s) > 0 {
		r, size := utf8.DecodeRune(s)
		dst = utf8.AppendRune(dst, r)
		s = s[size:]
	}
	return dst
}

// PlainPrefixLen returns the length of the longest prefix of s without quotes, backslashes and
// control characters, so that the prefix needs no escapes in a JSON string.
func PlainPrefixLen(s []byte) int {
	const (
		ones  = 0x0101010101010101
		highs = 0x8080808080808080
	)
	n := 0
	for len(s)-n >= 8 {
		w := binary.LittleEndian.Uint64(s[n:])
		quote, slash := w^(ones*'"'), w^(ones*'\\')
		// In (x - ones) &^ x, a byte has its high bit set if the byte of x is 0. A
		// borrow can change only the bytes above the first such byte, and only the
		// first one is used.
		hit := ((quote-ones)&^quote | (slash-ones)&^slash | (w-ones*0x20)&^w) & highs
		if hit != 0 {
			return n + bits.TrailingZeros64(hit)/8
		}
		n += 8
	}
	for n < len(s) && s[n] >= 0x20 && s[n] != '"' && s[n] != '\\' {
		n++
	}
	return n
}

// AppendDecimal appends the shortest text that reads back as f, a float of bitSize bits.
// The text always has a point or an exponent, so that no reader takes it for an integer.
func AppendDecimal(dst []byte, f float64, bitSize int) []byte {
	if abs := math.Abs(f); abs != 0 && (abs < 1e-6 || abs >= 1e21) {
		return strconv.AppendFloat(dst, f, 'e', -1, bitSize)
	}
	start := len(dst)
	dst = strconv.AppendFloat(dst, f, 'f', -1, bitSize)
	if !slices.Contains(dst[start:], '.') {
		dst = append(dst, '.', '0')
	}
	return dst
}

// Shorten cuts a client's text to limit bytes for a message, and makes it valid UTF-8.
func Shorten(s string, limit int) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) <= limit {
		return s
	}
	return strings.ToValidUTF8(s[:limit], "") + "…"
}

// EditDistance returns the Levenshtein distance over bytes: how many bytes must be added,
// removed or replaced to turn a into b.
func EditDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		diagonal := row[0]
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := diagonal
			if a[i-1] != b[j-1] {
				cost++
			}
			diagonal = row[j]
			row[j] = min(cost, row[j]+1, row[j-1]+1)
		}
	}
	return row[len(b)]
}

// FormatSize returns a number of bytes as text in decimal units, such as "1.5 MB".
func FormatSize(n int64) string {
	for _, unit := range []struct {
		size int64
		name string
	}{{1e9, "GB"}, {1e6, "MB"}, {1e3, "kB"}} {
		if n >= unit.size {
			return strconv.FormatFloat(float64(n)/float64(unit.size), 'f', 1, 64) + " " + unit.name
		}
	}
	return strconv.FormatInt(n, 10) + " B"
}

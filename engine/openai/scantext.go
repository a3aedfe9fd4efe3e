package openai

import (
	"errors"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/rowmill/rowmill/internal/textfmt"
)

// errTooLong reports an answer longer than Config.MaxAnswerBytes.
var errTooLong = errors.New("answer exceeds the limit on its length")

// readString consumes a string, appends its decoded value to dst and returns dst. If the
// value has more than limit bytes, readString drops the further bytes if truncate is true,
// and otherwise stops with errTooLong. Invalid UTF-8 stays unchanged (see toValidUTF8).
func (s *scanner) readString(dst []byte, limit int, truncate bool) []byte {
	if s.peek() != '"' {
		s.fail("expected a string")
		return dst
	}
	s.pos++
	limit += len(dst)
	var high rune // first half of a surrogate pair; the second half should follow
	for {
		run := s.win[s.pos:]
		run = run[:textfmt.PlainPrefixLen(run)]
		s.pos += len(run)
		if high != 0 && (len(run) > 0 || s.pos < len(s.win) && s.win[s.pos] != '\\') {
			dst, high = utf8.AppendRune(dst, utf8.RuneError), 0
		}
		if dst = append(dst, run...); len(dst) > limit {
			if !truncate {
				s.failWith(errTooLong)
				return dst
			}
			dst = dst[:limit]
		}
		if s.pos == len(s.win) {
			if !s.fill() {
				return dst
			}
			continue
		}
		switch s.win[s.pos] {
		case '"':
			s.pos++
			return dst
		case '\\':
			s.pos++
			dst, high = appendEscapedRune(dst, high, s.readEscape())
		default:
			s.fail("control character in a string")
			return dst
		}
	}
}

// appendEscapedRune appends the rune r of an escape to dst. If r is the first half of a
// surrogate pair, appendEscapedRune does not append it but returns it; the caller passes it as
// high with the next escape. A half without the other half becomes U+FFFD.
func appendEscapedRune(dst []byte, high, r rune) ([]byte, rune) {
	if high != 0 {
		if both := utf16.DecodeRune(high, r); both != utf8.RuneError {
			return utf8.AppendRune(dst, both), 0
		}
		dst = utf8.AppendRune(dst, utf8.RuneError)
	}
	if r >= 0xD800 && r < 0xDC00 {
		return dst, r
	}
	return utf8.AppendRune(dst, r), 0
}

// skipText consumes a string and stores nothing.
func (s *scanner) skipText() {
	s.pos++ // the quote
	for {
		s.pos += textfmt.PlainPrefixLen(s.win[s.pos:])
		if s.pos == len(s.win) {
			if !s.fill() {
				return
			}
			continue
		}
		switch s.win[s.pos] {
		case '"':
			s.pos++
			return
		case '\\':
			s.pos++
			s.readEscape()
		default:
			s.fail("control character in a string")
			return
		}
	}
}

// readEscape consumes the part of an escape after the backslash and returns its rune, which
// may be half of a surrogate pair.
func (s *scanner) readEscape() rune {
	switch c := s.readByte(); c {
	case '"', '\\', '/':
		return rune(c)
	case 'b':
		return '\b'
	case 'f':
		return '\f'
	case 'n':
		return '\n'
	case 'r':
		return '\r'
	case 't':
		return '\t'
	case 'u':
		return s.hex4()
	}
	s.fail("unknown escape")
	return utf8.RuneError
}

// hex4 reads the four digits of a \u escape.
func (s *scanner) hex4() rune {
	var digits [4]byte
	for i := range digits {
		digits[i] = s.readByte()
	}
	r, err := strconv.ParseUint(string(digits[:]), 16, 32)
	if err != nil {
		s.fail("expected a hexadecimal digit in an escape")
		return utf8.RuneError
	}
	return rune(r)
}

// toValidUTF8 returns b as valid UTF-8: each invalid byte becomes U+FFFD, as in
// encoding/json.
func toValidUTF8(b []byte) string {
	if utf8.Valid(b) {
		return string(b)
	}
	return string(textfmt.AppendValidUTF8(make([]byte, 0, len(b)+len(b)/8), b))
}

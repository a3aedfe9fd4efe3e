package sim

import (
	"bytes"
	"fmt"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/rowmill/rowmill/spelling"
)

// maxDepth bounds the nesting of a request's JSON, against stack overflow.
const maxDepth = 512

// scanner reads JSON in one pass without reflection, since request bodies are
// on the hot path. The first error sticks; every method is then a no-op.
type scanner struct {
	data  []byte // valid UTF-8
	pos   int
	depth int
	err   error
}

func (s *scanner) fail(what string) {
	if s.err == nil {
		s.err = fmt.Errorf("invalid JSON at byte %d: %s", s.pos, what)
	}
	s.pos = len(s.data)
}

// peek skips blanks and returns the next byte, 0 at the end.
func (s *scanner) peek() byte {
	for s.pos < len(s.data) {
		switch b := s.data[s.pos]; b {
		case ' ', '\t', '\n', '\r':
			s.pos++
		default:
			return b
		}
	}
	return 0
}

// take consumes the byte b if it comes next.
func (s *scanner) take(b byte) bool {
	if s.peek() != b || s.pos >= len(s.data) {
		return false
	}
	s.pos++
	return true
}

// end demands that nothing follows.
func (s *scanner) end() {
	if s.peek(); s.pos < len(s.data) {
		s.fail("text after the value")
	}
}

// open enters an object or array.
func (s *scanner) open(b byte) bool {
	if !s.take(b) {
		s.fail("expected " + strconv.QuoteRune(rune(b)))
		return false
	}
	if s.depth++; s.depth > maxDepth {
		s.fail("nested too deep")
		return false
	}
	return true
}

// next moves to the next element of the array or object that close ends; first
// says that none was read yet.
func (s *scanner) next(closing byte, first *bool) bool {
	if s.take(closing) {
		s.depth--
		return false
	}
	if s.err != nil {
		return false
	}
	if !*first && !s.take(',') {
		s.fail("expected ',' or " + strconv.QuoteRune(rune(closing)))
		return false
	}
	*first = false
	return true
}

// members calls visit with each key of an object; visit consumes the value.
func (s *scanner) members(visit func(key []byte)) {
	if !s.open('{') {
		return
	}
	var room [64]byte
	for first := true; s.next('}', &first); {
		key := s.text(room[:0])
		if !s.take(':') {
			s.fail("expected ':'")
		}
		if s.err != nil {
			return
		}
		visit(key)
	}
}

// items calls visit for each element of an array; visit consumes it.
func (s *scanner) items(visit func()) {
	if !s.open('[') {
		return
	}
	for first := true; s.next(']', &first); {
		if s.err != nil {
			return
		}
		visit()
	}
}

// text appends the unescaped string that comes next to dst.
func (s *scanner) text(dst []byte) []byte {
	if !s.take('"') {
		s.fail("expected a string")
		return dst
	}
	for {
		start := s.pos
		s.pos += spelling.Plain(s.data[start:])
		dst = append(dst, s.data[start:s.pos]...)
		switch {
		case s.pos >= len(s.data):
			s.fail("unclosed string")
			return dst
		case s.data[s.pos] == '"':
			s.pos++
			return dst
		case s.data[s.pos] != '\\':
			s.fail("control character in a string")
			return dst
		}
		s.pos++
		dst = s.escape(dst)
		if s.err != nil {
			return dst
		}
	}
}

// escape appends what the escape after a backslash stands for.
func (s *scanner) escape(dst []byte) []byte {
	if s.pos >= len(s.data) {
		s.fail("unclosed string")
		return dst
	}
	b := s.data[s.pos]
	s.pos++
	switch b {
	case '"', '\\', '/':
		return append(dst, b)
	case 'b':
		return append(dst, '\b')
	case 'f':
		return append(dst, '\f')
	case 'n':
		return append(dst, '\n')
	case 'r':
		return append(dst, '\r')
	case 't':
		return append(dst, '\t')
	case 'u':
		r := s.hex()
		if utf16.IsSurrogate(r) {
			high := r
			r = utf8.RuneError
			if bytes.HasPrefix(s.data[s.pos:], []byte(`\u`)) {
				before := s.pos
				s.pos += 2
				if r = utf16.DecodeRune(high, s.hex()); r == utf8.RuneError {
					s.pos = before
				}
			}
		}
		return utf8.AppendRune(dst, r)
	}
	s.fail("unknown escape")
	return dst
}

func (s *scanner) hex() rune {
	if s.pos+4 > len(s.data) {
		s.fail("short \\u escape")
		return 0
	}
	value, err := strconv.ParseUint(string(s.data[s.pos:s.pos+4]), 16, 16)
	if err != nil || bytes.IndexByte(s.data[s.pos:s.pos+4], '_') >= 0 {
		s.fail("bad \\u escape")
		return 0
	}
	s.pos += 4
	return rune(value)
}

// skip consumes any value and returns its bytes as they stand.
func (s *scanner) skip() []byte {
	s.peek()
	start := s.pos
	switch b := s.peek(); {
	case b == '{':
		s.members(func([]byte) { s.skip() })
	case b == '[':
		s.items(func() { s.skip() })
	case b == '"':
		s.skipText()
	case b == '-' || b >= '0' && b <= '9':
		s.number()
	case s.word("null") || s.word("true") || s.word("false"):
	default:
		s.fail("expected a value")
	}
	if s.err != nil {
		return nil
	}
	return s.data[start:s.pos]
}

func (s *scanner) skipText() {
	var room [64]byte
	s.text(room[:0])
}

// word consumes a literal if it comes next.
func (s *scanner) word(literal string) bool {
	s.peek()
	if !bytes.HasPrefix(s.data[s.pos:], []byte(literal)) {
		return false
	}
	s.pos += len(literal)
	return true
}

// number consumes a number and returns its text.
func (s *scanner) number() []byte {
	s.peek()
	start := s.pos
	digits := func() {
		from := s.pos
		for s.pos < len(s.data) && s.data[s.pos]-'0' < 10 {
			s.pos++
		}
		if s.pos == from {
			s.fail("expected a digit")
		}
	}
	at := func(set string) bool {
		return s.err == nil && s.pos < len(s.data) && bytes.IndexByte([]byte(set), s.data[s.pos]) >= 0
	}
	if at("-") {
		s.pos++
	}
	if at("0") {
		s.pos++
	} else {
		digits()
	}
	if at(".") {
		s.pos++
		digits()
	}
	if at("eE") {
		s.pos++
		if at("+-") {
			s.pos++
		}
		digits()
	}
	if s.err != nil {
		return nil
	}
	return s.data[start:s.pos]
}

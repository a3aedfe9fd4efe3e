package openai

import (
	"errors"
	"fmt"
	"io"

	"github.com/rowmill/rowmill/internal/textfmt"
)

const (
	// maxDepth limits the nesting of the JSON in a reply: replies need 8 levels, and
	// each level costs a stack frame.
	maxDepth = 64
	// maxKey limits the stored bytes of an object key. Known keys have less than half
	// as many bytes, so a longer key matches no known key.
	maxKey = 64
	// maxNumber limits the characters of a number that is decoded. Encoders write at
	// most 25; the longest exact form of a float64 has 1,077.
	maxNumber = 1100
)

// errTruncated reports that a body ended inside the JSON value.
var errTruncated = fmt.Errorf("reply ends inside its JSON: %w", io.ErrUnexpectedEOF)

// A scanner reads one JSON value from a source in one pass. It accepts the same texts
// as encoding/json, up to maxDepth, but decodes only the values that the caller asks
// for. A decoded number has at most maxNumber bytes. In values that the caller skips,
// the scanner also accepts NaN, Infinity and -Infinity, which Python writes.
//
// The scanner stores the first error in err. After an error every method returns its
// zero value at once and loops over keys or items end, so the caller needs to check err
// only at the end.
type scanner struct {
	src   windowSource
	win   []byte // the current window
	pos   int    // index of the next byte in win
	off   int64  // total bytes in the windows before win
	depth int    // number of open objects and arrays
	err   error  // the first error

	key [maxKey]byte
	num [maxNumber]byte
}

// reset prepares s for a new body, which src returns.
func (s *scanner) reset(src windowSource) {
	s.src, s.win, s.pos, s.off, s.depth, s.err = src, nil, 0, 0, 0, nil
}

// syntaxError reports malformed JSON. It contains the offset of the error and never a
// part of the body.
type syntaxError struct {
	offset int64
	reason string
}

func (e *syntaxError) Error() string {
	return fmt.Sprintf("reply is not the JSON expected: %s at byte %d", e.reason, e.offset)
}

// fail records that the body is malformed at the current byte.
func (s *scanner) fail(reason string) {
	if s.err == nil {
		s.failWith(&syntaxError{offset: s.off + int64(s.pos), reason: reason})
	}
}

// failWith ends the reading with err, unless an earlier error has ended it.
func (s *scanner) failWith(err error) {
	if s.err == nil {
		s.err = err
	}
	s.win, s.pos = nil, 0
}

// fill gets the next window from the source. It returns false at the end of the body
// and after an error.
func (s *scanner) fill() bool {
	if s.err != nil {
		return false
	}
	s.off += int64(len(s.win))
	s.win, s.pos = nil, 0
	win, err := s.src.nextWindow()
	if err != nil {
		if errors.Is(err, io.EOF) {
			err = errTruncated
		}
		s.failWith(err)
		return false
	}
	s.win = win
	return true
}

// readByte consumes and returns the next byte, which may be white space. It returns 0 after
// an error.
func (s *scanner) readByte() byte {
	if s.pos == len(s.win) && !s.fill() {
		return 0
	}
	c := s.win[s.pos]
	s.pos++
	return c
}

// peek skips white space and returns the next byte without consuming it. It returns 0
// after an error, and also for a NUL in the body, which no caller accepts. peek is so small
// that the compiler inlines it; peekPastSpace handles the rare cases.
func (s *scanner) peek() byte {
	if i := s.pos; i < len(s.win) && s.win[i] > ' ' {
		return s.win[i]
	}
	return s.peekPastSpace()
}

// peekPastSpace does the work of peek if the next byte is white space or in the next window.
func (s *scanner) peekPastSpace() byte {
	for {
		for s.pos < len(s.win) {
			c := s.win[s.pos]
			if c != ' ' && c != '\n' && c != '\t' && c != '\r' {
				return c
			}
			s.pos++
		}
		if !s.fill() {
			return 0
		}
	}
}

// expectEnd checks that the body has only white space after the value.
func (s *scanner) expectEnd() {
	if s.err != nil {
		return
	}
	s.peek()
	if errors.Is(s.err, errTruncated) {
		s.err = nil // the body must end here
		return
	}
	s.fail("text after the value")
}

// enter consumes the opening bracket open of an object or array. It returns false if
// another byte comes next.
func (s *scanner) enter(open byte) bool {
	if s.peek() != open {
		if open == '{' {
			s.fail("expected an object")
		} else {
			s.fail("expected an array")
		}
		return false
	}
	s.pos++
	if s.depth++; s.depth > maxDepth {
		s.fail("nested too deeply")
		return false
	}
	return true
}

// firstKey enters an object and returns its first key; nil if the object is empty. The
// key is valid until the next call of a scanner method. The caller must read or skip
// the value before it calls nextKey.
func (s *scanner) firstKey() []byte {
	if !s.enter('{') {
		return nil
	}
	if s.peek() == '}' {
		s.pos++
		s.depth--
		return nil
	}
	return s.readKey()
}

// nextKey returns the next key of the object; nil at its end.
func (s *scanner) nextKey() []byte {
	switch s.peek() {
	case ',':
		s.pos++
		return s.readKey()
	case '}':
		s.pos++
		s.depth--
	default:
		s.fail("expected a comma or brace after a value")
	}
	return nil
}

// firstItem enters an array and returns true if the array has an item.
func (s *scanner) firstItem() bool {
	if !s.enter('[') {
		return false
	}
	if s.peek() == ']' {
		s.pos++
		s.depth--
		return false
	}
	return s.err == nil
}

// nextItem reports whether another item follows.
func (s *scanner) nextItem() bool {
	switch s.peek() {
	case ',':
		s.pos++
		return true
	case ']':
		s.pos++
		s.depth--
	default:
		s.fail("expected a comma or bracket after an item")
	}
	return false
}

// readKey consumes a key and its colon and returns the key.
func (s *scanner) readKey() []byte {
	if s.peek() != '"' {
		s.fail("expected a key")
		return nil
	}
	// fast path: the whole key is in the window and has no escapes
	rest := s.win[s.pos+1:]
	if n := textfmt.PlainPrefixLen(rest); n+1 < len(rest) && rest[n] == '"' && rest[n+1] == ':' {
		s.pos += n + 3
		return rest[:n:n]
	}
	key := s.readString(s.key[:0], maxKey, true)
	if s.peek() != ':' {
		s.fail("expected a colon after a key")
		return nil
	}
	s.pos++
	return key
}

// consumeNull consumes the literal null and returns true, if it comes next.
func (s *scanner) consumeNull() bool {
	if s.peek() != 'n' {
		return false
	}
	s.expectLiteral("null")
	return s.err == nil
}

// expectLiteral consumes the given word; any other text is an error.
func (s *scanner) expectLiteral(word string) {
	for i := range len(word) {
		if s.readByte() != word[i] {
			s.fail("unknown literal")
			return
		}
	}
}

// skipValue consumes a value of any type and stores nothing.
func (s *scanner) skipValue() {
	switch c := s.peek(); {
	case c == '"':
		s.skipText()
	case c == '{':
		for k := s.firstKey(); k != nil; k = s.nextKey() {
			s.skipValue()
		}
	case c == '[':
		if s.trySkipIntArray() {
			return
		}
		for more := s.firstItem(); more; more = s.nextItem() {
			s.skipValue()
		}
	case c == '-' || c-'0' < 10:
		s.skipNumber()
	case c == 'N' || c == 'I':
		s.skipNonFinite()
	case c == 't':
		s.expectLiteral("true")
	case c == 'f':
		s.expectLiteral("false")
	case c == 'n':
		s.expectLiteral("null")
	default:
		s.fail("expected a value")
	}
}

// trySkipIntArray is a fast path of skipValue for a list of natural numbers that has no
// white space and is fully in the window. Replies with log probabilities have thousands of
// such lists: the bytes of each token. For any other list it returns false and consumes
// nothing.
func (s *scanner) trySkipIntArray() bool {
	list := s.win[s.pos+1:]
	begin := 0 // start of the current number
	for i, c := range list {
		if c-'0' < 10 {
			continue
		}
		if i == begin || list[begin] == '0' && i > begin+1 || c != ',' && c != ']' {
			return false
		}
		if c == ']' {
			s.pos += i + 2
			return true
		}
		begin = i + 1
	}
	return false
}

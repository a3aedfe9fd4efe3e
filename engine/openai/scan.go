package openai

import (
	"errors"
	"fmt"
	"io"

	"github.com/rowmill/rowmill/spelling"
)

const (
	// maxDepth bounds the nesting of a body: replies need 8 levels, and every
	// level costs a stack frame.
	maxDepth = 64
	// maxKey is the longest object key that is compared: no key that means
	// anything to us is half as long. Longer ones are read and match nothing.
	maxKey = 64
	// maxNumber is the longest number that is read. Encoders write at most 25
	// characters; a float64 that is written out exactly has at most 1,077.
	maxNumber = 1100
)

// errTruncated says that the body ended inside the JSON value.
var errTruncated = fmt.Errorf("reply ends inside its JSON: %w", io.ErrUnexpectedEOF)

// A scanner reads one JSON value from a source, front to back. It accepts
// exactly the texts that encoding/json accepts, up to maxDepth, but decodes only the
// values that its caller asks for. Such a number has at most maxNumber bytes. In the
// other values it accepts NaN, Infinity and -Infinity too, which Python writes.
//
// The first error sticks in err; from then on every method returns its zero
// value at once, loops end, and nobody has to check in between.
type scanner struct {
	src   source
	win   []byte // the current window
	pos   int    // next byte in win
	off   int64  // bytes in the windows before win
	depth int
	err   error

	key [maxKey]byte
	num [maxNumber]byte
}

// reset makes s read a new body.
func (s *scanner) reset(src source) {
	s.src, s.win, s.pos, s.off, s.depth, s.err = src, nil, 0, 0, 0, nil
}

// syntaxError is what is wrong with the body. It names the offset and never
// quotes the body.
type syntaxError struct {
	offset int64
	reason string
}

func (e *syntaxError) Error() string {
	return fmt.Sprintf("reply is not the JSON expected: %s at byte %d", e.reason, e.offset)
}

// fail notes that the body is malformed at the current byte.
func (s *scanner) fail(reason string) {
	if s.err == nil {
		s.stop(&syntaxError{offset: s.off + int64(s.pos), reason: reason})
	}
}

// stop ends the reading with an error.
func (s *scanner) stop(err error) {
	if s.err == nil {
		s.err = err
	}
	s.win, s.pos = nil, 0
}

// fill makes the next window current. It reports false at the end of the body
// and after an error.
func (s *scanner) fill() bool {
	if s.err != nil {
		return false
	}
	s.off += int64(len(s.win))
	s.win, s.pos = nil, 0
	win, err := s.src.window()
	if err != nil {
		if errors.Is(err, io.EOF) {
			err = errTruncated
		}
		s.stop(err)
		return false
	}
	s.win = win
	return true
}

// byte consumes one byte as it is, 0 after an error.
func (s *scanner) byte() byte {
	if s.pos == len(s.win) && !s.fill() {
		return 0
	}
	c := s.win[s.pos]
	s.pos++
	return c
}

// peek returns the next byte that is not white space without consuming it, 0
// after an error. A NUL in the body is 0 too: no caller accepts it. It is small
// enough to be inlined; what is rare is in space.
func (s *scanner) peek() byte {
	if i := s.pos; i < len(s.win) && s.win[i] > ' ' {
		return s.win[i]
	}
	return s.space()
}

// space is peek where white space or the end of the window comes first.
func (s *scanner) space() byte {
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

// end demands that nothing but white space follows, to the end of the body.
func (s *scanner) end() {
	if s.err != nil {
		return
	}
	s.peek()
	if errors.Is(s.err, errTruncated) {
		s.err = nil // here the end of the body is what we hoped for
		return
	}
	s.fail("text after the value")
}

// enter consumes the opening bracket of an object or array.
func (s *scanner) enter(open byte) bool {
	if s.peek() != open {
		if open == '{' {
			s.fail("no object")
		} else {
			s.fail("no array")
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

// firstKey enters an object and returns its first key, nil where it has none.
// The key is valid until the next call of a scanner method; the caller reads or
// skips the value and calls nextKey.
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

// nextKey returns the next key of the object, nil at its end.
func (s *scanner) nextKey() []byte {
	switch s.peek() {
	case ',':
		s.pos++
		return s.readKey()
	case '}':
		s.pos++
		s.depth--
	default:
		s.fail("no comma or brace after a value")
	}
	return nil
}

// firstItem enters an array and reports whether it has an item.
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
		s.fail("no comma or bracket after an item")
	}
	return false
}

// readKey reads a key and its colon.
func (s *scanner) readKey() []byte {
	if s.peek() != '"' {
		s.fail("no key")
		return nil
	}
	// Nearly every key lies within the window and has no escapes.
	rest := s.win[s.pos+1:]
	if n := spelling.Plain(rest); n+1 < len(rest) && rest[n] == '"' && rest[n+1] == ':' {
		s.pos += n + 3
		return rest[:n:n]
	}
	key := s.text(s.key[:0], maxKey, true)
	if s.peek() != ':' {
		s.fail("no colon after a key")
		return nil
	}
	s.pos++
	return key
}

// null consumes a null and reports whether there was one.
func (s *scanner) null() bool {
	if s.peek() != 'n' {
		return false
	}
	s.literal("null")
	return s.err == nil
}

func (s *scanner) literal(word string) {
	for i := range len(word) {
		if s.byte() != word[i] {
			s.fail("no such literal")
			return
		}
	}
}

// skip reads a value of any kind and drops it.
func (s *scanner) skip() {
	switch c := s.peek(); {
	case c == '"':
		s.skipText()
	case c == '{':
		for k := s.firstKey(); k != nil; k = s.nextKey() {
			s.skip()
		}
	case c == '[':
		if s.skipCounts() {
			return
		}
		for more := s.firstItem(); more; more = s.nextItem() {
			s.skip()
		}
	case c == '-' || c-'0' < 10:
		s.skipNumber()
	case c == 'N' || c == 'I':
		s.unreal()
	case c == 't':
		s.literal("true")
	case c == 'f':
		s.literal("false")
	case c == 'n':
		s.literal("null")
	default:
		s.fail("no value")
	}
}

// skipCounts drops a list of natural numbers without white space that lies
// within the window, such as the bytes of a token, of which a reply with log
// probabilities has thousands. It reports false, having read nothing, where
// there is anything else.
func (s *scanner) skipCounts() bool {
	list := s.win[s.pos+1:]
	begin := 0 // of the current number
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

package submission

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/rowmill/rowmill/http/request"
	"github.com/rowmill/rowmill/internal/textfmt"
)

// scanWindow is the size of the read buffer of a scanner, in bytes.
const scanWindow = 64 << 10

// maxDepth limits how deep values may be nested, as in encoding/json.
const maxDepth = 10_000

// errTooLong means that a value is longer than its limit. The scanner has read and
// dropped the whole value.
var errTooLong = errors.New("the value is longer than its limit")

// A jsonScanner parses a JSON text while it arrives. Its memory is limited by the largest
// value that it keeps, not by the body. The decoder of encoding/json does not work here,
// because it buffers values of any length.
type jsonScanner struct {
	r      *bufio.Reader
	offset int64  // number of bytes of the body that were read
	kept   []byte // text of the value that is being read; the next value reuses the memory
}

// scanBuffers is a pool of read buffers for scanners. Submissions reuse buffers,
// because most submissions fill only a small part of a buffer.
var scanBuffers = sync.Pool{New: func() any { return bufio.NewReaderSize(nil, scanWindow) }}

func newScanner(r io.Reader) *jsonScanner {
	window, _ := scanBuffers.Get().(*bufio.Reader)
	window.Reset(r)
	return &jsonScanner{r: window}
}

// free gives the buffer of the scanner back to the pool. Values that the scanner returned
// stay valid.
func (s *jsonScanner) free() {
	s.r.Reset(nil)
	scanBuffers.Put(s.r)
	s.r = nil
}

// syntaxError returns an error with status 400 that names the current byte position.
func (s *jsonScanner) syntaxError(format string, args ...any) error {
	return request.Errorf(http.StatusBadRequest, "invalid_json", "the body is not valid JSON at byte %d: %s", s.offset, fmt.Sprintf(format, args...))
}

// convertReadError turns an error from reading the body into an error for the client.
func (s *jsonScanner) convertReadError(err error) error {
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return s.syntaxError("the body ends too early")
	case errors.As(err, new(*http.MaxBytesError)), errors.As(err, new(*request.Error)):
		return err
	}
	return request.BodyInterrupted(fmt.Sprintf(" at byte %d", s.offset))
}

// nextByte reads and returns the next byte of the body.
func (s *jsonScanner) nextByte() (byte, error) {
	b, err := s.r.ReadByte()
	if err != nil {
		return 0, s.convertReadError(err)
	}
	s.offset++
	return b, nil
}

// unread undoes the last call of nextByte, so that nextByte returns the same byte again.
func (s *jsonScanner) unread() {
	_ = s.r.UnreadByte() // always follows a successful ReadByte
	s.offset--
}

// nextNonSpace skips white space, and reads and returns the next byte.
func (s *jsonScanner) nextNonSpace() (byte, error) {
	for {
		b, err := s.nextByte()
		if err != nil {
			return 0, err
		}
		switch b {
		case ' ', '\t', '\r', '\n':
		default:
			return b, nil
		}
	}
}

// expectEnd reads to the end of the body. It returns an error if anything but white space
// follows.
func (s *jsonScanner) expectEnd() error {
	for {
		b, err := s.r.ReadByte()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return s.convertReadError(err)
		}
		s.offset++
		switch b {
		case ' ', '\t', '\r', '\n':
		default:
			return s.syntaxError("text follows the object; the body must be exactly one object")
		}
	}
}

// readString reads a string after its opening quote, and checks all rules of JSON and UTF-8. It
// returns the bytes between the quotes without decoding them. The bytes are valid until the
// next call. It returns errTooLong if the decoded string would have more than limit bytes.
func (s *jsonScanner) readString(limit int) (raw []byte, err error) {
	s.kept = s.kept[:0]
	decoded := 0 // length of the decoded string, in bytes
	for {
		if decoded > limit {
			s.kept = s.kept[:0]
		}
		n, err := s.readPlainBytes(scanWindow)
		if err != nil {
			return nil, err
		}
		if n > 0 {
			decoded += n
			continue
		}
		b, err := s.nextByte()
		if err != nil {
			return nil, err
		}
		switch {
		case b == '"' && decoded > limit:
			return nil, errTooLong
		case b == '"' && !utf8.Valid(s.kept):
			return nil, s.syntaxError("the string that ends here is not valid UTF-8")
		case b == '"' && textfmt.HasLoneSurrogate(s.kept):
			return nil, s.syntaxError("the string that ends here has half of a surrogate pair, such as \\ud800, which is no character; remove it")
		case b == '"':
			return s.kept, nil
		case b < ' ':
			return nil, s.syntaxError("a string contains a control character; write it as \\u%04x", b)
		}
		code, err := s.readEscape()
		if err != nil {
			return nil, err
		}
		if utf16.IsSurrogate(code) {
			decoded += 2 // the two halves of a pair together have 4 bytes in UTF-8
		} else {
			decoded += utf8.RuneLen(code)
		}
	}
}

// readEscape reads an escape of a JSON string after its backslash, adds it to s.kept, and
// returns its UTF-16 code unit. For an escape of one letter, such as \n, it returns the
// letter.
func (s *jsonScanner) readEscape() (rune, error) {
	b, err := s.nextByte()
	if err != nil {
		return 0, err
	}
	s.kept = append(s.kept, '\\', b)
	switch b {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return rune(b), nil // the caller needs only the decoded length, which is one byte
	case 'u':
	default:
		return 0, s.syntaxError("a backslash must be followed by one of \"\\/bfnrtu")
	}
	var code rune
	for range 4 {
		if b, err = s.nextByte(); err != nil {
			return 0, err
		}
		s.kept = append(s.kept, b)
		switch {
		case '0' <= b && b <= '9':
			code = code<<4 | rune(b-'0')
		case 'a' <= b|0x20 && b|0x20 <= 'f':
			code = code<<4 | rune(b|0x20-'a'+10)
		default:
			return 0, s.syntaxError("\\u needs four hexadecimal digits")
		}
	}
	return code, nil
}

// nestingTracker finds the end of an object, an array or a string in a JSON text, byte by
// byte.
type nestingTracker struct {
	depth             int
	inString, escaped bool
}

// consumeByte processes one byte of a JSON value and reports whether the value ends with this
// byte.
func (n *nestingTracker) consumeByte(b byte) (ended bool) {
	switch {
	case n.escaped:
		n.escaped = false
	case n.inString:
		n.escaped, n.inString = b == '\\', b != '"'
	case b == '"':
		n.inString = true
	case b == '{', b == '[':
		n.depth++
	case b == '}', b == ']':
		n.depth--
	}
	return n.depth <= 0 && !n.inString
}

// readValue reads a JSON value of any type and returns its text. first is the first byte,
// which was already read. The text is valid until the next call. If the text has more
// than limit bytes, readValue reads to its end, checks only brackets and quotes, and
// returns errTooLong.
func (s *jsonScanner) readValue(first byte, limit int) ([]byte, error) {
	if isScalarEnd(first) || first == ':' {
		return nil, s.syntaxError("a value is expected here")
	}
	var shape nestingTracker
	scalar := first != '{' && first != '[' && first != '"'
	s.kept = append(s.kept[:0], first)
	size := 1
	for ended := shape.consumeByte(first) && !scalar; !ended; {
		if shape.inString && !shape.escaped {
			n, err := s.readPlainBytes(limit - size)
			if err != nil {
				return nil, err
			}
			size += n
		}
		b, err := s.nextByte()
		if err != nil {
			return nil, err
		}
		if scalar && isScalarEnd(b) {
			s.unread()
			break
		}
		if ended = !scalar && shape.consumeByte(b); shape.depth > maxDepth {
			return nil, s.syntaxError("values are nested deeper than %d levels", maxDepth)
		}
		if size++; size <= limit {
			s.kept = append(s.kept, b)
		}
	}
	switch {
	case size > limit:
		return nil, errTooLong
	case !json.Valid(s.kept):
		return nil, s.syntaxError("the value that ends here is malformed")
	case !utf8.Valid(s.kept):
		return nil, s.syntaxError("the value that ends here is not valid UTF-8")
	case textfmt.HasLoneSurrogate(s.kept):
		return nil, s.syntaxError("the value that ends here has half of a surrogate pair, such as \\ud800, which is no character; remove it")
	}
	return s.kept, nil
}

// isScalarEnd reports whether b is a byte that ends a number, true, false or null before
// it.
func isScalarEnd(b byte) bool {
	switch b {
	case ',', ']', '}', ' ', '\t', '\r', '\n':
		return true
	}
	return false
}

// readPlainBytes consumes the buffered bytes of a string up to a quote, a backslash or a
// control character. It adds at most maxKept of these bytes to s.kept, and returns how many
// it consumed.
func (s *jsonScanner) readPlainBytes(maxKept int) (n int, err error) {
	if s.r.Buffered() == 0 {
		if _, err := s.r.Peek(1); err != nil {
			return 0, s.convertReadError(err)
		}
	}
	window, _ := s.r.Peek(s.r.Buffered()) // cannot fail
	n = textfmt.PlainPrefixLen(window)
	s.kept = append(s.kept, window[:max(0, min(n, maxKept))]...)
	_, _ = s.r.Discard(n) // cannot fail: the bytes are buffered
	s.offset += int64(n)
	return n, nil
}

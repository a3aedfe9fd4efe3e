package csv

import (
	"bytes"
	"errors"
	"io"
	"unicode/utf8"
)

// emptyReads is the number of consecutive reads without bytes after which reading
// fails, as in package bufio.
const emptyReads = 100

// checkEncoding reads and checks the first bytes of the file. It skips a UTF-8 byte order mark.
// It returns an error for UTF-16 and UTF-32, with or without a byte order mark.
func (r *Reader) checkEncoding() error {
	r.startChecked = true
	for r.end < 4 && !r.eof {
		if err := r.fill(); err != nil {
			return err
		}
	}
	head := r.buf[:min(r.end, 4)]
	utf16 := bytes.HasPrefix(head, []byte{0xFF, 0xFE}) || bytes.HasPrefix(head, []byte{0xFE, 0xFF})
	if len(head) == 4 {
		nul := [4]bool{head[0] == 0, head[1] == 0, head[2] == 0, head[3] == 0}
		switch nul {
		case [4]bool{true, false, true, false}, [4]bool{false, true, false, true}, // UTF-16
			[4]bool{true, true, true, false}, [4]bool{false, true, true, true}, // UTF-32
			[4]bool{true, true, false, false}: // UTF-32 with a byte order mark
			utf16 = true
		}
	}
	if utf16 {
		return &ParseError{Line: 1, Err: ErrUTF16}
	}
	if bytes.HasPrefix(head, []byte("\xEF\xBB\xBF")) {
		r.pos = 3
	}
	return r.checkUTF8()
}

// readMore reads more bytes of the current record, or of the next record if r.pos is r.end.
// It returns false at the end of the file. It may move the bytes in the buffer, and
// then adjusts r.recordStart and r.pos. The caller must check the error before the first
// result.
func (r *Reader) readMore() (bool, error) {
	if r.eof {
		return false, nil
	}
	if r.end-r.recordStart > r.cfg.MaxRecord {
		return false, &ParseError{Line: r.line, Offset: r.base + int64(r.recordStart), Err: ErrTooLong}
	}
	before := r.base + int64(r.end)
	if err := r.fill(); err != nil {
		return false, err
	}
	return r.base+int64(r.end) > before, r.checkUTF8()
}

// fill makes room in the buffer after r.end and reads bytes from r.src once.
func (r *Reader) fill() error {
	if r.end == len(r.buf) {
		if r.recordStart > 0 {
			copy(r.buf, r.buf[r.recordStart:r.end])
			r.base += int64(r.recordStart)
			r.pos -= r.recordStart
			r.end -= r.recordStart
			r.valid -= r.recordStart
			r.recordStart = 0
		}
		if r.end > len(r.buf)/2 {
			grown := make([]byte, 2*len(r.buf))
			copy(grown, r.buf[:r.end])
			r.buf = grown
		}
	}
	for range emptyReads {
		n, err := r.src.Read(r.buf[r.end:])
		r.end += n
		if errors.Is(err, io.EOF) {
			r.eof = true
			return nil
		}
		if n > 0 || err != nil {
			return err
		}
	}
	return io.ErrNoProgress
}

// checkUTF8 returns an error if the bytes read since the last call are not UTF-8. If a
// character is cut off at the end of the buffer, the next call checks it.
func (r *Reader) checkUTF8() error {
	if !r.startChecked {
		return nil
	}
	b := r.buf[r.valid:r.end]
	if utf8.Valid(b) {
		r.valid = r.end
		return nil
	}
	for i := 0; i < len(b); {
		c, size := utf8.DecodeRune(b[i:])
		if c == utf8.RuneError && size <= 1 {
			if !r.eof && !utf8.FullRune(b[i:]) {
				r.valid += i
				return nil
			}
			return &ParseError{Offset: r.base + int64(r.valid+i), Err: ErrNotUTF8}
		}
		i += size
	}
	return nil
}

func isTooLong(err error) bool { return errors.Is(err, ErrTooLong) }

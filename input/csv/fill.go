package csv

import (
	"bytes"
	"errors"
	"io"
	"unicode/utf8"
)

// emptyReads is how many empty reads in a row are an error, as in package
// bufio.
const emptyReads = 100

// begin checks the first bytes. It skips a byte order mark and returns an error
// for UTF-16 and UTF-32, with or without a mark.
func (r *Reader) begin() error {
	r.seen = true
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
			[4]bool{true, true, false, false}: // UTF-32 with a mark
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

// more reads more bytes of the current record, or of the next record if r.pos
// is r.end. It returns false at the end of the file. It may move the buffer and
// then adjusts r.rec and r.pos. The caller must check the error first.
func (r *Reader) more() (bool, error) {
	if r.eof {
		return false, nil
	}
	if r.end-r.rec > r.cfg.MaxRecord {
		return false, &ParseError{Line: r.line, Offset: r.base + int64(r.rec), Err: ErrTooLong}
	}
	before := r.base + int64(r.end)
	if err := r.fill(); err != nil {
		return false, err
	}
	return r.base+int64(r.end) > before, r.checkUTF8()
}

// fill makes room after r.end and reads once.
func (r *Reader) fill() error {
	if r.end == len(r.buf) {
		if r.rec > 0 {
			copy(r.buf, r.buf[r.rec:r.end])
			r.base += int64(r.rec)
			r.pos -= r.rec
			r.end -= r.rec
			r.valid -= r.rec
			r.rec = 0
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

// checkUTF8 checks the bytes read since the last call. A character that is cut
// off at the end is checked later.
func (r *Reader) checkUTF8() error {
	if !r.seen {
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

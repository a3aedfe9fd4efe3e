package csv

import (
	"bytes"
	"io"
)

// readRecord reads the next record and returns its number of fields. It skips blank lines,
// except in a file with one column, where a blank line is a record.
func (r *Reader) readRecord() (int, error) {
	if !r.startChecked {
		if err := r.checkEncoding(); err != nil {
			return 0, err
		}
	}
	for {
		r.recordStart, r.line = r.pos, r.next
		r.fields, r.count = r.fields[:0], 0
		blank, err := r.skipBlankLine()
		if err != nil {
			return 0, err
		}
		if blank {
			r.next++
			if r.width != 1 {
				continue
			}
			r.addField(0, 0)
			return 1, nil
		}
		if err := r.readFields(); err != nil {
			return 0, err
		}
		switch {
		case r.width == 0:
			r.width = r.count
		case r.count != r.width:
			return 0, &ParseError{Line: r.line, Offset: r.base + int64(r.recordStart), Fields: r.count, Want: r.width, Err: ErrFields}
		}
		return r.count, nil
	}
}

// firstLine skips blank lines and returns the next line without its line end.
func (r *Reader) firstLine() ([]byte, error) {
	if !r.startChecked {
		if err := r.checkEncoding(); err != nil {
			return nil, err
		}
	}
	for {
		r.recordStart, r.line = r.pos, r.next
		blank, err := r.skipBlankLine()
		if err != nil {
			return nil, err
		}
		if !blank {
			break
		}
		r.next++
	}
	end, err := r.findLineEnd()
	if err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(r.buf[r.recordStart:r.recordStart+end], []byte{'\r'}), nil
}

// skipBlankLine reports whether a line end is at r.pos, and skips this line end. At the end
// of the file it returns io.EOF.
func (r *Reader) skipBlankLine() (bool, error) {
	if r.pos == r.end {
		if ok, err := r.readMore(); err != nil {
			return false, err
		} else if !ok {
			return false, io.EOF
		}
	}
	switch r.buf[r.pos] {
	case '\n':
		r.pos++
		return true, nil
	case '\r':
		if r.pos+1 == r.end {
			if _, err := r.readMore(); err != nil {
				return false, err
			}
		}
		if r.pos+1 == r.end { // a CR at the end of the file ends a line
			r.pos++
			return true, nil
		}
		if r.buf[r.pos+1] == '\n' {
			r.pos += 2
			return true, nil
		}
	}
	return false, nil
}

// readFields reads the fields of the current record. For all unquoted fields of a line, it
// searches for the line end only once.
func (r *Reader) readFields() error {
	lineEnd := -1  // position of the next LF, relative to r.recordStart; not valid if it is before r.pos
	clean := false // true: unquoted fields before lineEnd need no check for quotes
	for {
		if r.pos == r.end {
			if ok, err := r.readMore(); err != nil {
				return err
			} else if !ok { // a separator was the last byte
				r.addField(r.pos-r.recordStart, r.pos-r.recordStart)
				return nil
			}
		}
		var last bool
		var err error
		if r.buf[r.pos] == '"' {
			last, err = r.readQuotedField()
		} else {
			if lineEnd < r.pos-r.recordStart {
				if lineEnd, err = r.findLineEnd(); err != nil {
					return err
				}
				clean = r.cfg.Separator == '\t' || bytes.IndexByte(r.buf[r.pos:r.recordStart+lineEnd], '"') < 0
			}
			last, err = r.readUnquotedField(lineEnd, clean)
		}
		if err != nil {
			return err
		}
		if r.width == 0 && r.count > r.cfg.MaxFields {
			return &ParseError{Line: r.line, Offset: r.base + int64(r.recordStart), Err: ErrTooWide}
		}
		if last {
			return nil
		}
	}
}

// findLineEnd returns the position of the next LF, or of the end of the file,
// relative to r.recordStart.
func (r *Reader) findLineEnd() (int, error) {
	from := r.pos - r.recordStart
	for {
		if i := bytes.IndexByte(r.buf[r.recordStart+from:r.end], '\n'); i >= 0 {
			return from + i, nil
		}
		from = r.end - r.recordStart
		if ok, err := r.readMore(); err != nil {
			return 0, err
		} else if !ok {
			return r.end - r.recordStart, nil
		}
	}
}

// readUnquotedField reads an unquoted field. lineEnd comes from findLineEnd. If clean is true,
// quotes before lineEnd need no check. last is true if the field ends the record.
func (r *Reader) readUnquotedField(lineEnd int, clean bool) (last bool, err error) {
	start, stop, line := r.pos, r.recordStart+lineEnd, r.next
	end := bytes.IndexByte(r.buf[start:stop], r.cfg.Separator)
	if end >= 0 {
		end += start
		r.pos = end + 1
	} else {
		last = true
		end = stop
		r.pos = min(stop+1, r.end)
		r.next++
		if end > start && r.buf[end-1] == '\r' {
			end--
		}
	}
	if !clean {
		if i := bytes.IndexByte(r.buf[start:end], '"'); i >= 0 {
			return false, &ParseError{Line: line, Offset: r.base + int64(start+i), Err: ErrQuote}
		}
	}
	r.addField(start-r.recordStart, end-r.recordStart)
	return last, nil
}

// readQuotedField reads a quoted field. It replaces doubled quotes in place. All positions are
// relative to r.recordStart, because r.readMore may move the buffer. last is true if the field ends
// the record.
func (r *Reader) readQuotedField() (last bool, err error) {
	opened := r.pos - r.recordStart
	start := opened + 1
	write := start // position to which the next part of the field is moved
	from := start  // start of the next part of the field that must be moved
	scan := start  // where the search for the next quote starts
	lines := int64(0)
	for {
		i := bytes.IndexByte(r.buf[r.recordStart+scan:r.end], '"')
		if i < 0 {
			scan = r.end - r.recordStart
			if ok, err := r.readMore(); err != nil {
				return false, r.unclosedError(opened, err)
			} else if !ok {
				return false, r.unclosedError(opened, ErrUnclosed)
			}
			continue
		}
		quote := scan + i
		if r.recordStart+quote+1 == r.end {
			if _, err := r.readMore(); err != nil {
				return false, r.unclosedError(opened, err)
			}
		}
		data := r.buf[r.recordStart:r.end]
		part := data[from:quote]
		lines += int64(bytes.Count(part, []byte{'\n'}))
		if write != from {
			copy(data[write:], part)
		}
		write += len(part)
		after := quote + 1
		switch {
		case after < len(data) && data[after] == '"':
			write++ // keep the first of the two quotes
			data[write-1] = '"'
			from, scan = after+1, after+1
			continue
		case after == len(data):
			last = true
		case data[after] == r.cfg.Separator:
			after++
		case data[after] == '\n':
			after++
			last = true
		case data[after] == '\r':
			if r.recordStart+after+1 == r.end {
				if _, err := r.readMore(); err != nil {
					return false, err
				}
				data = r.buf[r.recordStart:r.end]
			}
			if after+1 < len(data) && data[after+1] != '\n' {
				return false, r.strayQuoteError(lines, quote)
			}
			after = min(after+2, len(data))
			last = true
		default:
			return false, r.strayQuoteError(lines, quote)
		}
		r.pos = r.recordStart + after
		r.addField(start, write)
		r.next += lines
		if last {
			r.next++
		}
		return last, nil
	}
}

// strayQuoteError returns the error for a quote inside a quoted field that is neither
// doubled nor at the end of the field.
func (r *Reader) strayQuoteError(lines int64, quote int) error {
	return &ParseError{Line: r.next + lines, Offset: r.base + int64(r.recordStart+quote), Err: ErrQuote}
}

// unclosedError converts an error in a quoted field. If the field is not closed or too long,
// unclosedError returns ErrUnclosed with the position of the opening quote. It returns other
// errors unchanged.
func (r *Reader) unclosedError(opened int, err error) error {
	if err == ErrUnclosed || isTooLong(err) { //nolint:errorlint // readQuotedField passes ErrUnclosed itself, never wrapped
		return &ParseError{Line: r.next, Offset: r.base + int64(r.recordStart+opened), Err: ErrUnclosed}
	}
	return err
}

// addField counts a field of the current record and stores its position. It does not store
// more fields than the header has.
func (r *Reader) addField(start, end int) {
	r.count++
	if r.width == 0 || r.count <= r.width {
		r.fields = append(r.fields, fieldRange{start, end})
	}
}

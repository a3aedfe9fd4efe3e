package columnar

import (
	"encoding/binary"
	"fmt"
	"math"
)

// locateValues finds the position of each row's value in c.page. values is the number of
// values, nulls included.
func (c *blockColumn) locateValues(rows, values int) error {
	c.data = c.page
	c.at = c.at[:0]
	if cap(c.at) < rows {
		c.at = make([]int32, 0, rows)
	}
	var rep, def levelReader
	if c.Kind == TableFloats {
		rep.splitLevels(&c.data)
	} else if values != rows {
		return fmt.Errorf("%d values in %d rows: %w", values, rows, ErrDamaged)
	}
	if c.Required {
		def.n = values
	} else {
		def.splitLevels(&c.data)
	}
	if rep.bad || def.bad {
		return fmt.Errorf("decode levels: %w", ErrDamaged)
	}
	if c.Kind == TableFloats {
		return c.locateLists(rep, def, rows, values)
	}
	most := c.maxDefinitionLevel()
	next := 0
	for len(c.at) < rows {
		v, n := def.peek(rows - len(c.at))
		def.skip(n)
		switch {
		case n == 0 || v > most:
			return fmt.Errorf("decode levels: %w", ErrDamaged)
		case v < most:
			for range n {
				c.at = append(c.at, -1)
			}
		default:
			if next = c.locatePresentValues(next, n); next < 0 {
				return fmt.Errorf("decode values: %w", ErrDamaged)
			}
		}
	}
	if c.Kind == TableBool {
		next = (next + 7) / 8
	}
	if next != len(c.data) || !def.isExhausted() {
		return fmt.Errorf("decode values: %w", ErrDamaged)
	}
	return nil
}

// locatePresentValues records the positions of n values, from position next of c.data on.
// It returns the position after the last value, or -1 if the data ends too early.
func (c *blockColumn) locatePresentValues(next, n int) int {
	switch {
	case c.Kind == TableText, c.Kind == TableLeaf && c.width == 0:
		for range n {
			if len(c.data)-next < 4 {
				return -1
			}
			size := int(binary.LittleEndian.Uint32(c.data[next:]))
			if size > len(c.data)-next-4 {
				return -1
			}
			c.at = append(c.at, int32(next))
			next += 4 + size
		}
		return next
	case c.Kind == TableBool:
		if next+n > 8*len(c.data) {
			return -1
		}
		for range n {
			c.at = append(c.at, int32(next))
			next++
		}
		return next
	default:
		if n > (len(c.data)-next)/c.width {
			return -1
		}
		for range n {
			c.at = append(c.at, int32(next))
			next += c.width
		}
		return next
	}
}

// locateLists finds the position of each row's list in c.data. values is the number of
// floats, nulls and empty lists.
func (c *blockColumn) locateLists(rep, def levelReader, rows, values int) error {
	c.counts = c.counts[:0]
	next := 0
	for values > 0 {
		again, n := rep.peek(values)
		level, n := def.peek(n)
		if n == 0 || again > 1 {
			return fmt.Errorf("decode levels: %w", ErrDamaged)
		}
		rep.skip(n)
		def.skip(n)
		values -= n
		if again == 1 { // these floats continue the previous list
			last := len(c.at) - 1
			if level != listPresent || last < 0 || c.counts[last] == 0 || c.at[last] < 0 {
				return fmt.Errorf("decode levels: %w", ErrDamaged)
			}
			c.counts[last] += int32(n)
			next += 4 * n
			continue
		}
		for range n {
			switch level {
			case listNull:
				c.at, c.counts = append(c.at, -1), append(c.counts, 0)
			case listEmpty:
				c.at, c.counts = append(c.at, int32(next)), append(c.counts, 0)
			case listPresent:
				c.at, c.counts = append(c.at, int32(next)), append(c.counts, 1)
				next += 4
			default:
				return fmt.Errorf("decode levels: %w", ErrDamaged)
			}
		}
	}
	if len(c.at) != rows || next != len(c.data) || !rep.isExhausted() || !def.isExhausted() {
		return fmt.Errorf("decode values: %w", ErrDamaged)
	}
	return nil
}

// levelReader reads repetition or definition levels that levelEncoder wrote.
type levelReader struct {
	b    []byte // runs that are not read yet
	last byte   // level of the current run
	n    int    // number of levels of the current run that are not consumed yet
	bad  bool   // true if the levels do not fit into the page
}

// splitLevels moves the levels from the front of page into l.
func (l *levelReader) splitLevels(page *[]byte) {
	levels, values, err := splitPrefixed(*page)
	if err != nil {
		l.bad = true
		return
	}
	l.b, *page = levels, values
}

// peek returns the next level and how often it repeats, at most limit times. The count
// is 0 at the end of the levels and for damaged levels.
func (l *levelReader) peek(limit int) (byte, int) {
	if l.n == 0 && len(l.b) > 0 {
		run, size := binary.Uvarint(l.b)
		if size <= 0 || len(l.b) == size || run&1 == 1 || run>>1 > math.MaxInt32 {
			return 0, 0
		}
		l.n, l.last, l.b = int(run>>1), l.b[size], l.b[size+1:]
	}
	return l.last, min(l.n, limit)
}

// skip consumes n levels. n must not exceed the count that peek returned.
func (l *levelReader) skip(n int) { l.n -= n }

// isExhausted reports whether all levels are consumed.
func (l *levelReader) isExhausted() bool { return l.n == 0 && len(l.b) == 0 }

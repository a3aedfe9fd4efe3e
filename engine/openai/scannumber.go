package openai

import (
	"math"
	"strconv"
)

// readNumber consumes and returns a number. A number beyond the range of float64 is an
// error.
func (s *scanner) readNumber() float64 {
	if s.peek(); s.err != nil {
		return 0
	}
	rest := s.win[s.pos:]
	d := readDecimal(rest)
	if d.length > 0 {
		s.pos += d.length
		if v, ok := d.toFloat(); ok {
			return v
		}
		rest = rest[:d.length]
	} else if rest = s.walkNumber(s.num[:0]); s.err != nil {
		return 0
	}
	v, err := strconv.ParseFloat(string(rest), 64)
	if err != nil {
		s.fail("number out of range")
		return 0
	}
	return v
}

// readApproxNumber consumes a number and returns it quickly: the last digit of the result may be
// off by one, because readApproxNumber does not search the nearest float64. Callers round or add up
// the result.
func (s *scanner) readApproxNumber() float64 {
	if s.peek(); s.err != nil {
		return 0
	}
	if d := readDecimal(s.win[s.pos:]); d.length > 0 && d.digits <= 19 {
		s.pos += d.length
		v := float64(d.mantissa) / tens[d.places]
		if d.negative {
			return -v
		}
		return v
	}
	return s.readNumber()
}

// readCount consumes and returns a number. A number that is negative or not whole is an
// error.
func (s *scanner) readCount() int64 {
	v := s.readNumber()
	if v < 0 || v != math.Trunc(v) || v > 1<<53 {
		s.fail("expected a whole number of at least 0")
		return 0
	}
	return int64(v)
}

// skipNumber consumes a number of any length, or -Infinity, and stores nothing.
func (s *scanner) skipNumber() {
	if d := readDecimal(s.win[s.pos:]); d.length > 0 {
		s.pos += d.length
		return
	}
	s.walkNumber(nil)
}

// walkNumber consumes a number by the grammar of JSON, also across windows. It appends
// at most maxNumber bytes of the number to num. If num is nil, it stores nothing and
// also accepts -Infinity.
func (s *scanner) walkNumber(num []byte) []byte {
	keep := num != nil
	take := func() {
		if keep && len(num) == maxNumber {
			s.fail("number too long")
			return
		}
		if keep {
			num = append(num, s.win[s.pos])
		}
		s.pos++
	}
	digits := func() {
		if s.peekByte()-'0' >= 10 {
			s.fail("malformed number")
		}
		for s.peekByte()-'0' < 10 {
			take()
		}
	}
	if s.peekByte() == '-' {
		take()
		if !keep && s.peekByte() == 'I' {
			s.skipNonFinite()
			return nil
		}
	}
	if s.peekByte() == '0' {
		take()
	} else {
		digits()
	}
	if s.peekByte() == '.' {
		take()
		digits()
	}
	if s.peekByte()|0x20 == 'e' {
		take()
		if c := s.peekByte(); c == '+' || c == '-' {
			take()
		}
		digits()
	}
	return num
}

// peekByte returns the next byte, which may be white space, without consuming it. It
// returns 0 after an error.
func (s *scanner) peekByte() byte {
	if s.pos == len(s.win) && !s.fill() {
		return 0
	}
	return s.win[s.pos]
}

// skipNonFinite consumes NaN or Infinity.
func (s *scanner) skipNonFinite() {
	if s.peekByte() == 'N' {
		s.expectLiteral("NaN")
	} else {
		s.expectLiteral("Infinity")
	}
}

// readApproxOrNaN is like readApproxNumber, but also accepts NaN, Infinity and -Infinity. It returns
// known = false for NaN.
func (s *scanner) readApproxOrNaN() (v float64, known bool) {
	switch c := s.peek(); {
	case c == 'N' || c == 'I':
		s.skipNonFinite()
		return math.Inf(1), c == 'I'
	case c == '-' && s.pos+1 < len(s.win) && s.win[s.pos+1] == 'I':
		s.pos++
		s.skipNonFinite()
		return math.Inf(-1), true
	case c == '-' && s.pos+1 == len(s.win): // the window ends after the minus
		s.pos++
		switch next := s.peekByte(); {
		case next == 'I':
			s.skipNonFinite()
			return math.Inf(-1), true
		case next-'0' >= 10:
			s.fail("malformed number")
			return 0, true
		}
		return -s.readApproxNumber(), true
	}
	return s.readApproxNumber(), true
}

// A decimal is a parsed number without an exponent.
type decimal struct {
	mantissa uint64 // the number without its decimal point; invalid for more than 19 digits
	digits   int    // number of digits before and after the decimal point
	places   int    // number of digits after the decimal point
	length   int    // number of bytes in the text; 0 if the text is no decimal
	negative bool
}

// readDecimal reads the decimal at the start of b in one pass. The result has length 0
// if the decimal is malformed or does not end within b.
func readDecimal(b []byte) (d decimal) {
	i := 0
	if len(b) > 0 && b[0] == '-' {
		d.negative = true
		i = 1
	}
	first := i
	for ; i < len(b) && b[i]-'0' < 10; i++ {
		d.mantissa = d.mantissa*10 + uint64(b[i]-'0')
	}
	d.digits = i - first
	if d.digits == 0 || d.digits > 1 && b[first] == '0' {
		return decimal{}
	}
	if i < len(b) && b[i] == '.' {
		i++
		point := i
		for ; i < len(b) && b[i]-'0' < 10; i++ {
			d.mantissa = d.mantissa*10 + uint64(b[i]-'0')
		}
		d.places = i - point
		if d.places == 0 {
			return decimal{}
		}
		d.digits += d.places
	}
	if i >= len(b) || i > maxNumber || b[i] != ',' && b[i] != '}' && b[i] != ']' {
		return decimal{}
	}
	d.length = i
	return d
}

// tens are the powers of ten that float64 represents exactly.
var tens = [...]float64{
	1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11,
	1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22,
}

// toFloat returns the number if mantissa is below 2^53, otherwise false. Below 2^53, one
// division of two exact values gives the correctly rounded result.
func (d decimal) toFloat() (float64, bool) {
	if d.digits > 19 || d.mantissa >= 1<<53 {
		return 0, false
	}
	v := float64(d.mantissa) / tens[d.places]
	if d.negative {
		v = -v
	}
	return v, true
}

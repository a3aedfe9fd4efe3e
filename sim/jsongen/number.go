package jsongen

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"strconv"
	"strings"
)

// maxExponent bounds the decimal exponents accepted in schemas: 1e400 is
// beyond every float64, and larger ones would only burn time.
const maxExponent = 400

// usualSpan is the width of the range numbers are drawn from where the schema
// leaves a side open.
const usualSpan = 1000

// decimal is mantissa · 10^-scale, exactly; scale is not negative.
type decimal struct {
	mantissa *big.Int
	scale    int
}

func pow10(n int) *big.Int { return new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(n)), nil) }

// parseDecimal reads a JSON number.
func parseDecimal(number json.Number) (decimal, error) {
	text, exponent := string(number), 0
	if at := strings.IndexAny(text, "eE"); at >= 0 {
		parsed, err := strconv.Atoi(text[at+1:])
		if err != nil {
			return decimal{}, fmt.Errorf("number %q: %w", number, err)
		}
		text, exponent = text[:at], parsed
	}
	if at := strings.IndexByte(text, '.'); at >= 0 {
		exponent -= len(text) - at - 1
		text = text[:at] + text[at+1:]
	}
	if exponent > maxExponent || exponent < -maxExponent || len(text) > maxExponent {
		return decimal{}, fmt.Errorf("number %q is beyond 1e±%d", number, maxExponent)
	}
	mantissa, ok := new(big.Int).SetString(text, 10)
	if !ok {
		return decimal{}, fmt.Errorf("number %q is malformed", number)
	}
	if exponent > 0 {
		return decimal{mantissa.Mul(mantissa, pow10(exponent)), 0}, nil
	}
	return decimal{mantissa, -exponent}, nil
}

// at returns the mantissa of d at a larger scale.
func (d decimal) at(scale int) *big.Int {
	return new(big.Int).Mul(d.mantissa, pow10(scale-d.scale))
}

func (d decimal) cmp(other decimal) int {
	scale := max(d.scale, other.scale)
	return d.at(scale).Cmp(other.at(scale))
}

func equalNumbers(a, b json.Number) bool {
	x, err1 := parseDecimal(a)
	y, err2 := parseDecimal(b)
	return err1 == nil && err2 == nil && x.cmp(y) == 0
}

func (d decimal) whole() bool {
	return new(big.Int).Rem(d.mantissa, pow10(d.scale)).Sign() == 0
}

// bound is one end of a range.
type bound struct {
	value decimal
	open  bool // the value itself is excluded
}

// numberRule is what a node demands of numbers.
type numberRule struct {
	low, high *bound
	multiple  *decimal // greatest common step; nil for none
}

func (r *numberRule) atLeast(b bound) {
	if r.low == nil {
		r.low = &b
		return
	}
	if order := b.value.cmp(r.low.value); order > 0 || order == 0 && b.open {
		r.low = &b
	}
}

func (r *numberRule) atMost(b bound) {
	if r.high == nil {
		r.high = &b
		return
	}
	if order := b.value.cmp(r.high.value); order < 0 || order == 0 && b.open {
		r.high = &b
	}
}

func (r *numberRule) multipleOf(step decimal) {
	if r.multiple == nil {
		r.multiple = &step
		return
	}
	r.multiple = commonMultiple(*r.multiple, step)
}

func commonMultiple(a, b decimal) *decimal {
	scale := max(a.scale, b.scale)
	x, y := a.at(scale), b.at(scale)
	divisor := new(big.Int).GCD(nil, nil, x, y)
	return &decimal{x.Mul(x, y.Div(y, divisor)), scale}
}

// grid is the numbers a node draws from: (first + i) · step for 0 ≤ i < count.
type grid struct {
	first *big.Int
	step  decimal
	count uint64
}

var errEmptyRange = errors.New("no number lies in the range that minimum, maximum and multipleOf leave")

// grid turns the rule into the numbers to draw from. Whole leaves integers
// only.
func (r *numberRule) grid(whole bool) (grid, error) {
	if whole {
		step := decimal{big.NewInt(1), 0}
		if r.multiple != nil {
			step = *commonMultiple(*r.multiple, step)
		}
		return r.cut(step)
	}
	if r.multiple != nil {
		return r.cut(*r.multiple)
	}
	// Two decimals look natural; a narrow range needs more.
	for scale := 2; scale <= maxExponent+2; scale += 2 {
		if g, err := r.cut(decimal{big.NewInt(1), scale}); err == nil {
			return g, nil
		}
	}
	return grid{}, errEmptyRange
}

// cut finds the multiples of step within the bounds, at most about usualSpan
// wide.
func (r *numberRule) cut(step decimal) (grid, error) {
	span := new(big.Int).Div(decimal{big.NewInt(usualSpan), 0}.at(step.scale), step.mantissa)
	if span.Sign() == 0 {
		span.SetInt64(1)
	}
	var first, last *big.Int
	if r.low != nil {
		first = r.low.steps(step, 1)
	}
	if r.high != nil {
		last = r.high.steps(step, -1)
	}
	switch {
	case first == nil && last == nil:
		first, last = new(big.Int), span
	case first == nil:
		first = new(big.Int).Sub(last, span)
		if last.Sign() >= 0 && first.Sign() < 0 {
			first.SetInt64(0)
		}
	case last == nil:
		last = new(big.Int).Add(first, span)
	}
	if first.Cmp(last) > 0 {
		return grid{}, errEmptyRange
	}
	if width := new(big.Int).Sub(last, first); width.Cmp(new(big.Int).Mul(span, big.NewInt(1000))) > 0 {
		if first.Sign() <= 0 && last.Sign() >= 0 {
			first = new(big.Int)
		}
		if end := new(big.Int).Add(first, span); end.Cmp(last) < 0 {
			last = end
		}
	}
	count := new(big.Int).Sub(last, first)
	count.Add(count, big.NewInt(1))
	if !count.IsUint64() {
		count.SetUint64(1 << 62)
	}
	return grid{first, step, count.Uint64()}, nil
}

// steps returns the first multiple of step inside the bound: the next one
// above for direction 1, below for -1.
func (b *bound) steps(step decimal, direction int) *big.Int {
	scale := max(b.value.scale, step.scale)
	quotient, rest := new(big.Int).DivMod(b.value.at(scale), step.at(scale), new(big.Int)) // rounds down
	if rest.Sign() != 0 {
		if direction > 0 {
			quotient.Add(quotient, big.NewInt(1))
		}
		return quotient
	}
	if b.open {
		quotient.Add(quotient, big.NewInt(int64(direction)))
	}
	return quotient
}

// admits reports whether a number obeys the rule.
func (r *numberRule) admits(number json.Number) bool {
	value, err := parseDecimal(number)
	if err != nil {
		return false
	}
	if r.low != nil {
		if order := value.cmp(r.low.value); order < 0 || order == 0 && r.low.open {
			return false
		}
	}
	if r.high != nil {
		if order := value.cmp(r.high.value); order > 0 || order == 0 && r.high.open {
			return false
		}
	}
	if r.multiple == nil {
		return true
	}
	scale := max(value.scale, r.multiple.scale)
	return new(big.Int).Rem(value.at(scale), r.multiple.at(scale)).Sign() == 0
}

// append writes the i-th number.
func (g *grid) append(dst []byte, i uint64) []byte {
	value := new(big.Int).SetUint64(i)
	value.Add(value, g.first)
	value.Mul(value, g.step.mantissa)
	if g.step.scale == 0 {
		return value.Append(dst, 10)
	}
	if value.Sign() < 0 {
		dst = append(dst, '-')
		value.Neg(value)
	}
	digits := value.String()
	if missing := g.step.scale + 1 - len(digits); missing > 0 {
		digits = strings.Repeat("0", missing) + digits
	}
	point := len(digits) - g.step.scale
	dst = append(dst, digits[:point]...)
	if fraction := strings.TrimRight(digits[point:], "0"); fraction != "" {
		dst = append(dst, '.')
		dst = append(dst, fraction...)
	}
	return dst
}

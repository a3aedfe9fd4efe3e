package jsongen

import (
	"errors"
	"fmt"
	"math/big"
	"regexp/syntax"
	"unicode"
	"unicode/utf8"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

const (
	// usualSpan is the width of the range numbers are drawn from where the
	// schema leaves a side open.
	usualSpan = 1000

	// Lengths of strings about which the schema says nothing, in characters.
	usualTextMin = 12
	usualTextMax = 48

	// maxTextLength bounds strings: a longer minLength is refused.
	maxTextLength = 1 << 20

	// maxRepeats is how often a part of a pattern that may repeat without end
	// repeats at most, beyond its minimum, where no length asks for more.
	maxRepeats = 4

	// patternTries is how many texts are made for patterns and lengths.
	patternTries = 256
)

// number writes a multiple of multipleOf, else one with two decimals, or with
// more where the range is narrow.
func (d *drawing) number(dst []byte, r *rules) ([]byte, error) {
	var step *big.Rat
	refine := func(by *big.Rat) {
		if step == nil {
			step = by
		} else if by != nil {
			step = commonMultiple(step, by)
		}
	}
	for _, s := range r.schemas {
		if s.Types != nil && *s.Types&(kindInteger|kindNumber) == kindInteger {
			refine(one)
		}
		refine(s.MultipleOf)
	}
	if step != nil {
		return d.multiple(dst, r, step)
	}
	for scale := int64(2); ; scale *= 2 {
		digits := new(big.Int).Exp(big.NewInt(10), big.NewInt(scale), nil)
		out, err := d.multiple(dst, r, new(big.Rat).SetFrac(big.NewInt(1), digits))
		if err == nil || scale > maxExponent {
			return out, err
		}
	}
}

var one = big.NewRat(1, 1)

func commonMultiple(a, b *big.Rat) *big.Rat {
	x, y := new(big.Int).Mul(a.Num(), b.Denom()), new(big.Int).Mul(b.Num(), a.Denom())
	divisor := new(big.Int).GCD(nil, nil, x, y)
	return new(big.Rat).SetFrac(x.Mul(x, y.Div(y, divisor)), new(big.Int).Mul(a.Denom(), b.Denom()))
}

// multiple writes a multiple of step within the bounds.
func (d *drawing) multiple(dst []byte, r *rules, step *big.Rat) ([]byte, error) {
	var first, last *big.Int // in steps
	raise := func(bound *big.Rat, open bool) {
		if bound == nil {
			return
		}
		at, whole := steps(bound, step)
		if !whole || open {
			at.Add(at, big.NewInt(1))
		}
		if first == nil || at.Cmp(first) > 0 {
			first = at
		}
	}
	lower := func(bound *big.Rat, open bool) {
		if bound == nil {
			return
		}
		at, whole := steps(bound, step)
		if whole && open {
			at.Sub(at, big.NewInt(1))
		}
		if last == nil || at.Cmp(last) < 0 {
			last = at
		}
	}
	for _, s := range r.schemas {
		raise(s.Minimum, false)
		raise(s.ExclusiveMinimum, true)
		lower(s.Maximum, false)
		lower(s.ExclusiveMaximum, true)
	}
	span, _ := steps(big.NewRat(usualSpan, 1), step)
	if span.Sign() == 0 {
		span = big.NewInt(1)
	}
	switch {
	case first == nil && last == nil:
		first, last = new(big.Int), span
	case first == nil:
		first = new(big.Int).Sub(last, span)
	case last == nil:
		last = new(big.Int).Add(first, span)
	}
	width := new(big.Int).Sub(last, first)
	if width.Sign() < 0 {
		return dst, errors.New("no number lies in the range that minimum, maximum and multipleOf leave")
	}
	if width.Cmp(new(big.Int).Mul(span, big.NewInt(usualSpan))) > 0 { // small numbers look natural
		if first.Sign() < 0 && last.Sign() >= 0 {
			first = new(big.Int)
		}
		width = span
		if rest := new(big.Int).Sub(last, first); rest.Cmp(width) < 0 {
			width = rest
		}
	}
	at := new(big.Int).SetUint64(d.random.Uint64())
	at.Mod(at, width.Add(width, one.Num())).Add(at, first)
	value := new(big.Rat).SetInt(at)
	value.Mul(value, step)
	digits, _ := value.FloatPrec()
	return append(dst, value.FloatString(digits)...), nil
}

// steps returns how many times step goes into value, rounded down, and whether
// that is all.
func steps(value, step *big.Rat) (*big.Int, bool) {
	quotient := new(big.Rat).Quo(value, step)
	return new(big.Int).Div(quotient.Num(), quotient.Denom()), quotient.IsInt()
}

// text makes a string.
func (d *drawing) text(r *rules) (string, error) {
	least, most := r.narrow(func(s *jsonschema.Schema) (*int, *int) { return s.MinLength, s.MaxLength })
	if most >= 0 && least > most {
		return "", fmt.Errorf("minLength %d exceeds maxLength %d", least, most)
	}
	if least > maxTextLength {
		return "", fmt.Errorf("minLength %d exceeds the simulator's bound of %d", least, maxTextLength)
	}
	var patterns []jsonschema.Regexp
	format := ""
	for _, s := range r.schemas {
		if s.Pattern != nil {
			patterns = append(patterns, s.Pattern)
		}
		if s.Format != nil {
			format = s.Format.Name
		}
	}
	admits := func(text string) bool {
		length := utf8.RuneCountInString(text)
		for _, p := range patterns {
			if !p.MatchString(text) {
				return false
			}
		}
		return length >= least && (most < 0 || length <= most)
	}
	if len(patterns) == 0 {
		if text := d.formatted(format); text != "" && admits(text) {
			return text, nil
		}
		return d.words(least, most), nil
	}
	room := maxTextLength
	if most >= 0 {
		room = most
	}
	for i := 0; i < patternTries && d.misses <= maxMisses; i++ {
		tree, err := syntax.Parse(patterns[i%len(patterns)].String(), syntax.Perl)
		if err != nil {
			return "", fmt.Errorf("pattern: %w", err)
		}
		// The usual number of repeats, none beyond the minimum, and from least
		// downwards: one repeated part may have to fill what the rest leaves.
		size := maxRepeats
		switch {
		case i%4 == 1 && most >= 0:
			size = 0
		case i%4 >= 2 && least > 0:
			size = least - i/2%least
		}
		text := d.match(nil, tree, size, 4*room+64)
		if admits(string(text)) {
			return string(text), nil
		}
		d.misses++
		// A pattern without an end may be followed by anything.
		for n := utf8.RuneCount(text); n < least; n++ {
			text = append(text, d.letter())
		}
		if admits(string(text)) {
			return string(text), nil
		}
	}
	return "", errors.New("no string with the demanded pattern and length was found")
}

func (d *drawing) letter() byte { return 'a' + byte(d.below(26)) }

// match writes a match of tree. Once dst is longer than stop it repeats
// nothing more: the match is too long anyway.
func (d *drawing) match(dst []byte, tree *syntax.Regexp, size, stop int) []byte {
	least, most := tree.Min, tree.Max
	switch tree.Op {
	case syntax.OpLiteral:
		for _, r := range tree.Rune {
			dst = utf8.AppendRune(dst, r)
		}
		return dst
	case syntax.OpCharClass:
		return utf8.AppendRune(dst, d.pick(tree.Rune))
	case syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		return append(dst, d.letter())
	case syntax.OpCapture, syntax.OpConcat:
		for _, sub := range tree.Sub {
			dst = d.match(dst, sub, size, stop)
		}
		return dst
	case syntax.OpAlternate:
		return d.match(dst, tree.Sub[d.below(len(tree.Sub))], size, stop)
	case syntax.OpStar:
		least, most = 0, -1
	case syntax.OpPlus:
		least, most = 1, -1
	case syntax.OpQuest:
		least, most = 0, 1
	case syntax.OpRepeat:
	default:
		return dst // anchors, boundaries and the empty match add nothing
	}
	if most < 0 || most > least+size {
		most = least + size
	}
	times := most
	if d.below(2) == 0 {
		times = least + d.below(most-least+1)
	}
	for i := 0; i < times && len(dst) <= stop; i++ {
		dst = d.match(dst, tree.Sub[0], size, stop)
	}
	return dst
}

// pick draws a character of a class (pairs of first and last), a printable
// ASCII one where there is any, else one that is no control character.
func (d *drawing) pick(class []rune) rune {
	for _, low := range []rune{' ', 0xa0, 0} {
		high := map[rune]rune{' ': '~', 0xa0: 0xd7ff, 0: unicode.MaxRune}[low]
		total := 0
		for i := 0; i < len(class); i += 2 {
			total += max(0, int(min(class[i+1], high)-max(class[i], low))+1)
		}
		if total == 0 {
			continue
		}
		at := d.below(total)
		for i := 0; ; i += 2 {
			width := max(0, int(min(class[i+1], high)-max(class[i], low))+1)
			if at < width {
				return max(class[i], low) + rune(at)
			}
			at -= width
		}
	}
	return 0 // an empty class matches nothing
}

// nouns are the words free strings are made of.
var nouns = [...]string{
	"amber", "anchor", "basin", "beacon", "bridge", "canyon", "cedar", "copper", "delta", "ember", "falcon",
	"garden", "glacier", "harbor", "island", "lantern", "maple", "meadow", "mosaic", "orchard", "pebble", "quarry",
	"river", "saddle", "silver", "summit", "timber", "tunnel", "valley", "willow", "window", "winter",
}

func (d *drawing) noun() string { return nouns[d.below(len(nouns))] }

// words makes free text of an allowed length, which says that it is simulated
// where there is room.
func (d *drawing) words(least, most int) string {
	low, high := max(least, usualTextMin), max(least, usualTextMax)
	if most >= 0 {
		low, high = min(low, most), min(high, most)
	}
	length := low + d.below(high-low+1)
	text := []byte("simulated ")
	if length < len("simulated amber") {
		text = nil
	}
	for len(text) < length {
		text = append(append(text, d.noun()...), ' ')
	}
	if text = text[:length]; length > 0 && text[length-1] == ' ' {
		text[length-1] = 's'
	}
	return string(text)
}

// formatted makes a string of a named format, or nothing where it does not
// know it.
func (d *drawing) formatted(format string) string {
	n := func(low, high int) int { return low + d.below(high-low+1) }
	switch format {
	case "date-time":
		return d.formatted("date") + "T" + d.formatted("time")
	case "date":
		return fmt.Sprintf("%04d-%02d-%02d", n(1990, 2026), n(1, 12), n(1, 28))
	case "time":
		return fmt.Sprintf("%02d:%02d:%02dZ", n(0, 23), n(0, 59), n(0, 59))
	case "duration":
		return fmt.Sprintf("P%dDT%dH", n(0, 30), n(0, 23))
	case "email", "idn-email":
		return d.noun() + "@" + d.noun() + ".example"
	case "hostname", "idn-hostname":
		return d.noun() + ".example"
	case "ipv4":
		return fmt.Sprintf("192.0.2.%d", n(1, 254))
	case "ipv6":
		return fmt.Sprintf("2001:db8::%x", n(1, 65535))
	case "uri", "iri":
		return "https://" + d.noun() + ".example/" + d.noun()
	case "uri-reference", "iri-reference", "json-pointer":
		return "/" + d.noun()
	case "uri-template":
		return "/" + d.noun() + "/{id}"
	case "uuid":
		high, low := d.random.Uint64(), d.random.Uint64()
		return fmt.Sprintf("%08x-%04x-4%03x-%04x-%012x", high>>32, high>>16&0xffff, high&0xfff, low>>48&0x3fff|0x8000, low&0xffffffffffff)
	case "relative-json-pointer":
		return "0/" + d.noun()
	case "regex":
		return "^" + d.noun() + "$"
	}
	return ""
}

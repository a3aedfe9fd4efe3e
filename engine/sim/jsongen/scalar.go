package jsongen

import (
	"errors"
	"fmt"
	"math/big"
	"regexp/syntax"
	"unicode/utf8"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

const (
	// usualSpan is the width of the range of numbers if the schema sets no minimum or
	// no maximum.
	usualSpan = 1000

	// Range of the lengths of strings, in characters, if the schema sets no length.
	usualTextMin = 12
	usualTextMax = 48

	// maxTextLength is the largest length of strings: a schema with a larger minLength
	// is refused.
	maxTextLength = 1 << 20

	// maxRepeats limits how often a part of a pattern repeats beyond its minimum, unless
	// the required length needs more.
	maxRepeats = 4

	// patternTries is how many texts are tried to match a pattern and a length.
	patternTries = 64
)

// appendNumber appends a multiple of multipleOf. Without multipleOf it appends an integer if
// the schema demands one, and otherwise a number with two decimals, or with more
// decimals in a narrow range.
func (d *valueDrawer) appendNumber(dst []byte, r schemaConstraints) ([]byte, error) {
	var step *big.Rat
	for _, s := range r {
		switch {
		case s.MultipleOf != nil:
			step = s.MultipleOf
		case step == nil && s.Types != nil && *s.Types&(kindInteger|kindNumber) == kindInteger:
			step = big.NewRat(1, 1)
		}
	}
	if step != nil {
		return d.appendMultiple(dst, r, step)
	}
	for digits := int64(2); ; digits *= 2 {
		fine := new(big.Int).Exp(big.NewInt(10), big.NewInt(digits), nil)
		out, err := d.appendMultiple(dst, r, new(big.Rat).SetFrac(big.NewInt(1), fine))
		if err == nil || digits > maxExponent {
			return out, err
		}
	}
}

// appendMultiple appends a random multiple of step within the bounds of the rules.
func (d *valueDrawer) appendMultiple(dst []byte, r schemaConstraints, step *big.Rat) ([]byte, error) {
	var first, last *big.Int // smallest and largest multiple of step
	for _, s := range r {
		first = tighterBound(first, s.Minimum, step, 1, false)
		first = tighterBound(first, s.ExclusiveMinimum, step, 1, true)
		last = tighterBound(last, s.Maximum, step, -1, false)
		last = tighterBound(last, s.ExclusiveMaximum, step, -1, true)
	}
	width := tighterBound(nil, big.NewRat(usualSpan, 1), step, 1, false)
	switch {
	case first == nil && last == nil:
		first, last = new(big.Int), width
	case first == nil:
		first = new(big.Int).Sub(last, width)
	case last == nil:
		last = new(big.Int).Add(first, width)
	}
	span := new(big.Int).Sub(last, first)
	if span.Sign() < 0 {
		return dst, errors.New("no number lies in the range that minimum, maximum and multipleOf leave")
	}
	at := new(big.Int).SetUint64(d.random.Uint64())
	at.Mod(at, span.Add(span, big.NewInt(1))).Add(at, first)
	value := new(big.Rat).SetInt(at)
	value.Mul(value, step)
	digits, _ := value.FloatPrec()
	return append(dst, value.FloatString(digits)...), nil
}

// tighterBound returns the tighter of two bounds, in steps: known, and bound divided by step.
// nil means that there is no bound. sign is 1 for lower bounds and -1 for upper bounds,
// which are lower bounds of the negated number. An open bound is not an allowed value
// itself.
func tighterBound(known *big.Int, bound, step *big.Rat, sign int64, open bool) *big.Int {
	if bound == nil {
		return known
	}
	at := new(big.Rat).Quo(bound, step)
	at.Mul(at, big.NewRat(sign, 1))
	up := new(big.Int).Div(at.Num(), at.Denom())
	if open || !at.IsInt() {
		up.Add(up, big.NewInt(1))
	}
	up.Mul(up, big.NewInt(sign))
	if known != nil && known.Cmp(up)*int(sign) > 0 {
		return known
	}
	return up
}

// randomText returns a random string that satisfies the rules.
func (d *valueDrawer) randomText(r schemaConstraints) (string, error) {
	least, most := r.narrowestBounds(func(s *jsonschema.Schema) (*int, *int) { return s.MinLength, s.MaxLength })
	switch {
	case most >= 0 && least > most:
		return "", fmt.Errorf("minLength %d exceeds maxLength %d", least, most)
	case least > maxTextLength:
		return "", fmt.Errorf("minLength %d exceeds the simulator's bound of %d", least, maxTextLength)
	case most < 0:
		most = maxTextLength
	}
	var patterns []jsonschema.Regexp
	format := ""
	for _, s := range r {
		if s.Pattern != nil {
			patterns = append(patterns, s.Pattern)
		}
		if s.Format != nil {
			format = s.Format.Name
		}
	}
	if len(patterns) > 0 {
		return d.textOfPattern(patterns, least, most)
	}
	if text := d.textOfFormat(format); text != "" && len(text) >= least && len(text) <= most {
		return text, nil
	}
	return d.randomWords(least, most), nil
}

// textOfPattern returns a string that matches all patterns and has an allowed length.
func (d *valueDrawer) textOfPattern(patterns []jsonschema.Regexp, least, most int) (string, error) {
	admits := func(text []byte) bool {
		for _, p := range patterns {
			if !p.MatchString(string(text)) {
				return false
			}
		}
		length := utf8.RuneCount(text)
		return length >= least && length <= most
	}
	for i := range patternTries {
		tree, err := syntax.Parse(patterns[i%len(patterns)].String(), syntax.Perl)
		if err != nil {
			return "", fmt.Errorf("pattern: %w", err)
		}
		// In some tries parts repeat a few times, in other tries until one part fills
		// the length.
		size := []int{maxRepeats, 0, least, max(0, least-i)}[i%4]
		text := d.appendMatch(nil, tree, size, 4*most+64)
		for n := utf8.RuneCount(text); !admits(text) && n < least; n++ { // a pattern without $ allows more letters
			text = append(text, d.letter())
		}
		if admits(text) {
			return string(text), nil
		}
	}
	return "", errors.New("no string with the demanded pattern and length was found")
}

func (d *valueDrawer) letter() byte { return 'a' + byte(d.randomBelow(26)) }

// appendMatch appends a text that matches tree. Once dst is longer than maxLen, appendMatch
// repeats no further parts, because the text is too long anyway.
func (d *valueDrawer) appendMatch(dst []byte, tree *syntax.Regexp, extraRepeats, maxLen int) []byte {
	least, most := tree.Min, tree.Max
	switch tree.Op {
	case syntax.OpLiteral:
		return append(dst, string(tree.Rune)...)
	case syntax.OpCharClass:
		return utf8.AppendRune(dst, d.pick(tree.Rune))
	case syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		return append(dst, d.letter())
	case syntax.OpCapture, syntax.OpConcat:
		for _, sub := range tree.Sub {
			dst = d.appendMatch(dst, sub, extraRepeats, maxLen)
		}
		return dst
	case syntax.OpAlternate:
		return d.appendMatch(dst, tree.Sub[d.randomBelow(len(tree.Sub))], extraRepeats, maxLen)
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
	if most < 0 || most > least+extraRepeats {
		most = least + extraRepeats
	}
	times := most
	if d.randomBelow(2) == 0 {
		times = d.randomBetween(least, most)
	}
	for i := 0; i < times && len(dst) <= maxLen; i++ {
		dst = d.appendMatch(dst, tree.Sub[0], extraRepeats, maxLen)
	}
	return dst
}

// pick returns a random character of a class (pairs of first and last character): a
// printable ASCII character if the class has one, else any character.
func (d *valueDrawer) pick(class []rune) rune {
	var printable []rune
	for i := 0; i < len(class); i += 2 {
		if low, high := max(class[i], ' '), min(class[i+1], '~'); low <= high {
			printable = append(printable, low, high)
		}
	}
	if len(printable) > 0 {
		class = printable
	}
	if len(class) == 0 {
		return 0 // an empty class matches nothing
	}
	i := 2 * d.randomBelow(len(class)/2)
	return rune(d.randomBetween(int(class[i]), int(class[i+1])))
}

// nouns are the words that free strings consist of.
var nouns = [...]string{
	"amber", "anchor", "basin", "beacon", "bridge", "canyon", "cedar", "copper", "delta", "ember", "falcon",
	"garden", "glacier", "harbor", "island", "lantern", "maple", "meadow", "mosaic", "orchard", "pebble", "quarry",
	"river", "saddle", "silver", "summit", "timber", "tunnel", "valley", "willow", "window", "winter",
}

func (d *valueDrawer) noun() string { return nouns[d.randomBelow(len(nouns))] }

// randomWords returns free text of an allowed length. It begins with "simulated" if there is
// room.
func (d *valueDrawer) randomWords(least, most int) string {
	low, high := min(max(least, usualTextMin), most), min(max(least, usualTextMax), most)
	length := d.randomBetween(low, high)
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

// textOfFormat returns a random string of a usual format. It returns an empty string
// for other formats.
func (d *valueDrawer) textOfFormat(format string) string {
	n := d.randomBetween
	switch format {
	case "date-time":
		return d.textOfFormat("date") + "T" + d.textOfFormat("time")
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
	case "uri-reference", "iri-reference", "uri-template", "json-pointer":
		return "/" + d.noun()
	case "relative-json-pointer":
		return "0/" + d.noun()
	case "uuid":
		return fmt.Sprintf("%08x-0000-4000-8000-%012x", d.random.Uint64()>>32, d.random.Uint64()>>16)
	}
	return ""
}

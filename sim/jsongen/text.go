package jsongen

import (
	"errors"
	"fmt"
	"math/bits"
	"unicode/utf8"
)

// Lengths of strings about which the schema says nothing, in characters.
const (
	usualTextMin = 12
	usualTextMax = 48
)

// maxTextLength bounds the strings the simulator makes: a longer minLength is
// refused.
const maxTextLength = 1 << 20

// textRule is what a node demands of strings.
type textRule struct {
	min, max int // code points; max -1 for any
	patterns []*pattern
	format   string
	known    string // a string found to match the patterns
}

func (c *compiler) buildText(n *node, subs []*object) (err error) {
	if n.text.min, n.text.max, err = limits(subs, "minLength", "maxLength"); err != nil {
		return err
	}
	if !n.kinds.has(kindString) {
		return nil
	}
	for _, sub := range subs {
		if text, ok := sub.values["pattern"].(string); ok {
			p, err := newPattern(text)
			if err != nil {
				return err
			}
			n.text.patterns = append(n.text.patterns, p)
		}
		if format, ok := sub.values["format"].(string); ok {
			n.text.format = format
		}
	}
	return nil
}

var errNoText = errors.New("no string with the demanded pattern and length was found")

// feasible reports why no string can be made.
func (r *textRule) feasible() error {
	if r.max >= 0 && r.min > r.max {
		return fmt.Errorf("minLength %d exceeds maxLength %d", r.min, r.max)
	}
	if r.min > maxTextLength {
		return fmt.Errorf("minLength %d exceeds the simulator's bound of %d", r.min, maxTextLength)
	}
	if len(r.patterns) == 0 {
		return nil
	}
	random := splitmix(3)
	for range 4 {
		if text, ok := r.draw(&random); ok {
			r.known = text
			return nil
		}
	}
	return errNoText
}

// admits reports whether a given string obeys the rule.
func (r *textRule) admits(text string) bool {
	length := utf8.RuneCountInString(text)
	if length < r.min || r.max >= 0 && length > r.max {
		return false
	}
	for _, p := range r.patterns {
		if !p.re.MatchString(text) {
			return false
		}
	}
	return true
}

// draw makes a string, and reports false where luck found none: then it is the
// one that feasible found.
func (r *textRule) draw(random Source) (string, bool) {
	if len(r.patterns) > 0 {
		const attempts = 256
		for i := range attempts {
			text := string(r.patterns[i%len(r.patterns)].appendSized(nil, random, i, r.min, r.max))
			if r.admits(text) {
				return text, true
			}
		}
		return r.known, false
	}
	if r.format != "" {
		if text, known := formatted(r.format, random); known && r.admits(text) {
			return text, true
		}
	}
	return string(r.words(nil, random)), true
}

// nouns are the words free strings are made of.
var nouns = [...]string{
	"amber", "anchor", "basin", "beacon", "bridge", "canyon", "cedar", "copper", "delta", "ember", "falcon",
	"garden", "glacier", "harbor", "island", "lantern", "maple", "meadow", "mosaic", "orchard", "pebble", "quarry",
	"river", "saddle", "silver", "summit", "timber", "tunnel", "valley", "willow", "window", "winter",
}

// words writes free text of an allowed length that says it is simulated where
// there is room.
func (r *textRule) words(dst []byte, random Source) []byte {
	low, high := max(r.min, usualTextMin), max(r.min, usualTextMax)
	if r.max >= 0 {
		low, high = min(low, r.max), min(high, r.max)
	}
	length := low + below(random, high-low+1)
	base := len(dst)
	if length >= len("simulated amber") {
		dst = append(dst, "simulated"...)
	}
	for len(dst)-base < length {
		if len(dst) > base {
			dst = append(dst, ' ')
		}
		dst = append(dst, nouns[below(random, len(nouns))]...)
	}
	dst = dst[:base+length]
	if length > 0 && dst[len(dst)-1] == ' ' {
		dst[len(dst)-1] = 's'
	}
	return dst
}

// below returns a number from 0 to n-1.
func below(random Source, n int) int {
	high, _ := bits.Mul64(random.Uint64(), uint64(n))
	return int(high)
}

// formatted makes a string of a named format, and reports whether it knows it.
func formatted(format string, random Source) (string, bool) {
	n := func(low, high int) int { return low + below(random, high-low+1) }
	word := func() string { return nouns[below(random, len(nouns))] }
	date := func() string { return fmt.Sprintf("%04d-%02d-%02d", n(1990, 2026), n(1, 12), n(1, 28)) }
	clock := func() string { return fmt.Sprintf("%02d:%02d:%02dZ", n(0, 23), n(0, 59), n(0, 59)) }
	switch format {
	case "date-time":
		return date() + "T" + clock(), true
	case "date":
		return date(), true
	case "time":
		return clock(), true
	case "duration":
		return fmt.Sprintf("P%dDT%dH", n(0, 30), n(0, 23)), true
	case "email", "idn-email":
		return word() + "@" + word() + ".example", true
	case "hostname", "idn-hostname":
		return word() + ".example", true
	case "ipv4":
		return fmt.Sprintf("192.0.2.%d", n(1, 254)), true
	case "ipv6":
		return fmt.Sprintf("2001:db8::%x", n(1, 65535)), true
	case "uri", "iri":
		return "https://" + word() + ".example/" + word(), true
	case "uri-reference", "iri-reference":
		return "/" + word(), true
	case "uri-template":
		return "/" + word() + "/{id}", true
	case "uuid":
		high, low := random.Uint64(), random.Uint64()
		return fmt.Sprintf("%08x-%04x-4%03x-%04x-%012x", high>>32, high>>16&0xffff, high&0xfff, low>>48&0x3fff|0x8000, low&0xffffffffffff), true
	case "json-pointer":
		return "/" + word(), true
	case "relative-json-pointer":
		return "0/" + word(), true
	case "regex":
		return "^" + word() + "$", true
	}
	return "", false
}

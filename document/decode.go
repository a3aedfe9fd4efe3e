package document

import (
	"encoding/json"
	"reflect"
	"strings"
	"unicode/utf8"
)

// Decode reads a document into what v points to, which is zero, as a json.Decoder
// does that uses json.Number: a 64-bit seed in a free-form map would not survive
// a float64.
//
// It is several times as fast, since it has worked out once where the members of
// a type go, reads over the text once and takes strings as parts of a single copy
// of it: what it returns keeps that copy. It gives up at what is rare in our
// documents (a name in other case, a member that comes twice, a value of another
// type, anything that is no JSON) and leaves the whole to encoding/json, whose
// error or result that is then.
func Decode[T string | []byte](raw T, v any) error {
	d := decoder{text: string(raw)}
	target := reflect.ValueOf(v)
	if target.Kind() == reflect.Pointer && !target.IsNil() {
		into := target.Elem()
		if planOf(into.Type())(&d, into) {
			return nil
		}
		into.SetZero()
	}
	slow := json.NewDecoder(strings.NewReader(d.text))
	slow.UseNumber()
	return slow.Decode(v)
}

// A decoder is a place in a document.
type decoder struct {
	text  string
	at    int
	depth int
}

// maxDepth is how deep values may lie in each other: deeper than records are, and
// within what the stack takes.
const maxDepth = 100

func (d *decoder) space() {
	for d.at < len(d.text) && isSpace(d.text[d.at]) {
		d.at++
	}
}

func isSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\n' || c == '\r' }

// peek returns the next byte that is no space, 0 at the end.
func (d *decoder) peek() byte {
	d.space()
	if d.at < len(d.text) {
		return d.text[d.at]
	}
	return 0
}

// take goes over c if it is next.
func (d *decoder) take(c byte) bool {
	if d.peek() != c {
		return false
	}
	d.at++
	return true
}

// word goes over a literal if it is next.
func (d *decoder) word(literal string) bool {
	d.space()
	if !strings.HasPrefix(d.text[d.at:], literal) {
		return false
	}
	d.at += len(literal)
	return true
}

// open goes over the first bracket of an object or a list if it is next.
func (d *decoder) open(first byte) bool {
	d.depth++
	return d.depth <= maxDepth && d.take(first)
}

// each goes over an object or a list, whose first bracket is next. visit has to go
// over each member or element.
func (d *decoder) each(first, last byte, visit func() bool) bool {
	if !d.open(first) {
		return false
	}
	if !d.take(last) {
		for {
			if !visit() {
				return false
			}
			if d.take(last) {
				break
			}
			if !d.take(',') {
				return false
			}
		}
	}
	d.depth--
	return true
}

// object is each for members: visit has to go over the value of each.
func (d *decoder) object(visit func(name string) bool) bool {
	return d.each('{', '}', func() bool {
		name, ok := d.string()
		return ok && d.take(':') && visit(name)
	})
}

// string returns the string that is next.
func (d *decoder) string() (text string, ok bool) {
	if !d.take('"') {
		return "", false
	}
	from, plain, ascii := d.at, true, true
	for d.at < len(d.text) {
		switch c := d.text[d.at]; {
		case c == '"':
			text = d.text[from:d.at]
			d.at++
			if plain && (ascii || utf8.ValidString(text)) {
				return text, true
			}
			return unescape(d.text[from-1 : d.at])
		case c == '\\':
			plain = false
			d.at++
		case c < ' ':
			return "", false
		case c >= utf8.RuneSelf:
			ascii = false
		}
		d.at++
	}
	return "", false
}

// unescape is apart from string, where the text would have to be allocated for
// those that are plain too.
func unescape(quoted string) (text string, ok bool) {
	err := json.Unmarshal([]byte(quoted), &text)
	return text, err == nil
}

// number returns the number that is next, and whether it is written as an integer.
func (d *decoder) number() (text string, whole, ok bool) {
	d.space()
	from := d.at
	if d.at < len(d.text) && d.text[d.at] == '-' {
		d.at++
	}
	zero := d.at < len(d.text) && d.text[d.at] == '0'
	if n := d.digits(); n == 0 || zero && n > 1 {
		return "", false, false
	}
	whole = true
	if d.at < len(d.text) && d.text[d.at] == '.' {
		whole = false
		d.at++
		if d.digits() == 0 {
			return "", false, false
		}
	}
	if d.at < len(d.text) && (d.text[d.at] == 'e' || d.text[d.at] == 'E') {
		whole = false
		d.at++
		if d.at < len(d.text) && (d.text[d.at] == '+' || d.text[d.at] == '-') {
			d.at++
		}
		if d.digits() == 0 {
			return "", false, false
		}
	}
	return d.text[from:d.at], whole, true
}

// digits goes over digits and counts them.
func (d *decoder) digits() (n int) {
	for d.at < len(d.text) && '0' <= d.text[d.at] && d.text[d.at] <= '9' {
		d.at++
		n++
	}
	return n
}

// skip goes over a value.
func (d *decoder) skip() bool {
	switch d.peek() {
	case '{':
		return d.object(func(string) bool { return d.skip() })
	case '[':
		return d.each('[', ']', d.skip)
	case '"':
		_, ok := d.string()
		return ok
	case 't':
		return d.word("true")
	case 'f':
		return d.word("false")
	case 'n':
		return d.word("null")
	}
	_, _, ok := d.number()
	return ok
}

// any returns a value of no type.
func (d *decoder) any() (v any, ok bool) {
	switch d.peek() {
	case '{':
		members := map[string]any{}
		ok = d.object(func(name string) (ok bool) {
			members[name], ok = d.any()
			return ok
		})
		return members, ok
	case '[':
		elements := []any{}
		ok = d.each('[', ']', func() bool {
			element, ok := d.any()
			elements = append(elements, element)
			return ok
		})
		return elements, ok
	case '"':
		return asAny(d.string())
	case 't':
		return true, d.word("true")
	case 'f':
		return false, d.word("false")
	case 'n':
		return nil, d.word("null")
	}
	text, _, ok := d.number()
	return json.Number(text), ok
}

func asAny(text string, ok bool) (any, bool) { return text, ok }

package document

import (
	"encoding"
	"encoding/json"
	"reflect"
	"strings"
	"sync"
	"unicode"
)

// A shape is what is known of the JSON of a type. At most one of its three
// parts is set; the JSON of one without any is taken as a whole.
type shape struct {
	fields   map[string]*shape // of a struct: by name, without regard to case
	first    string            // the name of its first field
	values   *shape            // of a map
	elements *shape            // of a list
}

// whole is the shape of what is taken as a whole.
var whole = &shape{}

var (
	shapes      sync.Map // reflect.Type → *shape
	marshaler   = reflect.TypeFor[json.Marshaler]()
	textMarshal = reflect.TypeFor[encoding.TextMarshaler]()
)

// shapeOf returns the shape of a type, which is worked out once.
func shapeOf(t reflect.Type) *shape {
	if known, ok := shapes.Load(t); ok {
		return known.(*shape) //nolint:forcetypeassert // nothing else is in it
	}
	made, _ := shapes.LoadOrStore(t, makeShape(t, nil))
	return made.(*shape) //nolint:forcetypeassert // nothing else is in it
}

// makeShape works out a shape. Within are the structs around it: one that
// holds itself is taken as a whole from there on.
func makeShape(t reflect.Type, within []reflect.Type) *shape {
	for t != nil && t.Kind() == reflect.Pointer && !encodesItself(t) {
		t = t.Elem()
	}
	if t == nil || encodesItself(t) {
		return whole
	}
	switch t.Kind() {
	case reflect.Struct:
		for _, outer := range within {
			if outer == t {
				return whole
			}
		}
		return structShape(t, append(within[:len(within):len(within)], t))
	case reflect.Map:
		if values := makeShape(t.Elem(), within); values != whole {
			return &shape{values: values}
		}
	case reflect.Slice, reflect.Array:
		if elements := makeShape(t.Elem(), within); elements != whole {
			return &shape{elements: elements}
		}
	}
	return whole
}

func encodesItself(t reflect.Type) bool {
	for _, how := range []reflect.Type{marshaler, textMarshal} {
		if t.Implements(how) || reflect.PointerTo(t).Implements(how) {
			return true
		}
	}
	return false
}

// A field is a candidate for a member: the same name may stand at several
// depths of embedded structs.
type field struct {
	shape  *shape
	name   string
	index  []int // from the outermost struct on
	tagged bool
	hidden bool // by another of its depth
	quoted bool // its value stands in a string
}

func structShape(t reflect.Type, within []reflect.Type) *shape {
	s := &shape{fields: map[string]*shape{}}
	found := map[string]field{}
	s.collect(t, nil, within, found)
	for name, f := range found {
		if !f.hidden {
			s.fields[name] = f.shape
		}
	}
	return s
}

// collect gathers the fields of a struct and of those embedded in it, by the
// rules of encoding/json: the least depth wins, then a name from a tag. at is
// where the struct is embedded.
func (s *shape) collect(t reflect.Type, at []int, within []reflect.Type, found map[string]field) {
	for i := range t.NumField() {
		f := t.Field(i)
		tag := f.Tag.Get("json")
		name, options, _ := strings.Cut(tag, ",")
		inner, index := f.Type, append(at[:len(at):len(at)], i)
		if inner.Kind() == reflect.Pointer {
			inner = inner.Elem()
		}
		switch {
		case tag == "-", !f.IsExported() && !(f.Anonymous && inner.Kind() == reflect.Struct):
			continue
		case f.Anonymous && name == "" && inner.Kind() == reflect.Struct:
			s.collect(inner, index, within, found)
			continue
		}
		mine := field{index: index, tagged: name != "", quoted: strings.Contains(options, "string")}
		if name == "" {
			name = f.Name
		}
		if s.first == "" {
			s.first = name
		}
		mine.name = name
		if mine.shape = whole; !mine.quoted {
			mine.shape = makeShape(f.Type, within)
		}
		folded := fold(name)
		switch other, taken := found[folded]; {
		case !taken || len(index) < len(other.index) || len(index) == len(other.index) && mine.tagged && !other.tagged:
		case len(index) == len(other.index) && mine.tagged == other.tagged:
			other.hidden = true
			mine = other
		default:
			mine = other
		}
		found[folded] = mine
	}
}

// field returns the shape of a member by its name as JSON, quotes included,
// and whether the type knows it. The names in a map are data: all are known.
func (s *shape) field(name []byte) (child *shape, known bool) {
	if s.fields == nil {
		return s.values, true
	}
	plain := name[1 : len(name)-1]
	if len(plain) > maxPlain || !isPlain(plain) {
		child, known = s.fields[fold(unquote(name))]
		return child, known
	}
	var lower [maxPlain]byte
	for i, c := range plain {
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		lower[i] = c
	}
	child, known = s.fields[string(lower[:len(plain)])]
	return child, known
}

// maxPlain is the longest name, in bytes, that is looked up without an
// allocation.
const maxPlain = 48

// unquote returns what a JSON string spells.
func unquote(quoted []byte) string {
	var text string
	if err := json.Unmarshal(quoted, &text); err != nil {
		return string(quoted)
	}
	return text
}

// fold brings all names that encoding/json takes for one another to one form.
func fold(name string) string {
	return strings.Map(func(r rune) rune {
		least := r
		for other := unicode.SimpleFold(r); other != r; other = unicode.SimpleFold(other) {
			least = min(least, other)
		}
		if 'A' <= least && least <= 'Z' {
			least += 'a' - 'A'
		}
		return least
	}, name)
}

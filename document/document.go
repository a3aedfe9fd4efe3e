// Package document owns how a stored JSON document is read quickly, and how it is
// written anew by a version of this program that does not know all of its
// members: those it does not know stay. It knows nothing of what documents are
// for.
//
// # What stays
//
// A member of an object is known where the Go type that the object is decoded
// into has a field of that name, as encoding/json matches them. Known members
// become what the new value says, also where it leaves one out: that one is
// removed. All others stay as they were, behind the known ones, at every level
// that is there before and after:
//
//   - in a struct behind a field, and behind a pointer;
//   - in a value of a map, under its key: the keys are data, so that an entry
//     that the new value lacks is removed with all that it held;
//   - in an element of a list of structs: the first field of the struct is its
//     name, and an element is the same one where that member is equal.
//
// What encodes itself (times, raw messages), and what has no type (any), is
// taken from the new value as a whole.
package document

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"unicode/utf8"
)

// Rewrite encodes v, which takes the place of the document stored, and keeps
// the members of stored that v's type does not know. Nothing stored, or null,
// keeps nothing. An error says that v cannot be encoded or stored is not JSON.
//
// Where nothing is unknown, which is found by reading over stored once, it
// costs no allocation beyond those of json.Marshal.
func Rewrite(stored []byte, v any) ([]byte, error) {
	fresh, err := json.Marshal(v)
	if err != nil || len(stored) == 0 {
		return fresh, err
	}
	s := shapeOf(reflect.TypeOf(v))
	r := reader{text: stored}
	unknown := r.unknown(s)
	if r.broken || unknown && !json.Valid(stored) {
		return nil, fmt.Errorf("the stored document of %d bytes is not JSON", len(stored))
	}
	if !unknown {
		return fresh, nil
	}
	return s.merge(make([]byte, 0, len(stored)+len(fresh)), stored, fresh), nil
}

// merge appends fresh with what stored has beyond the shape. Both are JSON.
func (s *shape) merge(to, stored, fresh []byte) []byte {
	switch {
	case s.fields != nil || s.values != nil:
		return s.mergeObject(to, members(stored), members(fresh), fresh)
	case s.elements != nil:
		return s.mergeList(to, elements(stored), elements(fresh), fresh)
	}
	return append(to, fresh...)
}

// mergeObject is merge for members; fresh stands where either is no object.
func (s *shape) mergeObject(to []byte, old, now []member, fresh []byte) []byte {
	if old == nil || now == nil {
		return append(to, fresh...)
	}
	to = append(to, '{')
	first := len(to)
	add := func(name []byte) {
		if len(to) > first {
			to = append(to, ',')
		}
		to = append(append(to, name...), ':')
	}
	for _, m := range now {
		add(m.name)
		child, _ := s.field(m.name)
		if before := s.find(old, m.name); child != nil && before != nil {
			to = child.merge(to, before, m.value)
		} else {
			to = append(to, m.value...)
		}
	}
	for _, m := range old {
		if _, known := s.field(m.name); !known {
			add(m.name)
			to = append(to, m.value...)
		}
	}
	return append(to, '}')
}

// find returns the value of the last member that is decoded as the one of a
// name, or nil.
func (s *shape) find(old []member, name []byte) []byte {
	for i := len(old) - 1; i >= 0; i-- {
		if s.match(old[i].name, name) {
			return old[i].value
		}
	}
	return nil
}

// match reports whether two names, as JSON, are decoded as one. Those in a map
// are data, and as different as they look.
func (s *shape) match(a, b []byte) bool {
	switch plain := isPlain(a) && isPlain(b); {
	case bytes.Equal(a, b):
		return true
	case s.fields != nil && plain:
		return bytes.EqualFold(a, b)
	case s.fields != nil:
		return fold(unquote(a)) == fold(unquote(b))
	default:
		return !plain && unquote(a) == unquote(b)
	}
}

// isPlain reports whether a name as JSON is ASCII without an escape.
func isPlain(name []byte) bool {
	for _, c := range name {
		if c == '\\' || c >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// mergeList is merge for elements; fresh stands where either is no list.
func (s *shape) mergeList(to []byte, old, now [][]byte, fresh []byte) []byte {
	if old == nil || now == nil {
		return append(to, fresh...)
	}
	to = append(to, '[')
	for i, element := range now {
		if i > 0 {
			to = append(to, ',')
		}
		if before := s.elements.same(old, element); before != nil {
			to = s.elements.merge(to, before, element)
		} else {
			to = append(to, element...)
		}
	}
	return append(to, ']')
}

// same returns the element of old that has the name of element, or nil.
func (s *shape) same(old [][]byte, element []byte) []byte {
	name := s.nameOf(element)
	if name == nil {
		return nil
	}
	for _, candidate := range old {
		if bytes.Equal(s.nameOf(candidate), name) {
			return candidate
		}
	}
	return nil
}

// nameOf returns the first member of a struct in a list, as JSON, or nil.
func (s *shape) nameOf(element []byte) []byte {
	if s.first == "" {
		return nil
	}
	return s.find(members(element), []byte(`"`+s.first+`"`))
}

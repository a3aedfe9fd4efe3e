package request

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"

	"github.com/rowmill/rowmill/internal/spelling"
)

// An Object is a small JSON object whose fields are read one by one. Nulls are
// left out.
type Object struct {
	Problems *Problems
	fields   map[string]json.RawMessage
	nulls    map[string]bool // the names of those left out
	prefix   string          // of the names in problems, such as "quotas[1]."
}

// ReadObject takes a body apart; what is found wrong with its fields is added
// to the problems.
func ReadObject(body []byte, problems *Problems) (Object, error) {
	o := Object{Problems: problems}
	return o, o.decode(body)
}

// maxFields is more than any object that is read has, and bounds what one with
// millions takes.
const maxFields = 100

func (o *Object) decode(body []byte) error {
	malformed := Errorf(http.StatusBadRequest, "invalid_json", "the body must be one JSON object and nothing else")
	decoder := json.NewDecoder(bytes.NewReader(body))
	if first, err := decoder.Token(); err != nil || first != json.Delim('{') || !json.Valid(body) {
		return malformed
	}
	o.fields, o.nulls = map[string]json.RawMessage{}, map[string]bool{}
	for decoder.More() {
		name, err := decoder.Token()
		var value json.RawMessage
		if err == nil {
			err = decoder.Decode(&value)
		}
		field, isText := name.(string)
		if err != nil || !isText {
			return malformed
		}
		delete(o.fields, field) // of a field that stands there twice the last counts
		delete(o.nulls, field)
		if bytes.Equal(value, []byte("null")) {
			o.nulls[field] = true
		} else {
			o.fields[field] = value
		}
		if len(o.fields)+len(o.nulls) > maxFields {
			return Errorf(http.StatusBadRequest, CodeInvalid, "the body has more than %d fields", maxFields)
		}
	}
	return nil
}

// Read decodes a field, takes it out of the object, and reports whether it was
// there and well-typed.
func (o *Object) Read(field, must string, into any) bool {
	raw, given := o.fields[field]
	if !given {
		return false
	}
	delete(o.fields, field)
	if err := Decode(raw, into); err != nil {
		o.Add(field, "must be %s", must)
		return false
	}
	return true
}

// Require is Read for a field that must be there; must says what it must be.
func (o *Object) Require(field, must string, into any, missing string) bool {
	if _, given := o.fields[field]; !given {
		o.Add(field, "is missing; %s", missing)
		return false
	}
	return o.Read(field, must, into)
}

// Null reports whether a field was given as null.
func (o *Object) Null(field string) bool { return o.nulls[field] }

// Drop takes a field out of the object unread.
func (o *Object) Drop(field string) { delete(o.fields, field) }

// Add adds a problem with a field of the object.
func (o *Object) Add(field, format string, args ...any) {
	o.Problems.Add(o.prefix+field, format, args...)
}

// Objects takes an array of objects out of the object, each to be read in turn.
func (o *Object) Objects(field string) []Object {
	var raws []json.RawMessage
	if !o.Read(field, "an array of objects", &raws) {
		return nil
	}
	var found []Object
	for i, raw := range raws {
		name := fmt.Sprintf("%s[%d]", field, i)
		inner := Object{prefix: o.prefix + name + ".", Problems: o.Problems}
		if inner.decode(raw) != nil {
			o.Add(name, "must be an object")
			continue
		}
		found = append(found, inner)
	}
	return found
}

// Object takes an object out of the object, to be read in turn, and reports
// whether it was there.
func (o *Object) Object(field string) (inner Object, given bool) {
	raw, given := o.fields[field]
	if !given {
		return inner, false
	}
	delete(o.fields, field)
	inner = Object{prefix: o.prefix + field + ".", Problems: o.Problems}
	if inner.decode(raw) != nil {
		o.Add(field, "must be an object")
		return inner, false
	}
	return inner, true
}

// maxUnknown is how many unknown fields an answer names.
const maxUnknown = 20

// Rest names the fields that nobody has read, in order.
func (o *Object) Rest() []string { return slices.Sorted(maps.Keys(o.fields)) }

// End refuses the fields that nobody has read: in a document that replaces
// another, a misspelt one would quietly remove what it meant to set.
func (o *Object) End(known string) {
	for i, name := range o.Rest() {
		name = cmp.Or(spelling.Shorten(name, 64), `""`)
		if i == maxUnknown {
			o.Add(name, "is unknown, and so are %d further fields", len(o.fields)-i-1)
			break
		}
		o.Add(name, "is unknown; the fields are %s", known)
	}
}

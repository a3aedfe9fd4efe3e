package request

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"

	"github.com/rowmill/rowmill/internal/textfmt"
)

// A JSONObject is a small JSON object in a request. A handler reads the fields one by one,
// and each read removes the field from the object. A field with null counts as absent.
type JSONObject struct {
	Problems *Problems
	fields   map[string]json.RawMessage
	nulls    map[string]bool // names of the fields with null
	prefix   string          // text before field names in problems, such as "quotas[1]."
}

// ReadObject decodes a body into a JSONObject with all fields unread. The methods that read
// a field add its problems to Problems.
func ReadObject(body []byte) (JSONObject, error) {
	o := JSONObject{Problems: &Problems{}}
	return o, o.decode(body)
}

// Err returns the problems of the object as an error, or nil if there are none.
func (o *JSONObject) Err() error { return o.Problems.Err() }

// maxFields limits the fields of an object, so that a body with millions of fields
// takes little memory. No object of the API has that many fields.
const maxFields = 100

func (o *JSONObject) decode(body []byte) error {
	malformed := Errorf(http.StatusBadRequest, "invalid_json", "the body must be one JSON object and nothing else")
	decoder := json.NewDecoder(bytes.NewReader(body))
	if first, err := decoder.Token(); err != nil || first != json.Delim('{') || !json.Valid(body) {
		return malformed
	}
	if textfmt.HasLoneSurrogate(body) {
		return Errorf(http.StatusBadRequest, "invalid_json", "the body has half of a surrogate pair, such as \\ud800, which is no character; remove it")
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
		delete(o.fields, field) // if a name occurs twice, the last value counts
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

// Read decodes a field into the variable that into points to, and removes the field
// from the object. It returns true if the field is present and has the right type. wantType
// names the right type for the error message.
func (o *JSONObject) Read(field, wantType string, into any) bool {
	raw, given := o.fields[field]
	if !given {
		return false
	}
	delete(o.fields, field)
	if err := Decode(raw, into); err != nil {
		o.AddProblem(field, "must be %s", wantType)
		return false
	}
	return true
}

// Require is like Read for a field that must be present. missing is the message for an
// absent field.
func (o *JSONObject) Require(field, wantType string, into any, missing string) bool {
	if _, given := o.fields[field]; !given {
		o.AddProblem(field, "is missing; %s", missing)
		return false
	}
	return o.Read(field, wantType, into)
}

// IsNull reports whether the request has the field with the value null.
func (o *JSONObject) IsNull(field string) bool { return o.nulls[field] }

// Drop removes a field without reading it.
func (o *JSONObject) Drop(field string) { delete(o.fields, field) }

// AddProblem adds a problem of a field to Problems.
func (o *JSONObject) AddProblem(field, format string, args ...any) {
	o.Problems.Add(o.prefix+field, format, args...)
}

// ReadInnerObjects reads a field that is an array of objects, removes the field from the object,
// and returns the elements.
func (o *JSONObject) ReadInnerObjects(field string) []JSONObject {
	var raws []json.RawMessage
	if !o.Read(field, "an array of objects", &raws) {
		return nil
	}
	var found []JSONObject
	for i, raw := range raws {
		name := fmt.Sprintf("%s[%d]", field, i)
		inner := JSONObject{prefix: o.prefix + name + ".", Problems: o.Problems}
		if inner.decode(raw) != nil {
			o.AddProblem(name, "must be an object")
			continue
		}
		found = append(found, inner)
	}
	return found
}

// ReadInnerObject reads a field that is itself an object, removes the field, and returns the
// inner object. given is false if the field is absent or not an object.
func (o *JSONObject) ReadInnerObject(field string) (inner JSONObject, given bool) {
	raw, given := o.fields[field]
	if !given {
		return inner, false
	}
	delete(o.fields, field)
	inner = JSONObject{prefix: o.prefix + field + ".", Problems: o.Problems}
	if inner.decode(raw) != nil {
		o.AddProblem(field, "must be an object")
		return inner, false
	}
	return inner, true
}

// maxUnknown limits how many unknown fields an error message names.
const maxUnknown = 20

// UnreadFields returns the sorted names of the fields that were not read.
func (o *JSONObject) UnreadFields() []string { return slices.Sorted(maps.Keys(o.fields)) }

// RejectUnknown adds a problem for each field that was not read; known lists the known fields for
// the message. Without this check, a misspelt field in a document that replaces a
// stored document would silently delete the value that the client wanted to set.
func (o *JSONObject) RejectUnknown(known string) {
	for i, name := range o.UnreadFields() {
		name = cmp.Or(textfmt.Shorten(name, 64), `""`)
		if i == maxUnknown {
			o.AddProblem(name, "is unknown, and so are %d further fields", len(o.fields)-i-1)
			break
		}
		o.AddProblem(name, "is unknown; the fields are %s", known)
	}
}

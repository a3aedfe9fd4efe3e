package http

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	nethttp "net/http"
	"slices"

	"github.com/gin-gonic/gin"
)

// maxObjectBytes bounds a body that is one small object.
const maxObjectBytes = 64 << 10

// An object is a small JSON object whose fields are read one by one. Nulls are
// left out.
type object struct {
	fields   map[string]json.RawMessage
	nulls    map[string]bool // the names of those left out
	prefix   string          // of the names in problems, such as "quotas[1]."
	problems *problems
}

// readObject reads the body of a request.
func (s *Server) readObject(c *gin.Context, problems *problems) (object, error) {
	return s.readObjectUpTo(c, problems, maxObjectBytes)
}

// readObjectUpTo reads a body of at most limit bytes.
func (s *Server) readObjectUpTo(c *gin.Context, problems *problems, limit int64) (object, error) {
	o := object{problems: problems}
	if err := s.checkBodyHeaders(c); err != nil {
		return o, err
	}
	patient := &patientReader{
		Reader:  nethttp.MaxBytesReader(c.Writer, c.Request.Body, limit),
		control: nethttp.NewResponseController(c.Writer), patience: s.Patience,
	}
	text, err := io.ReadAll(patient)
	if tooLarge := new(nethttp.MaxBytesError); errors.As(err, &tooLarge) {
		return o, errorf(nethttp.StatusRequestEntityTooLarge, "body_too_large", "the body is larger than %d bytes", tooLarge.Limit)
	}
	if stalled := new(apiError); err != nil && !errors.As(err, &stalled) {
		err = errorf(nethttp.StatusBadRequest, "body_unreadable", "the body could not be read to its end: the connection broke")
	}
	if err != nil {
		return o, err
	}
	patient.done()
	return o, o.decode(text)
}

// decode reads the fields of an object.
func (o *object) decode(text []byte) error {
	if err := json.Unmarshal(text, &o.fields); err != nil || o.fields == nil {
		return errorf(nethttp.StatusBadRequest, "invalid_json", "the body must be one JSON object and nothing else")
	}
	o.nulls = map[string]bool{}
	for name, value := range o.fields {
		if bytes.Equal(value, []byte("null")) {
			o.nulls[name] = true
			delete(o.fields, name)
		}
	}
	return nil
}

// read decodes a field, takes it out of the object, and reports whether it was
// there and well-typed.
func (o *object) read(field, must string, into any) bool {
	raw, given := o.fields[field]
	if !given {
		return false
	}
	delete(o.fields, field)
	if err := json.Unmarshal(raw, into); err != nil {
		o.problems.add(o.prefix+field, "must be %s", must)
		return false
	}
	return true
}

// objects takes an array of objects out of the object, each to be read in turn.
func (o *object) objects(field string) []object {
	var raws []json.RawMessage
	if !o.read(field, "an array of objects", &raws) {
		return nil
	}
	var found []object
	for i, raw := range raws {
		name := fmt.Sprintf("%s%s[%d]", o.prefix, field, i)
		inner := object{prefix: name + ".", problems: o.problems}
		if inner.decode(raw) != nil {
			o.problems.add(name, "must be an object")
			continue
		}
		found = append(found, inner)
	}
	return found
}

// end refuses the fields that nobody has read: in a document that replaces
// another, a misspelt one would quietly remove what it meant to set.
func (o *object) end(known string) {
	for _, name := range slices.Sorted(maps.Keys(o.fields)) {
		o.problems.add(o.prefix+shorten(name, 64), "is unknown; the fields are %s", known)
	}
}

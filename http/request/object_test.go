package request

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/internal/must"
)

// FuzzReadObject compares ReadObject with encoding/json.
func FuzzReadObject(f *testing.F) {
	for _, seed := range []string{`{}`, ` {"a":1,"a":null,"b":[{}]} `, `{"a":1}x`, `[]`, `{"a"}`, `null`, `{"a":1,}`, ``, `{"\u0061":2}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		o, err := ReadObject(body)
		var theirs map[string]json.RawMessage
		valid := json.Unmarshal(body, &theirs) == nil && theirs != nil
		if valid != (err == nil) && len(theirs) <= maxFields {
			t.Fatalf("%q: error %v, encoding/json takes it: %v", body, err, valid)
		}
		if err != nil {
			return
		}
		for name, value := range theirs {
			if string(value) == "null" {
				if !o.IsNull(name) {
					t.Fatalf("%q: %s is not null", body, name)
				}
				continue
			}
			if string(o.fields[name]) != string(value) {
				t.Fatalf("%q: %s is %s, want %s", body, name, o.fields[name], value)
			}
		}
	})
}

func TestObject_CollectsAllProblems(t *testing.T) {
	t.Parallel()
	o := must.Get(ReadObject([]byte(`{"name":5,"list":[{"n":"x","other":1},7,{"n":2}],"null":null,"z":1}`)))(t)
	var name string
	o.Read("name", "a string", &name)
	var n int
	for _, inner := range o.ReadInnerObjects("list") {
		inner.Require("n", "a number", &n, "it must be a number")
		inner.RejectUnknown("n")
	}
	o.Require("gone", "a string", &name, "it must be there")
	o.Read("null", "a string", &name)
	o.RejectUnknown("name and list")
	if n != 2 || !o.IsNull("null") || !o.Problems.Has("list") || o.Problems.Has("z[0]") {
		t.Errorf("n %d, problems %v", n, o.Problems.Err())
	}
	want := []rowmill.FieldError{
		{Field: "name", Message: "must be a string"},
		{Field: "list[1]", Message: "must be an object"},
		{Field: "list[0].n", Message: "must be a number"},
		{Field: "list[0].other", Message: "is unknown; the fields are n"},
		{Field: "gone", Message: "is missing; it must be there"},
		{Field: "z", Message: "is unknown; the fields are name and list"},
	}
	if diff := cmp.Diff(want, FromError(o.Problems.Err()).Fields); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if e := FromError(o.Problems.ErrWithStatus(422, "invalid_input")); e.Status != 422 || len(e.Fields) != len(want) {
		t.Errorf("%d with %d fields", e.Status, len(e.Fields))
	}
}

// The fields of an object and the problems in an answer are limited.
func TestObject_OfManyFields(t *testing.T) {
	t.Parallel()
	object := func(n int) []byte {
		fields := make([]string, n)
		for i := range fields {
			fields[i] = fmt.Sprintf(`"field %d":0`, i)
		}
		return []byte("{" + strings.Join(fields, ",") + "}")
	}
	o := must.Get(ReadObject(object(maxFields)))(t)
	if o.RejectUnknown("none"); o.Problems.Len() != maxUnknown+1 || !strings.Contains(FromError(o.Problems.Err()).Fields[maxUnknown].Message, "79 further") {
		t.Errorf("%d problems: %v", o.Problems.Len(), o.Problems.Err())
	}
	if _, err := ReadObject(object(maxFields + 1)); err == nil || FromError(err).Status != 400 {
		t.Errorf("error %v", err)
	}
}

func TestProblems_CodeOfAll(t *testing.T) {
	t.Parallel()
	var p Problems
	if p.Err() != nil || p.ErrWithStatus(400, "x") != nil {
		t.Error("no problem is an error")
	}
	p.AddWithCode("special", rowmill.FieldError{Field: "a", Message: "b"})
	p.AddWithCode("special")
	if e := FromError(p.Err()); e.Code != "special" {
		t.Errorf("code %s", e.Code)
	}
	p.Add("c", "is %d", 5)
	if e := FromError(p.Err()); e.Code != CodeInvalid || len(e.Fields) != 2 {
		t.Errorf("code %s, fields %v", e.Code, e.Fields)
	}
}

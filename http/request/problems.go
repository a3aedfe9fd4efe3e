package request

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/rowmill/rowmill"
)

// Problems collects the broken rules of a request, so that one answer names all of them.
type Problems struct {
	code   string // code of all problems; CodeInvalid if they differ
	fields []rowmill.FieldError
}

// Add adds a broken rule of a field with the code CodeInvalid.
func (p *Problems) Add(field, format string, args ...any) {
	p.AddWithCode(CodeInvalid, rowmill.FieldError{Field: field, Message: fmt.Sprintf(format, args...)})
}

// AddWithCode adds broken rules that have their own error code.
func (p *Problems) AddWithCode(code string, fields ...rowmill.FieldError) {
	if len(fields) == 0 {
		return
	}
	if len(p.fields) == 0 {
		p.code = code
	} else if p.code != code {
		p.code = CodeInvalid
	}
	p.fields = append(p.fields, fields...)
}

// AddNested adds the problems of a document that is inside the request. field is the name
// of the field that contains the document.
func (p *Problems) AddNested(field string, part *Problems) {
	for _, f := range part.fields {
		p.AddWithCode(part.code, rowmill.FieldError{Field: field + "." + f.Field, Message: f.Message})
	}
}

// Len returns the number of problems.
func (p *Problems) Len() int { return len(p.fields) }

// Has reports whether a field or one of its elements has a problem.
func (p *Problems) Has(field string) bool {
	for _, problem := range p.fields {
		if problem.Field == field || strings.HasPrefix(problem.Field, field+"[") {
			return true
		}
	}
	return false
}

// Err returns the problems as an error, or nil if there are none.
func (p *Problems) Err() error {
	if len(p.fields) == 0 {
		return nil
	}
	return &rowmill.InvalidError{Code: p.code, Fields: p.fields}
}

// ErrWithStatus returns the problems as one error, like Err, but with the given status and
// code.
func (p *Problems) ErrWithStatus(status int, code string) error {
	if err := p.Err(); err != nil {
		e := Errorf(status, code, "%s", err.Error())
		e.Fields = p.fields
		return e
	}
	return nil
}

// BodyInterrupted returns the error for a body that ended too early. where is a text
// about the position, such as " at byte 7", which is added to the message; it may be
// "".
func BodyInterrupted(where string) *Error {
	return Errorf(http.StatusBadRequest, "body_unreadable", "the body could not be read to its end: the connection broke%s", where)
}

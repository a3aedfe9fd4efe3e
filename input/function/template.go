package function

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Marks of a placeholder in a prompt.
const (
	opening = "{{"
	closing = "}}"
)

// maxFieldRunes is the longest field name, in Unicode code points.
const maxFieldRunes = 64

// A SyntaxError is an error in a template and its position.
type SyntaxError struct {
	Offset  int // byte position of the opening braces
	Message string
}

// Error returns the message with its byte position.
func (e *SyntaxError) Error() string {
	return fmt.Sprintf("at byte %d: %s", e.Offset, e.Message)
}

// A template is a parsed prompt: literals[0], fields[0], literals[1], and so on to the
// last literal. It has one literal more than fields.
type template struct {
	literals []string // text between the placeholders
	fields   []string // field names of the placeholders
}

// parse splits a prompt into literals and fields. The error is a *SyntaxError.
func parse(prompt string) (template, error) {
	var t template
	for offset := 0; ; {
		rest := prompt[offset:]
		start := strings.Index(rest, opening)
		if start < 0 {
			t.literals = append(t.literals, rest)
			return t, nil
		}
		inside := rest[start+len(opening):]
		end := strings.Index(inside, closing)
		if end < 0 {
			return t, &SyntaxError{offset + start, "{{ is not closed by }}; it must be a placeholder such as {{field}}"}
		}
		name := strings.TrimFunc(inside[:end], unicode.IsSpace)
		if problem := findFieldNameProblem(name); problem != "" {
			return t, &SyntaxError{offset + start, "the name of the field between {{ and }} " + problem}
		}
		t.literals = append(t.literals, rest[:start])
		t.fields = append(t.fields, name)
		offset += start + len(opening) + end + len(closing)
	}
}

// findFieldNameProblem returns an error text if a field cannot have the name, or "".
func findFieldNameProblem(name string) string {
	switch {
	case name == "":
		return "is empty"
	case !utf8.ValidString(name):
		return "is not UTF-8"
	case utf8.RuneCountInString(name) > maxFieldRunes:
		return fmt.Sprintf("has more than %d characters", maxFieldRunes)
	case strings.TrimFunc(name, unicode.IsSpace) != name:
		return fmt.Sprintf("is %q; it must not begin or end with a blank", name)
	case strings.ContainsAny(name, "{}"):
		return fmt.Sprintf("is %q; it must not contain braces", name)
	case strings.ContainsFunc(name, unicode.IsControl):
		return fmt.Sprintf("is %q; it must not contain line breaks or other control characters", name)
	}
	return ""
}

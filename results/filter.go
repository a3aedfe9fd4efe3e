package results

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/rowmill/rowmill/internal/textfmt"
)

// A RowFilter selects rows by their content. A row must satisfy all fields that are set. The zero
// RowFilter selects every row.
type RowFilter struct {
	Text   string          // the input or the answer contains this text; upper and lower case are equal
	Where  []PropertyValue // values of the answer
	Finish string          // finish reason of the answer
	Code   string          // error code of a failed row
}

// A PropertyValue is the value of a property of an answer that is a JSON object. If Property is
// empty, Value is the whole answer.
type PropertyValue struct {
	Property string
	Value    string // text of a string, else the JSON of the value, such as true or 3
}

// IsEmpty reports whether the filter selects every row.
func (f *RowFilter) IsEmpty() bool {
	return f.Text == "" && len(f.Where) == 0 && f.Finish == "" && f.Code == ""
}

// readsAnswers reports whether the filter depends on the answers.
func (f *RowFilter) readsAnswers() bool { return f.Text != "" || len(f.Where) > 0 }

// selects reports whether the filter selects a row. output is the output cell of the row, empty
// for a failed row.
func (f *RowFilter) selects(input, output, finish, code string) bool {
	if f.Code != "" && f.Code != code || f.Finish != "" && f.Finish != finish {
		return false
	}
	for _, p := range f.Where {
		if code != "" || !p.isIn(output) {
			return false
		}
	}
	return f.Text == "" || containsFold(input, f.Text) || containsFold(output, f.Text)
}

// containsFold reports whether text contains part; upper and lower case are equal.
func containsFold(text, part string) bool {
	part = strings.ToLower(part)
	if part == "" || !isASCII(part) || strings.Contains(text, kelvinSign) || strings.Contains(text, dottedI) {
		return strings.Contains(strings.ToLower(text), part)
	}
	// A search of many rows spends most of its time here, and a copy of each text in lower case takes longer.
	lower, upper := newByteSearch(text, part[0]), newByteSearch(text, strings.ToUpper(part[:1])[0])
	for {
		at := min(lower.at, upper.at)
		if at > len(text)-len(part) {
			return false
		}
		if strings.EqualFold(text[at:at+len(part)], part) {
			return true
		}
		lower.skip(at)
		upper.skip(at)
	}
}

// Only these two characters outside ASCII have a lower case in ASCII.
const (
	kelvinSign = "\u212a"
	dottedI    = "\u0130"
)

func isASCII(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool { return r >= utf8.RuneSelf })
}

// A byteSearch finds the places of one byte in a text.
type byteSearch struct {
	text string
	byte byte
	at   int // the next place; the length of the text if there is none
}

func newByteSearch(text string, b byte) byteSearch {
	s := byteSearch{text, b, -1}
	s.skip(-1)
	return s
}

// skip goes to the first place after the place at, unless the search is there already.
func (s *byteSearch) skip(at int) {
	if s.at > at {
		return
	}
	s.at = len(s.text)
	if i := strings.IndexByte(s.text[at+1:], s.byte); i >= 0 {
		s.at = at + 1 + i
	}
}

// isIn reports whether an output cell has the value.
func (p *PropertyValue) isIn(output string) bool {
	if p.cannotBeIn(output) {
		return false // without the time to decode JSON
	}
	answer := WithoutReasoning(output)
	if p.Property == "" {
		return strings.TrimSpace(answer) == p.Value
	}
	object := []byte(answer)
	if !isObject(object) {
		return false
	}
	found := false
	textfmt.VisitMembers(object, func(name string, _, value []byte) {
		found = found || name == p.Property && isValue(value, p.Value)
	})
	return found
}

// isObject reports whether an answer is a JSON object.
func isObject(answer []byte) bool {
	answer = bytes.TrimLeft(answer, " \t\r\n")
	return len(answer) > 0 && answer[0] == '{' && json.Valid(answer)
}

// cannotBeIn reports whether an output cell cannot have the value, because its text does not
// contain it. A number has several texts, and so has a string with escapes.
func (p *PropertyValue) cannotBeIn(output string) bool {
	if strings.Contains(output, p.Value) || strings.Contains(output, `\`) {
		return false
	}
	_, err := strconv.ParseFloat(p.Value, 64)
	return err != nil
}

// isValue reports whether a JSON value is equal to text. A list is equal if one of its elements
// is.
func isValue(value []byte, text string) bool {
	if decoded, isText := textfmt.DecodeString(value); isText {
		return decoded == text
	}
	if value[0] == '[' {
		found := false
		textfmt.VisitElements(value, func(element []byte) { found = found || isValue(element, text) })
		return found
	}
	if string(value) == text {
		return true
	}
	a, errA := strconv.ParseFloat(string(value), 64)
	b, errB := strconv.ParseFloat(text, 64)
	return errA == nil && errB == nil && a == b
}

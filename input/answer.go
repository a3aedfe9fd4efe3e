package input

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/rowmill/rowmill/internal/textfmt"
)

// AnswerColumn is the name under which a prompt uses the answer of a row of another job. A path
// after it, such as answer.score, names a value in an answer that is JSON.
const AnswerColumn = "answer"

// TextColumn is the name under which a prompt uses a row of another job that has no columns.
const TextColumn = "input"

// IsAnswerColumn reports whether the name of a column means the answer, or a value in it.
func IsAnswerColumn(name string) bool {
	return name == AnswerColumn || strings.HasPrefix(name, AnswerColumn+".")
}

// AnswerValue returns the JSON value that an answer column has for an answer. ok is false if the
// answer has no such value.
func AnswerValue(answer, column string) (value json.RawMessage, ok bool) {
	path, deeper := strings.CutPrefix(column, AnswerColumn+".")
	if !deeper {
		return textfmt.AppendString(nil, []byte(answer)), true
	}
	text := []byte(strings.TrimSpace(answer))
	if len(text) == 0 || !json.Valid(text) {
		return nil, false
	}
	value, ok = lookupPath(text, path)
	return value, ok
}

// A Condition compares a value of an answer with a constant.
type Condition struct {
	column   string // an answer column
	operator string
	constant string
	number   float64 // the constant, if it is a number
	isNumber bool
}

// operators are the operators of a Condition. An operator comes before its own prefix.
var operators = []string{"<=", ">=", "!=", "=", "<", ">"}

// ParseCondition parses a condition: an answer column, one of = != < <= > >=, and a constant: a
// number, a text with or without double quotes, true, false or null.
func ParseCondition(text string) (c Condition, err error) {
	at := strings.IndexAny(text, "<>=!")
	if at < 0 {
		return c, errors.New("has no comparison; write for example answer.score < 4")
	}
	c.column = strings.TrimSpace(text[:at])
	if !IsAnswerColumn(c.column) {
		return c, fmt.Errorf("compares %q; it must compare answer, or a value in it such as answer.score", textfmt.Shorten(c.column, 64))
	}
	rest := text[at:]
	for _, operator := range operators {
		if c.constant = strings.TrimPrefix(rest, operator); c.constant != rest {
			c.operator = operator
			break
		}
	}
	if c.constant = strings.TrimSpace(c.constant); c.operator == "" || c.constant == "" || strings.ContainsAny(c.constant[:1], "<>=!") {
		return c, errors.New("must be a value of the answer, one of = != < <= > >=, and a number or a text, such as answer.score < 4")
	}
	if decoded, quoted := textfmt.DecodeString([]byte(c.constant)); quoted && json.Valid([]byte(c.constant)) {
		c.constant = decoded
	} else {
		c.number, err = strconv.ParseFloat(c.constant, 64)
		c.isNumber = err == nil
	}
	if !c.isNumber && c.operator != "=" && c.operator != "!=" {
		return c, fmt.Errorf("compares with %q; %s needs a number", textfmt.Shorten(c.constant, 64), c.operator)
	}
	return c, nil
}

// Holds reports whether the condition is true for an answer. It is false for an answer without the
// value, and if the value is no number but the constant is one.
func (c Condition) Holds(answer string) bool {
	value, ok := AnswerValue(answer, c.column)
	if !ok {
		return false
	}
	text, isText := textfmt.DecodeString(value)
	if !isText {
		text = string(value)
	}
	if !c.isNumber {
		return (strings.TrimSpace(text) == c.constant) == (c.operator == "=")
	}
	number, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
	if err != nil {
		return false
	}
	switch c.operator {
	case "<":
		return number < c.number
	case "<=":
		return number <= c.number
	case ">":
		return number > c.number
	case ">=":
		return number >= c.number
	case "!=":
		return number != c.number
	}
	return number == c.number
}

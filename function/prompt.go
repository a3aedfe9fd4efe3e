package function

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/rowmill/rowmill"
)

// Prompt makes prompts of values. It never changes and is safe for concurrent
// use.
type Prompt struct {
	inputs   []rowmill.FunctionInput
	template template
	at       []int // for each field of the template, its position in inputs
}

// NewPrompt binds a prompt to its declared inputs. The error is a *SyntaxError
// where the prompt is malformed or names a field that is not declared.
func NewPrompt(run rowmill.FunctionRun) (*Prompt, error) {
	t, err := parse(run.Prompt)
	if err != nil {
		return nil, err
	}
	position := make(map[string]int, len(run.Inputs))
	for i, in := range run.Inputs {
		position[in.Name] = i
	}
	p := &Prompt{inputs: run.Inputs, template: t, at: make([]int, len(t.fields))}
	for i, name := range t.fields {
		declared := false
		if p.at[i], declared = position[name]; !declared {
			return nil, &SyntaxError{t.offset(i, run.Prompt), fmt.Sprintf("{{%s}} is not among the declared inputs; declare it or correct its name", name)}
		}
	}
	return p, nil
}

// offset is where placeholder i begins in the prompt.
func (t template) offset(i int, prompt string) (at int) {
	for n := range i + 1 {
		at += len(t.literals[n])
		if n < i {
			at += strings.Index(prompt[at:], closing) + len(closing)
		}
	}
	return at
}

// Inputs are the declared inputs, in order. They must not be changed.
func (p *Prompt) Inputs() []rowmill.FunctionInput { return p.inputs }

// Size is the length of the text that Render would return, bytes. values are
// in the order of the inputs.
func (p *Prompt) Size(values []string) int64 {
	var size int64
	for _, literal := range p.template.literals {
		size += int64(len(literal))
	}
	for _, at := range p.at {
		size += int64(len(values[at]))
	}
	return size
}

// Render fills in the values, which are in the order of the inputs. Ask Size
// first: a short template makes a very long text of a long value.
func (p *Prompt) Render(values []string) string {
	var b strings.Builder
	b.Grow(int(p.Size(values)))
	for i, literal := range p.template.literals {
		b.WriteString(literal)
		if i < len(p.at) {
			b.WriteString(values[p.at[i]])
		}
	}
	return b.String()
}

// Row is a row of named values.
type Row map[string]json.RawMessage

// ParseRow decodes a row from a JSON object. Of a name that stands there twice
// the last value counts.
func ParseRow(object []byte) (Row, error) {
	var row Row
	if err := json.Unmarshal(object, &row); err != nil || row == nil {
		return nil, errors.New("the row is not a JSON object") // the decoder's message would quote it
	}
	return row, nil
}

// Values returns the values of a row in the order of the inputs, as text, and
// the names of the required inputs that it lacks. Fields that are not declared
// are left out.
func (p *Prompt) Values(row Row) (values, missing []string) {
	values = make([]string, len(p.inputs))
	for i, in := range p.inputs {
		raw, there := row[in.Name]
		switch {
		case there:
			values[i] = Text(raw)
		case in.Required:
			missing = append(missing, in.Name)
		}
	}
	return values, missing
}

// Text is a JSON value as a prompt shows it: a null is empty, a string stands
// without its quotes, objects and lists are JSON in one line, numbers and
// booleans are as they were written. value must be valid JSON.
func Text(value json.RawMessage) string {
	value = bytes.TrimSpace(value)
	if len(value) == 0 {
		return ""
	}
	switch value[0] {
	case 'n':
		return ""
	case '"':
		var text string
		_ = json.Unmarshal(value, &text) // it is valid
		return text
	case '{', '[':
		return plainJSON(value)
	}
	return string(value)
}

// plainJSON writes JSON in one line with the characters themselves instead of
// \u escapes: many clients escape whatever is not ASCII, which a model should
// not have to read. The order of fields and the form of numbers stay.
func plainJSON(value []byte) string {
	var line bytes.Buffer
	if err := json.Compact(&line, value); err != nil {
		return string(value) // it is valid: this cannot happen
	}
	compact := line.Bytes()
	if !bytes.Contains(compact, []byte(`\u`)) {
		return line.String()
	}
	var plain bytes.Buffer
	encoder := json.NewEncoder(&plain)
	encoder.SetEscapeHTML(false)
	for len(compact) > 0 {
		start := bytes.IndexByte(compact, '"')
		if start < 0 {
			plain.Write(compact)
			break
		}
		plain.Write(compact[:start])
		end := endOfString(compact[start:])
		var text string
		_ = json.Unmarshal(compact[start:start+end], &text) // it is valid
		_ = encoder.Encode(text)                            // a string always encodes
		plain.Truncate(plain.Len() - 1)                     // the encoder ends lines
		compact = compact[start+end:]
	}
	return plain.String()
}

// endOfString is the length of the JSON string that text begins with.
func endOfString(text []byte) int {
	for i := 1; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return len(text)
}

package function

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/input"
)

// A Prompt fills values into a template. It never changes and is safe for concurrent
// use.
type Prompt struct {
	inputs   []rowmill.FunctionInput
	template template
	at       []int // at[i] is the position in inputs of template.fields[i]
}

// NewPrompt parses a prompt and finds the declared input of each placeholder. It
// returns a *SyntaxError if the prompt is malformed or uses an undeclared field.
func NewPrompt(run rowmill.FunctionPrompt) (*Prompt, error) {
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
			return nil, &SyntaxError{t.placeholderOffset(i, run.Prompt), fmt.Sprintf("{{%s}} is not among the declared inputs; declare it or correct its name", name)}
		}
	}
	return p, nil
}

// placeholderOffset returns the byte position of placeholder i in the prompt. i counts from 0.
func (t template) placeholderOffset(i int, prompt string) (at int) {
	for n := range i + 1 {
		at += len(t.literals[n])
		if n < i {
			at += strings.Index(prompt[at:], closing) + len(closing)
		}
	}
	return at
}

// HasInput reports whether an input has the name. A nil Prompt has no inputs.
func (p *Prompt) HasInput(name string) bool {
	return p != nil && slices.ContainsFunc(p.inputs, func(in rowmill.FunctionInput) bool { return in.Name == name })
}

// Inputs returns the declared inputs in order. The caller must not modify them.
func (p *Prompt) Inputs() []rowmill.FunctionInput { return p.inputs }

// Size returns the length in bytes of the text that Render would return. values has one
// value for each input, in the order of the inputs.
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

// Render returns the prompt with the values in place of the placeholders. values has
// the order of the inputs. Call Size first: many placeholders and a long value make a
// very long text.
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

// InputFields returns the fields with which package input makes prompts from the rows of a
// file. rowFields is PromptFields.RowFields.
func (p *Prompt) InputFields(rowFields func(values []string) string) *input.PromptFields {
	f := &input.PromptFields{Size: p.Size, Render: p.Render, RowFields: rowFields}
	for _, in := range p.inputs {
		f.Names, f.Required = append(f.Names, in.Name), append(f.Required, in.Required)
	}
	return f
}

// A FieldValues holds the JSON values of one row by field name.
type FieldValues map[string]json.RawMessage

// ParseRow decodes a row from a JSON object. If a key appears twice, its last value
// counts.
func ParseRow(object []byte) (FieldValues, error) {
	var row FieldValues
	if err := json.Unmarshal(object, &row); err != nil || row == nil {
		// The decoder's message would contain data of the row, so it is not wrapped.
		return nil, errors.New("the row is not a JSON object")
	}
	return row, nil
}

// Values returns the values of a row as text, in the order of the inputs, and the names
// of missing required inputs. It ignores undeclared fields.
func (p *Prompt) Values(row FieldValues) (values, missing []string) {
	values = make([]string, len(p.inputs))
	for i, in := range p.inputs {
		raw, there := row[in.Name]
		switch {
		case there:
			values[i] = FormatValue(raw)
		case in.Required:
			missing = append(missing, in.Name)
		}
	}
	return values, missing
}

// FormatValue converts a JSON value to text for a prompt: null becomes empty, a string loses
// its quotes, objects and lists become JSON on one line, numbers and booleans stay
// unchanged. value must be valid JSON.
func FormatValue(value json.RawMessage) string {
	value = bytes.TrimSpace(value)
	if len(value) == 0 {
		return ""
	}
	switch value[0] {
	case 'n':
		return ""
	case '"':
		var text string
		_ = json.Unmarshal(value, &text) // never fails: value is valid JSON
		return text
	case '{', '[':
		return compactJSON(value)
	}
	return string(value)
}

// compactJSON returns JSON on one line and replaces \u escapes with their characters.
// Many clients escape all characters that are not ASCII, and the escapes would cost
// more tokens. The order of fields and the form of numbers stay.
func compactJSON(value []byte) string {
	var line bytes.Buffer
	if err := json.Compact(&line, value); err != nil {
		return string(value) // cannot happen: value is valid JSON
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
		end := jsonStringLen(compact[start:])
		var text string
		_ = json.Unmarshal(compact[start:start+end], &text) // never fails: value is valid JSON
		_ = encoder.Encode(text)                            // never fails for a string
		plain.Truncate(plain.Len() - 1)                     // remove the encoder's line end
		compact = compact[start+end:]
	}
	return plain.String()
}

// jsonStringLen returns the length of the JSON string at the start of text.
func jsonStringLen(text []byte) int {
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

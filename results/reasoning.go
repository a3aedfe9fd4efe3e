package results

import (
	"bytes"
	"encoding/json"

	"github.com/rowmill/rowmill/internal/textfmt"
)

// SplitReasoning splits a row's output into the model's reasoning and the content after it.
// ok is false if the output has no reasoning, or if the content is not JSON.
func SplitReasoning(output []byte) (reasoning string, content json.RawMessage, ok bool) {
	reasoning, text, ok := splitReasoning(output)
	content = bytes.TrimSpace([]byte(text))
	return reasoning, content, ok && json.Valid(content)
}

func splitReasoning(output []byte) (reasoning, content string, ok bool) {
	if !bytes.Contains(output, []byte(`"reasoning_content"`)) {
		return "", "", false // without the time to decode JSON
	}
	var row struct {
		Reasoning *string `json:"reasoning_content"`
		Content   *string `json:"content"`
	}
	if json.Unmarshal(output, &row) != nil || row.Reasoning == nil || row.Content == nil {
		return "", "", false
	}
	return *row.Reasoning, *row.Content, true
}

// WithoutReasoning returns the content of an output with reasoning, and any other output
// unchanged.
func WithoutReasoning(output string) string {
	if _, content, ok := splitReasoning([]byte(output)); ok {
		return content
	}
	return output
}

// textForExport returns the text of a cell in column c as exports show it. See
// Schema.ContentAsJSON.
func (e *exporter) textForExport(c int, text []byte) []byte {
	if !e.schema.ContentAsJSON || e.columns[c].Name != e.schema.OutputName() {
		return text
	}
	reasoning, content, ok := SplitReasoning(text)
	if !ok {
		return text
	}
	e.row = textfmt.AppendString(append(e.row[:0], `{"reasoning_content":`...), []byte(reasoning))
	e.row = append(append(append(e.row, `,"content":`...), content...), '}')
	return e.row
}

package results

import (
	"bytes"
	"encoding/json"

	"github.com/rowmill/rowmill/spelling"
)

// Reasoning takes the output of a reasoning row apart. ok is false where it is
// none, or its content is no JSON.
func Reasoning(output []byte) (reasoning string, content json.RawMessage, ok bool) {
	var row struct {
		Reasoning *string `json:"reasoning_content"`
		Content   *string `json:"content"`
	}
	if json.Unmarshal(output, &row) != nil || row.Reasoning == nil || row.Content == nil {
		return "", nil, false
	}
	content = bytes.TrimSpace([]byte(*row.Content))
	return *row.Reasoning, content, json.Valid(content)
}

// text is a cell of a column as the schema says that exports have it.
func (e *exporter) text(c int, text []byte) []byte {
	if !e.schema.ContentAsJSON || e.columns[c].Name != e.schema.JobID {
		return text
	}
	reasoning, content, ok := Reasoning(text)
	if !ok {
		return text
	}
	e.row = spelling.AppendString(append(e.row[:0], `{"reasoning_content":`...), []byte(reasoning))
	e.row = append(append(append(e.row, `,"content":`...), content...), '}')
	return e.row
}

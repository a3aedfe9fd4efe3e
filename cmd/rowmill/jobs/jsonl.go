package jobs

import (
	"bytes"
	"encoding/json"
	"fmt"
	"iter"
	"slices"
	"strings"
	"unicode/utf8"
)

// jsonRows reads one JSON string a line. Blank lines are skipped.
func (s *source) jsonRows() iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		n := 0
		for line, err := range s.lines() {
			n++
			if err != nil {
				yield("", err)
				return
			}
			line = bytes.TrimSpace(line)
			if len(line) == 0 {
				continue
			}
			row, err := s.jsonRow(line)
			if err != nil {
				err = fmt.Errorf("%s line %d: %w", s.name, n, err)
			}
			if !yield(row, err) || err != nil {
				return
			}
		}
	}
}

func (s *source) jsonRow(line []byte) (string, error) {
	if !utf8.Valid(line) {
		return "", fmt.Errorf("not UTF-8; convert the file, for example with iconv")
	}
	switch line[0] {
	case '"':
		var row string
		if err := json.Unmarshal(line, &row); err != nil {
			return "", notJSON(err)
		}
		return row, nil
	case '{':
		var object map[string]json.RawMessage
		if err := json.Unmarshal(line, &object); err != nil {
			return "", notJSON(err)
		}
		return "", fmt.Errorf("name the field to run with --column; this object has %s", fieldNames(object))
	}
	if !json.Valid(line) {
		return "", notJSON(json.Unmarshal(line, new(any)))
	}
	return "", fmt.Errorf("must be a JSON string or object; for plain text use --input-format lines")
}

func notJSON(err error) error {
	return fmt.Errorf("no JSON: %w; for plain text use --input-format lines", err)
}

func fieldNames(object map[string]json.RawMessage) string {
	var names []string
	for name := range object {
		names = append(names, name)
	}
	slices.Sort(names)
	if len(names) == 0 {
		return "no fields"
	}
	if len(names) > 10 {
		names = append(names[:10], "…")
	}
	return strings.Join(names, ", ")
}

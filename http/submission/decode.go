package submission

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/http/request"
	"github.com/rowmill/rowmill/internal/spelling"
)

const (
	// maxFieldBytes bounds any field but inputs, as JSON: the largest rule is
	// 1 MiB of text, of which each byte may be written as a \u escape.
	maxFieldBytes = 6<<20 + 2
	// maxNameBytes bounds the name of a field; longer ones are unknown.
	maxNameBytes = 256
	// maxURLBytes bounds a download URL; signed ones have about 2 KiB.
	maxURLBytes = 16 << 10
	// maxReported is how many bad rows or unknown fields an answer names.
	maxReported = 20
)

// filePrefix is what inputs begins with that names an uploaded file.
const filePrefix = "file:"

// The fields of a submission.
const (
	fieldInputs   = "inputs"
	fieldModel    = "model"
	fieldColumn   = "column_name"
	fieldIDColumn = "id_column_name"
	fieldFormat   = "input_format"
	fieldSystem   = "system_prompt"
	fieldSchema   = "json_schema"
	fieldSampling = "sampling_params"
	fieldPriority = "job_priority"
	fieldEstimate = "cost_estimate"
	fieldSeeds    = "random_seed_per_input"
	fieldTruncate = "truncate_rows"
	fieldDedup    = "dedup"
	fieldRepair   = "repair"
	fieldName     = "name"
	fieldText     = "description"
)

// knownFields are those that a submission may have; more are ignored.
var knownFields = map[string]bool{
	fieldInputs: true, fieldModel: true, fieldColumn: true, fieldIDColumn: true, fieldFormat: true, fieldSystem: true,
	fieldSchema: true, fieldSampling: true, fieldPriority: true, fieldEstimate: true, fieldSeeds: true,
	fieldTruncate: true, fieldDedup: true, fieldRepair: true, fieldName: true, fieldText: true,
}

// decode reads a whole body.
func (sub *Submission) decode(s *scanner) error {
	seen := map[string]bool{}
	err := s.fields(func(name string) error {
		known := knownFields[name]
		if seen[name] {
			e := request.Errorf(http.StatusBadRequest, request.CodeInvalid, "%s: stands in the body twice; send it once", name)
			e.Fields = []rowmill.FieldError{{Field: name, Message: "stands in the body twice; send it once"}}
			return e
		}
		if known { // of others there may be millions
			seen[name] = true
		}
		first, err := s.valueOf()
		if err != nil {
			return err
		}
		if name == fieldInputs {
			return sub.readInputs(s, first)
		}
		return sub.readField(s, name, first)
	})
	if err != nil {
		return err
	}
	return s.end()
}

// fields calls field with the name of each field of an object, up to where a
// colon and its value must follow.
func (s *scanner) fields(field func(name string) error) error {
	first, err := s.token()
	if err != nil {
		return err
	}
	if first == '\xEF' {
		return s.syntaxError("it begins with a byte order mark; save it as UTF-8 without one")
	}
	if first != '{' {
		return s.syntaxError("it must be an object, such as {\"inputs\": [\"…\"]}")
	}
	for began := false; ; began = true {
		b, err := s.token()
		if err != nil {
			return err
		}
		if b == '}' {
			return nil
		}
		if began {
			if b != ',' {
				return s.syntaxError("a comma or } must stand here")
			}
			if b, err = s.token(); err != nil {
				return err
			}
		}
		if b != '"' {
			return s.syntaxError("a field's name in quotes must stand here")
		}
		name, err := fieldNameOf(s)
		if err == nil {
			err = field(name)
		}
		if err != nil {
			return err
		}
	}
}

// valueOf reads the colon behind a field's name and returns the first byte of
// its value.
func (s *scanner) valueOf() (first byte, err error) {
	b, err := s.token()
	if err != nil {
		return 0, err
	}
	if b != ':' {
		return 0, s.syntaxError("a colon must follow the name of a field")
	}
	return s.token()
}

// fieldNameOf reads a name whose opening quote is consumed. A name too long
// to be known is returned as its mere beginning.
func fieldNameOf(s *scanner) (string, error) {
	raw, err := s.text(maxNameBytes)
	if errors.Is(err, errTooLong) {
		return "(a name of more than 256 bytes)", nil
	}
	if err != nil {
		return "", err
	}
	return unquote(raw)
}

// unquote decodes the inside of a JSON string that the scanner checked.
func unquote(raw []byte) (text string, err error) {
	quoted := make([]byte, 0, len(raw)+2)
	quoted = append(append(append(quoted, '"'), raw...), '"')
	if err := json.Unmarshal(quoted, &text); err != nil {
		return "", fmt.Errorf("decode a checked string: %w", err)
	}
	return text, nil
}

func (sub *Submission) readField(s *scanner, name string, first byte) error {
	raw, err := s.value(first, maxFieldBytes)
	known := knownFields[name]
	switch {
	case errors.Is(err, errTooLong) && known:
		sub.problems.Add(name, "is longer than %d bytes of JSON", maxFieldBytes)
	case errors.Is(err, errTooLong): // ignored like any unknown field
	case err != nil:
		return err
	case known && string(raw) != "null":
		sub.fields[name] = append(json.RawMessage(nil), raw...)
	}
	if !known {
		sub.ignore(name)
	}
	return nil
}

// ignore notes a field that nobody knows.
func (sub *Submission) ignore(name string) {
	if len(sub.unknown) < maxReported {
		sub.unknown = append(sub.unknown, spelling.Shorten(name, 64))
	} else {
		sub.more++
	}
}

func (sub *Submission) readInputs(s *scanner, first byte) error {
	switch first {
	case '[':
		sub.inline = true
		return sub.readRows(s)
	case '"':
		raw, err := s.text(maxURLBytes)
		if errors.Is(err, errTooLong) {
			sub.problems.Add(fieldInputs, "is a URL of more than %d bytes; send a shorter one", maxURLBytes)
			return nil
		}
		if err != nil {
			return err
		}
		if sub.url, err = unquote(raw); err == nil && sub.url == "" {
			sub.problems.Add(fieldInputs, "is an empty string; send rows, the URL of a file of CSV, Parquet or JSON Lines, or file: and the id of one that was uploaded")
		}
		if id, isFile := strings.CutPrefix(sub.url, filePrefix); isFile {
			if sub.url, sub.file = "", id; id == "" {
				sub.problems.Add(fieldInputs, "names no file; send file: and the id of one that was uploaded")
			}
		}
		return err
	}
	raw, err := s.value(first, maxFieldBytes)
	if err != nil && !errors.Is(err, errTooLong) {
		return err
	}
	if string(raw) != "null" { // a null is an absent field
		sub.problems.Add(fieldInputs, "must be an array of strings (or objects for a Function), or as a string the URL of a file of CSV, Parquet or JSON Lines, or file: and the id of one that was uploaded")
	}
	return nil
}

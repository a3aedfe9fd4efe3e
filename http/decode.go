package http

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	nethttp "net/http"

	"github.com/rowmill/rowmill"
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

// The fields of a submission.
const (
	fieldInputs   = "inputs"
	fieldModel    = "model"
	fieldColumn   = "column_name"
	fieldIDColumn = "id_column_name"
	fieldSystem   = "system_prompt"
	fieldSchema   = "json_schema"
	fieldSampling = "sampling_params"
	fieldPriority = "job_priority"
	fieldEstimate = "cost_estimate"
	fieldSeeds    = "random_seed_per_input"
	fieldTruncate = "truncate_rows"
	fieldName     = "name"
	fieldText     = "description"
)

var knownFields = map[string]bool{
	fieldInputs: true, fieldModel: true, fieldColumn: true, fieldIDColumn: true, fieldSystem: true,
	fieldSchema: true, fieldSampling: true, fieldPriority: true, fieldEstimate: true, fieldSeeds: true,
	fieldTruncate: true, fieldName: true, fieldText: true,
}

// A submission is a decoded body. Its rows are in the sink it was decoded
// with.
type submission struct {
	fields  map[string]json.RawMessage // known fields but inputs; nulls are left out
	unknown []string                   // names of unknown fields, at most maxReported
	more    int                        // further ones

	inline   bool     // inputs is an array
	rows     rowsSeen // what its rows are like
	url      string   // inputs is a string
	problems problems
}

// decodeSubmission reads a body with its fields in any order, handing rows to
// the sink one at a time. Broken rules of single fields are collected in the
// submission; an error means that the body could not be read on: it is not
// JSON, a known field stands in it twice, or a row could not be stored.
func decodeSubmission(body io.Reader, sink *rowSink) (*submission, error) {
	s := newScanner(body)
	sub := &submission{fields: map[string]json.RawMessage{}}
	first, err := s.token()
	if err != nil {
		return nil, err
	}
	if first != '{' {
		return nil, s.syntaxError("it must be an object, such as {\"inputs\": [\"…\"]}")
	}
	seen := map[string]bool{}
	for began := false; ; began = true {
		b, err := s.token()
		if err != nil {
			return nil, err
		}
		if b == '}' {
			break
		}
		if began {
			if b != ',' {
				return nil, s.syntaxError("a comma or } must stand here")
			}
			if b, err = s.token(); err != nil {
				return nil, err
			}
		}
		if b != '"' {
			return nil, s.syntaxError("a field's name in quotes must stand here")
		}
		name, err := fieldNameOf(s)
		if err != nil {
			return nil, err
		}
		if seen[name] {
			e := errorf(nethttp.StatusBadRequest, codeInvalid, "%s: stands in the body twice; send it once", name)
			e.fields = []rowmill.FieldError{{Field: name, Message: "stands in the body twice; send it once"}}
			return nil, e
		}
		if knownFields[name] { // of others there may be millions
			seen[name] = true
		}
		if b, err = s.token(); err != nil {
			return nil, err
		}
		if b != ':' {
			return nil, s.syntaxError("a colon must follow the name of a field")
		}
		if b, err = s.token(); err != nil {
			return nil, err
		}
		if name == fieldInputs {
			err = sub.readInputs(s, b, sink)
		} else {
			err = sub.readField(s, name, b)
		}
		if err != nil {
			return nil, err
		}
	}
	return sub, s.end()
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

func (sub *submission) readField(s *scanner, name string, first byte) error {
	raw, err := s.value(first, maxFieldBytes)
	known := knownFields[name]
	switch {
	case errors.Is(err, errTooLong) && known:
		sub.problems.add(name, "is longer than %d bytes of JSON", maxFieldBytes)
	case errors.Is(err, errTooLong): // ignored like any unknown field
	case err != nil:
		return err
	case known && string(raw) != "null":
		sub.fields[name] = append(json.RawMessage(nil), raw...)
	}
	if !known {
		if len(sub.unknown) < maxReported {
			sub.unknown = append(sub.unknown, shorten(name, 64))
		} else {
			sub.more++
		}
	}
	return nil
}

func (sub *submission) readInputs(s *scanner, first byte, sink *rowSink) error {
	switch first {
	case '[':
		sub.inline = true
		return sub.readRows(s, sink)
	case '"':
		raw, err := s.text(maxURLBytes)
		if errors.Is(err, errTooLong) {
			sub.problems.add(fieldInputs, "is a URL of more than %d bytes; send a shorter one", maxURLBytes)
			return nil
		}
		if err != nil {
			return err
		}
		if sub.url, err = unquote(raw); err == nil && sub.url == "" {
			sub.problems.add(fieldInputs, "is an empty string; send rows, or the URL of a CSV or Parquet file")
		}
		return err
	}
	raw, err := s.value(first, maxFieldBytes)
	if err != nil && !errors.Is(err, errTooLong) {
		return err
	}
	if string(raw) != "null" { // a null is an absent field
		sub.problems.add(fieldInputs, "must be an array of strings (or objects for a Function), or the URL of a CSV or Parquet file as a string")
	}
	return nil
}

package submission

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/http/request"
	"github.com/rowmill/rowmill/internal/textfmt"
)

const (
	// maxFieldBytes limits the JSON text of any field except inputs. The largest field has
	// 1 MiB of text, and a client may write each byte of the text as an escape of 6 bytes.
	maxFieldBytes = 6<<20 + 2
	// maxNameBytes limits the name of a field. All known names are shorter.
	maxNameBytes = 256
	// maxURLBytes limits a download URL. Signed URLs have about 2 KiB.
	maxURLBytes = 16 << 10
	// maxReported limits the bad rows or unknown fields that an answer names.
	maxReported = 20
)

// filePrefix and jobPrefix are the beginning of the field inputs if inputs names an uploaded file,
// or a job with a stored input.
const (
	filePrefix = "file:"
	jobPrefix  = "job:"
)

// decode reads the whole body of a submission: the rows, and the other fields as JSON
// texts.
func (sub *Submission) decode(s *jsonScanner) error {
	seen := map[string]bool{}
	err := s.readObjectMembers(func(name string) error {
		isKnown := slices.ContainsFunc(knownFields, func(f field) bool { return f.name == name })
		if seen[name] {
			e := request.Errorf(http.StatusBadRequest, request.CodeInvalid, "%s: occurs twice in the body; send it once", name)
			e.Fields = []rowmill.FieldError{{Field: name, Message: "occurs twice in the body; send it once"}}
			return e
		}
		if isKnown { // do not remember unknown names: there may be millions
			seen[name] = true
		}
		first, err := s.readValueStart()
		if err != nil {
			return err
		}
		if name == fieldInputs {
			return sub.readInputs(s, first)
		}
		return sub.readField(s, name, first, isKnown)
	})
	if err != nil {
		return err
	}
	return s.expectEnd()
}

// readObjectMembers reads a JSON object and calls field with the name of each member. field must
// read the colon and the value that follow the name.
func (s *jsonScanner) readObjectMembers(field func(name string) error) error {
	first, err := s.nextNonSpace()
	if err != nil {
		return err
	}
	if first == '\xEF' {
		return s.syntaxError("the body begins with a byte order mark; send UTF-8 without this mark")
	}
	if first != '{' {
		return s.syntaxError("the body must be an object, such as {\"inputs\": [\"…\"]}")
	}
	for began := false; ; began = true {
		b, err := s.nextNonSpace()
		if err != nil {
			return err
		}
		if b == '}' {
			return nil
		}
		if began {
			if b != ',' {
				return s.syntaxError("a comma or } is expected here")
			}
			if b, err = s.nextNonSpace(); err != nil {
				return err
			}
		}
		if b != '"' {
			return s.syntaxError("a field's name in quotes is expected here")
		}
		name, err := readFieldName(s)
		if err == nil {
			err = field(name)
		}
		if err != nil {
			return err
		}
	}
}

// readValueStart reads the colon after a field's name, and returns the first byte of the
// value.
func (s *jsonScanner) readValueStart() (first byte, err error) {
	b, err := s.nextNonSpace()
	if err != nil {
		return 0, err
	}
	if b != ':' {
		return 0, s.syntaxError("a colon must follow the name of a field")
	}
	return s.nextNonSpace()
}

// readFieldName reads the name of a field after the opening quote. If the name is too
// long to be a known name, it returns a placeholder.
func readFieldName(s *jsonScanner) (string, error) {
	raw, err := s.readString(maxNameBytes)
	if errors.Is(err, errTooLong) {
		return "(a name of more than 256 bytes)", nil
	}
	if err != nil {
		return "", err
	}
	return unquote(raw)
}

// unquote decodes raw, the text between the quotes of a JSON string. The scanner must
// have checked the text.
func unquote(raw []byte) (text string, err error) {
	quoted := make([]byte, 0, len(raw)+2)
	quoted = append(append(append(quoted, '"'), raw...), '"')
	if err := json.Unmarshal(quoted, &text); err != nil {
		return "", fmt.Errorf("decode a string that the scanner has checked: %w", err)
	}
	return text, nil
}

// readField reads the value of a field other than inputs. first is the first byte of
// the value, which was already read.
func (sub *Submission) readField(s *jsonScanner, name string, first byte, isKnown bool) error {
	raw, err := s.readValue(first, maxFieldBytes)
	switch {
	case errors.Is(err, errTooLong) && isKnown:
		sub.problems.Add(name, "is longer than %d bytes of JSON", maxFieldBytes)
	case errors.Is(err, errTooLong): // an unknown field is ignored
	case err != nil:
		return err
	case isKnown && string(raw) != "null":
		sub.fields[name] = append(json.RawMessage(nil), raw...)
	}
	if !isKnown {
		sub.addUnknown(name)
	}
	return nil
}

// addUnknown stores the name of an unknown field for the warning about unknown fields.
func (sub *Submission) addUnknown(name string) {
	if len(sub.unknown) < maxReported {
		sub.unknown = append(sub.unknown, textfmt.Shorten(name, 64))
	} else {
		sub.more++
	}
}

// readInputs reads the value of the field inputs. first is the first byte of the value,
// which was already read.
func (sub *Submission) readInputs(s *jsonScanner, first byte) error {
	switch first {
	case '[':
		sub.inline = true
		return sub.readRows(s)
	case '"':
		raw, err := s.readString(maxURLBytes)
		if errors.Is(err, errTooLong) {
			sub.problems.Add(fieldInputs, "is a URL of more than %d bytes; send a shorter one", maxURLBytes)
			return nil
		}
		if err != nil {
			return err
		}
		if sub.url, err = unquote(raw); err == nil && sub.url == "" {
			sub.problems.Add(fieldInputs, "is an empty string; send rows, the URL of a file of CSV, Parquet or JSON Lines, or file: and the id of an uploaded file")
		}
		if id, isFile := strings.CutPrefix(sub.url, filePrefix); isFile {
			if sub.url, sub.file = "", id; id == "" {
				sub.problems.Add(fieldInputs, "names no file; send file: and the id of an uploaded file")
			}
		}
		if id, isJob := strings.CutPrefix(sub.url, jobPrefix); isJob {
			if sub.url, sub.fromJob = "", id; id == "" {
				sub.problems.Add(fieldInputs, "names no job; send job: and the id of a job")
			}
		}
		return err
	}
	raw, err := s.readValue(first, maxFieldBytes)
	if err != nil && !errors.Is(err, errTooLong) {
		return err
	}
	if string(raw) != "null" { // null means absent
		sub.problems.Add(fieldInputs, "must be an array of strings (for a Function also of objects), or a string: the URL of a file of CSV, Parquet or JSON Lines, or file: and the id of an uploaded file")
	}
	return nil
}

package input

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/internal/textfmt"
)

// jsonRowReader is the Reader for JSON Lines: all lines are objects, or all lines are
// strings; it skips blank lines. A string is a row. For an object, a column is the name
// of a member, or a path such as messages.0.content. A path has names of members and
// positions in arrays, counted from 0, separated by dots. A value becomes text like a
// cell of a table: a string as it is, null as empty text, and other values as JSON.
type jsonRowReader struct {
	rowCounter
	src      *textReader
	lines    *lineReader
	paths    []string // paths of the columns that make the text
	required []bool   // required[i] is true if every row must have paths[i]
	id       string   // path of the ID; empty for none
	columns  *columnSelection
	object   []byte       // the current line: a JSON object or a JSON string
	found    int          // number of paths that the current row has
	strings  bool         // true if the lines are strings; known after the first row
	compact  bytes.Buffer // buffer for formatValue
}

func openJSON(src *textReader, opts Options) (Reader, error) {
	r := &jsonRowReader{
		rowCounter: newRowCounter(opts), src: src, lines: newLines(src, opts.Limits.MaxRecordBytes), id: opts.IDColumn,
		columns: &columnSelection{fields: opts.Fields},
	}
	r.rowPosition = r.lines.describePosition
	if opts.Fields == nil {
		if opts.Column != "" && opts.Column == opts.IDColumn {
			return nil, invalidFileError("column_name and id_column_name are the same member, %s. Name two different ones.", quoteName(opts.Column))
		}
		r.paths, r.required, r.columns.text = []string{opts.Column}, []bool{true}, []int{0}
		return r, nil
	}
	r.paths, r.required = opts.Fields.Names, opts.Fields.Required
	r.columns.values = make([]string, len(r.paths))
	for i := range r.paths {
		r.columns.text, r.columns.fieldPositions = append(r.columns.text, i), append(r.columns.fieldPositions, i)
	}
	return r, nil
}

func (r *jsonRowReader) Next(row *rowmill.Row) error {
	if err := r.readNonBlankLine(); err != nil {
		return err
	}
	if err := r.countRow(row); err != nil {
		return err
	}
	if r.strings {
		row.Text, row.ID, row.Fields = r.formatValue(r.object), rowmill.ID{}, ""
		return r.checkSize("text", int64(len(row.Text)))
	}
	r.found = 0
	var err error
	if row.Text, err = r.columns.render(&r.rowCounter, r.readCell); err != nil {
		return err
	}
	// A later row may lack all fields, but a file whose first row lacks them is
	// probably the wrong file.
	if r.found == 0 && r.rows == 1 {
		return invalidFileError("The first object of the JSON Lines input has no member that the prompt uses. The prompt uses %s; the object has %s.",
			describeColumns(r.paths), r.describeMembers())
	}
	row.ID, row.Fields = rowmill.ID{}, r.columns.keptFields
	if r.id == "" {
		return nil
	}
	if value, there := lookupPath(r.object, r.id); there && string(value) != "null" {
		if row.ID = (rowmill.ID{Kind: rowmill.IDString}); value[0] == '{' || value[0] == '[' {
			return invalidFileError("The id of row %d%s, which id_column_name names, is not a single value. Ids must be strings or numbers.", r.rows-1, r.rowPosition())
		}
		row.ID.Text = r.formatValue(value)
		return r.checkSize("id", int64(len(row.ID.Text)))
	}
	return nil
}

// readNonBlankLine reads the next non-blank line into r.object and checks the line.
func (r *jsonRowReader) readNonBlankLine() error {
	for {
		line, whole, err := r.lines.readLine()
		switch {
		case errors.Is(err, io.EOF) && r.src.file.err == nil:
			return r.checkEnd("The JSON Lines input has no rows.")
		case err != nil:
			return r.src.convertReadError(err)
		case !whole:
			return invalidFileError("Line %d of the JSON Lines input has more than %d bytes. Shorten it.", r.lines.number, r.limits.MaxRecordBytes)
		case !utf8.Valid(line):
			return invalidFileError("Line %d of the JSON Lines input is not UTF-8. Convert the file to UTF-8.", r.lines.number)
		}
		if r.object = bytes.TrimSpace(line); len(r.object) > 0 {
			return r.checkLine()
		}
	}
}

// checkLine returns an error if the current line is not valid JSON, or if one line is an
// object and another a string. It also returns an error if the lines are strings but
// the client named columns.
func (r *jsonRowReader) checkLine() error {
	isString := r.object[0] == '"'
	if r.rows == 0 {
		r.strings = isString
	}
	switch valid := json.Valid(r.object); {
	case !valid || r.object[0] != '{' && !isString:
		return invalidFileError("Line %d of the JSON Lines input is not a JSON object. Write one object, or one string, on each line.", r.lines.number)
	case textfmt.HasLoneSurrogate(r.object):
		return invalidFileError("Line %d of the JSON Lines input has half of a surrogate pair, such as \\ud800, which is no character. Remove it.", r.lines.number)
	case isString != r.strings:
		return invalidFileError("Line %d of the JSON Lines input is not a JSON %s, but line 1 is. Write lines of one kind.", r.lines.number, map[bool]string{true: "string", false: "object"}[r.strings])
	case r.strings && (r.id != "" || len(r.paths) > 1 || r.paths[0] != ""):
		return errStrings
	}
	return nil
}

// errStrings means that the client named columns, but the lines are strings.
var errStrings = invalidFileError("The JSON Lines input has strings, which have no columns. Leave out column_name, id_column_name and prompt, or write an object on each line.")

// readCell returns the text of a column of the current row. column is a position in paths.
func (r *jsonRowReader) readCell(column int) (string, error) {
	path := r.paths[column]
	if path == "" {
		return "", invalidFileError("The input is JSON Lines. Set column_name to the member with the text of each row; the first object has %s.", r.describeMembers())
	}
	value, there := lookupPath(r.object, path)
	switch {
	case there:
		r.found++
		return r.formatValue(value), nil
	case r.required[column]:
		return "", invalidFileError("Line %d of the JSON Lines input has no member %s. It has %s.", r.lines.number, quoteName(path), r.describeMembers())
	}
	return "", nil
}

// formatValue converts a JSON value to text: a string loses its quotes, null becomes
// empty, and other values become compact JSON.
func (r *jsonRowReader) formatValue(value []byte) string {
	switch text, isText := textfmt.DecodeString(value); {
	case isText:
		return text
	case string(value) == "null":
		return ""
	}
	r.compact.Reset()
	if json.Compact(&r.compact, value) != nil {
		return string(value) // cannot happen: value is part of valid JSON
	}
	return r.compact.String()
}

// describeMembers lists the members of the current object, for an error message.
func (r *jsonRowReader) describeMembers() string {
	var names []string
	textfmt.VisitMembers(r.object, func(name string, _, _ []byte) { names = append(names, name) })
	return strings.Replace(strings.Replace(describeColumns(names), "one column", "one member", 1), "the columns", "the members", 1)
}

func (r *jsonRowReader) IDType() rowmill.IDType {
	if r.id == "" {
		return rowmill.IDType{}
	}
	return rowmill.IDType{IDKind: rowmill.IDString}
}

func (r *jsonRowReader) Close() error {
	r.src.close()
	return nil
}

// lookupPath returns the value at a path within a JSON value. value must be valid JSON.
// If a member's name contains dots, the whole name takes precedence over a path.
func lookupPath(value []byte, path string) (found []byte, ok bool) {
	switch value[0] {
	case '{':
		for end := len(path); end > 0; end = strings.LastIndexByte(path[:end], '.') {
			inner, has := lookupMember(value, path[:end])
			if has && end == len(path) {
				return inner, true
			}
			if has {
				if found, ok = lookupPath(inner, path[end+1:]); ok {
					return found, true
				}
			}
		}
	case '[':
		position, rest, deeper := strings.Cut(path, ".")
		n, err := strconv.Atoi(position)
		if err != nil || n < 0 {
			return nil, false
		}
		inner, has := lookupElement(value, n)
		if !has || !deeper {
			return inner, has
		}
		return lookupPath(inner, rest)
	}
	return nil, false
}

// lookupMember returns the value of the member with the wanted name. If the name appears
// several times, the last value counts.
func lookupMember(object []byte, wanted string) (found []byte, ok bool) {
	textfmt.VisitMembers(object, func(name string, _, value []byte) {
		if name == wanted {
			found, ok = value, true
		}
	})
	return found, ok
}

// lookupElement returns the n-th value of a JSON array, counted from 0, or false if the array
// is too short. array must be valid JSON.
func lookupElement(array []byte, n int) (found []byte, ok bool) {
	textfmt.VisitElements(array, func(value []byte) {
		if n == 0 {
			found, ok = value, true
		}
		n--
	})
	return found, ok
}

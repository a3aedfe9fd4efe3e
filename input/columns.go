package input

import (
	"fmt"
	"slices"
	"strings"
)

// An error message lists at most listedColumns columns, and shows at most listedName
// characters of each name.
const (
	listedColumns = 50
	listedName    = 64
)

// columnSelection says which columns of a file are read, and holds the values of the current
// row.
type columnSelection struct {
	text []int // positions of the columns that make the text; each appears once
	id   int   // position of the ID column, or -1

	textName string // name of the column that makes the text; empty if there are fields

	fields         *PromptFields // nil if a single column is the text
	fieldPositions []int         // fieldPositions[i] is the position of column text[i] in fields.Names
	values         []string      // values of the current row by field; empty for a missing column
	keptFields     string        // result of PromptFields.RowFields for the current row
}

// selectColumns finds the text and ID columns by name. names lists all columns of the
// file.
func selectColumns(names []string, opts Options) (*columnSelection, error) {
	if opts.Fields != nil {
		return selectFields(names, opts)
	}
	text, id, err := findColumns(names, opts)
	if err != nil {
		return nil, err
	}
	return &columnSelection{text: []int{text}, id: id, textName: names[text]}, nil
}

// selectFields finds the columns for the fields of a Function, and the ID column.
func selectFields(names []string, opts Options) (*columnSelection, error) {
	s := &columnSelection{id: -1, fields: opts.Fields, values: make([]string, len(opts.Fields.Names))}
	if opts.IDColumn != "" {
		var err error
		if s.id, err = findColumn(names, opts.IDColumn, "id_column_name"); err != nil {
			return nil, err
		}
	}
	for i, name := range opts.Fields.Names {
		if !opts.Fields.Required[i] && countName(names, name) == 0 {
			continue
		}
		at, err := findColumn(names, name, "the prompt")
		if err != nil {
			return nil, err
		}
		s.text, s.fieldPositions = append(s.text, at), append(s.fieldPositions, i)
	}
	if len(s.text) == 0 {
		return nil, invalidFileError("The input file has no column that the prompt uses. The prompt uses %s; the file has %s.",
			describeColumns(opts.Fields.Names), describeColumns(names))
	}
	return s, nil
}

// render returns the text of the current row. value(i) must return the row's value in
// the column at position s.text[i].
func (s *columnSelection) render(c *rowCounter, value func(column int) (string, error)) (string, error) {
	for i := range s.text {
		text, err := value(i)
		if err != nil {
			return "", err
		}
		if s.fields == nil {
			return text, c.checkSize("text", int64(len(text)))
		}
		s.values[s.fieldPositions[i]] = text
	}
	if err := c.checkSize("prompt", s.fields.Size(s.values)); err != nil {
		return "", err
	}
	// The fields can be long although the prompt does not show them.
	if s.keptFields = s.fields.RowFields(s.values); int64(len(s.keptFields)) > c.limits.MaxRecordBytes {
		return "", invalidFileError("The fields of row %d%s have %d bytes, more than %d. Shorten them.", c.rows-1, c.rowPosition(), len(s.keptFields), c.limits.MaxRecordBytes)
	}
	return s.fields.Render(s.values), nil
}

// findColumns returns the positions of the text column and the ID column. id is -1 if
// the client named no ID column.
func findColumns(names []string, opts Options) (text, id int, err error) {
	if len(names) == 0 {
		return 0, 0, invalidFileError("The input file has no columns.")
	}
	id = -1
	if opts.IDColumn != "" {
		if id, err = findColumn(names, opts.IDColumn, "id_column_name"); err != nil {
			return 0, 0, err
		}
	}
	if opts.Column != "" {
		if text, err = findColumn(names, opts.Column, "column_name"); err != nil {
			return 0, 0, err
		}
	} else if countName(names, names[0]) > 1 && names[0] != "" {
		return 0, 0, ambiguousColumn(names, names[0], "The first column, which is read because column_name is not given,")
	}
	if text == id && opts.Column == "" {
		return 0, 0, invalidFileError("The first column, %s, is the id column, so there is no text to read. Name the text column in column_name; the file has %s.",
			quoteName(names[0]), describeColumns(names))
	}
	if text == id {
		return 0, 0, invalidFileError("column_name and id_column_name are the same column, %s. Name two different ones; the file has %s.",
			quoteName(names[id]), describeColumns(names))
	}
	return text, id, nil
}

// findColumn returns the position of the column with a name. namedBy says in the error
// message who named the column.
func findColumn(names []string, name, namedBy string) (int, error) {
	switch countName(names, name) {
	case 1:
		return slices.Index(names, name), nil
	case 0:
		return 0, invalidFileError("The input file has no column %s, which %s names. %sIt has %s.", quoteName(name), namedBy, suggestColumn(names, name), describeColumns(names))
	}
	return 0, ambiguousColumn(names, name, "The column that "+namedBy+" names,")
}

// ambiguousColumn returns the error for a name that several columns have.
func ambiguousColumn(names []string, name, subject string) error {
	var at []string
	for i, other := range names {
		if other == name {
			at = append(at, fmt.Sprint(i+1))
		}
	}
	return invalidFileError("%s %s, appears %d times (columns %s). Rename all but one.", subject, quoteName(name), len(at), strings.Join(at, ", "))
}

// suggestColumn suggests a column whose name differs from name only in case or blanks. It
// returns an empty string if there is none.
func suggestColumn(names []string, name string) string {
	for _, other := range names {
		if strings.EqualFold(strings.TrimSpace(other), strings.TrimSpace(name)) {
			return fmt.Sprintf("Did you mean %s? ", quoteName(other))
		}
	}
	return ""
}

func countName(names []string, name string) (n int) {
	for _, other := range names {
		if other == name {
			n++
		}
	}
	return n
}

// describeColumns returns the column names as text for an error message.
func describeColumns(names []string) string {
	var b strings.Builder
	if b.WriteString("the columns "); len(names) == 1 {
		b.Reset()
		b.WriteString("one column, ")
	}
	for i, name := range names[:min(len(names), listedColumns)] {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(quoteName(name))
	}
	if more := len(names) - listedColumns; more > 0 {
		fmt.Fprintf(&b, " and %d more", more)
	}
	return b.String()
}

func quoteName(name string) string {
	if runes := []rune(name); len(runes) > listedName {
		name = string(runes[:listedName]) + "…"
	}
	return fmt.Sprintf("%q", name)
}

package input

import (
	"fmt"
	"slices"
	"strings"
)

// Messages list at most listedColumns columns, and at most listedName
// characters of each name.
const (
	listedColumns = 50
	listedName    = 64
)

// selection says which columns of a file to read, and holds the values of the
// current row.
type selection struct {
	text []int // positions of the columns that make the text, all different
	id   int   // position of the ID column, or -1

	fields     *Fields  // nil if a single column is the text
	slots      []int    // for each column in text, its position in fields.Names
	values     []string // values of a row, by field; empty if the file has no such column
	keptFields string   // result of Fields.Keep for the current row
}

// selectColumns finds the columns to read by their names.
func selectColumns(names []string, opts Options) (*selection, error) {
	if opts.Fields != nil {
		return selectFields(names, opts)
	}
	text, id, err := findColumns(names, opts)
	return &selection{text: []int{text}, id: id}, err
}

func selectFields(names []string, opts Options) (*selection, error) {
	s := &selection{id: -1, fields: opts.Fields, values: make([]string, len(opts.Fields.Names))}
	if opts.IDColumn != "" {
		var err error
		if s.id, err = findColumn(names, opts.IDColumn, "id_column_name"); err != nil {
			return nil, err
		}
	}
	for i, name := range opts.Fields.Names {
		if !opts.Fields.Required[i] && count(names, name) == 0 {
			continue
		}
		at, err := findColumn(names, name, "a required input of the Function")
		if err != nil {
			return nil, err
		}
		s.text, s.slots = append(s.text, at), append(s.slots, i)
	}
	if len(s.text) == 0 {
		return nil, invalid("The input file has no column that the Function takes. Its inputs are %s; the file has %s.",
			list(opts.Fields.Names), list(names))
	}
	return s, nil
}

// render makes a row's text. value returns the value of the i-th column in
// text.
func (s *selection) render(c *counter, value func(column int) (string, error)) (string, error) {
	for i := range s.text {
		text, err := value(i)
		if err != nil {
			return "", err
		}
		if s.fields == nil {
			return text, c.checkSize("text", int64(len(text)))
		}
		s.values[s.slots[i]] = text
	}
	if err := c.checkSize("prompt", s.fields.Size(s.values)); err != nil {
		return "", err
	}
	if s.keptFields = s.fields.Keep(s.values); int64(len(s.keptFields)) > c.limits.MaxRecordBytes { // fields can be long even if no prompt shows them
		return "", invalid("The fields of row %d%s have %d bytes, more than %d. Shorten them.", c.rows-1, c.where(), len(s.keptFields), c.limits.MaxRecordBytes)
	}
	return s.fields.Render(s.values), nil
}

// findColumns finds the text and ID columns by name. id is -1 without an ID column.
func findColumns(names []string, opts Options) (text, id int, err error) {
	if len(names) == 0 {
		return 0, 0, invalid("The input file has no columns.")
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
	} else if count(names, names[0]) > 1 && names[0] != "" {
		return 0, 0, ambiguous(names, names[0], "The first column, which is read because column_name is not given,")
	}
	if text == id && opts.Column == "" {
		return 0, 0, invalid("The first column, %s, is the id column, so there is no text to read. Name the text column in column_name; the file has %s.",
			quoteName(names[0]), list(names))
	}
	if text == id {
		return 0, 0, invalid("column_name and id_column_name are the same column, %s. Name two different ones; the file has %s.",
			quoteName(names[id]), list(names))
	}
	return text, id, nil
}

func findColumn(names []string, name, field string) (int, error) {
	switch count(names, name) {
	case 1:
		return slices.Index(names, name), nil
	case 0:
		return 0, invalid("The input file has no column %s, which %s names. %sIt has %s.", quoteName(name), field, hint(names, name), list(names))
	}
	return 0, ambiguous(names, name, "The column that "+field+" names,")
}

func ambiguous(names []string, name, what string) error {
	var at []string
	for i, other := range names {
		if other == name {
			at = append(at, fmt.Sprint(i+1))
		}
	}
	return invalid("%s %s, appears %d times (columns %s). Rename all but one.", what, quoteName(name), len(at), strings.Join(at, ", "))
}

// hint suggests a name if name differs only in case or blanks.
func hint(names []string, name string) string {
	for _, other := range names {
		if strings.EqualFold(strings.TrimSpace(other), strings.TrimSpace(name)) {
			return fmt.Sprintf("Did you mean %s? ", quoteName(other))
		}
	}
	return ""
}

func count(names []string, name string) (n int) {
	for _, other := range names {
		if other == name {
			n++
		}
	}
	return n
}

// list lists the columns for a message.
func list(names []string) string {
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

package input

import (
	"fmt"
	"slices"
	"strings"
)

// In messages, at most so many columns are listed, and so many characters of
// each name.
const (
	listedColumns = 50
	listedName    = 64
)

// choose finds the text and id columns among a file's column names. id is -1
// without an id column.
func choose(names []string, opts Options) (text, id int, err error) {
	if len(names) == 0 {
		return 0, 0, invalid("The input file has no columns.")
	}
	id = -1
	if opts.IDColumn != "" {
		if id, err = find(names, opts.IDColumn, "id_column_name"); err != nil {
			return 0, 0, err
		}
	}
	if opts.Column != "" {
		if text, err = find(names, opts.Column, "column_name"); err != nil {
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

func find(names []string, name, field string) (int, error) {
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
	return invalid("%s %s, is there %d times (columns %s). Rename all but one.", what, quoteName(name), len(at), strings.Join(at, ", "))
}

// hint guesses what went wrong with a name that is not there.
func hint(names []string, name string) string {
	for _, other := range names {
		if strings.EqualFold(strings.TrimSpace(other), strings.TrimSpace(name)) {
			return fmt.Sprintf("Did you mean %s? ", quoteName(other))
		}
	}
	if len(names) == 1 && strings.ContainsAny(names[0], ";\t|") {
		return "Its header has no comma: separate the columns by commas. "
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

// list names the columns for a message.
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

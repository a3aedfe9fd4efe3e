package terminal

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
	"unicode/utf8"
)

// A RowWriter is a function that writes one line of a table.
type RowWriter func(cells ...string)

// WriteTable calls rows and prints the lines with aligned columns. It replaces control
// characters, which could change the terminal or the columns, by spaces.
func WriteTable(w io.Writer, writeRows func(row RowWriter)) error {
	tabs := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	writeRows(func(cells ...string) {
		for i, cell := range cells {
			if i > 0 {
				fmt.Fprint(tabs, "\t")
			}
			fmt.Fprint(tabs, strings.ReplaceAll(SanitizeLine(cell), "\t", " "))
		}
		fmt.Fprintln(tabs)
	})
	return tabs.Flush()
}

// maxColumnLines limits the lines of a text in WriteColumns.
const maxColumnLines = 8

// WriteColumns writes texts side by side, in columns of equal width. It wraps a text to the width
// of its column, and shortens a long text.
func WriteColumns(w io.Writer, width int, texts ...string) {
	const gap = " │ "
	column := max((width-3*(len(texts)-1))/len(texts), 8)
	lines, height := make([][]string, len(texts)), 0
	for i, text := range texts {
		lines[i] = wrapText(text, column)
		height = max(height, len(lines[i]))
	}
	for y := range height {
		cells := make([]string, len(texts))
		for i := range texts {
			if y < len(lines[i]) {
				cells[i] = lines[i][y]
			}
			cells[i] += strings.Repeat(" ", column-utf8.RuneCountInString(cells[i]))
		}
		fmt.Fprintln(w, strings.TrimRight(strings.Join(cells, gap), " "))
	}
}

// wrapText splits a text into at most maxColumnLines lines of at most width characters, at spaces
// where possible.
func wrapText(text string, width int) (lines []string) {
	for _, paragraph := range strings.Split(text, "\n") {
		rest := []rune(strings.ReplaceAll(SanitizeLine(paragraph), "\t", " "))
		for first := true; first || len(rest) > 0; first = false {
			if len(lines) == maxColumnLines {
				lines[maxColumnLines-1] = "…"
				return lines
			}
			end := min(width, len(rest))
			for at := end; at > 0 && end < len(rest); at-- {
				if rest[at] == ' ' {
					end = at
					break
				}
			}
			lines = append(lines, string(rest[:end]))
			for rest = rest[end:]; len(rest) > 0 && rest[0] == ' '; {
				rest = rest[1:]
			}
		}
	}
	return lines
}

// FillEmptyCells replaces empty cells by a dash, and returns the cells.
func FillEmptyCells(cells ...string) []string {
	for i, cell := range cells {
		cells[i] = cmp.Or(cell, "-")
	}
	return cells
}

// FormatFinding formats a finding for people: one line, and the remedy below it.
func FormatFinding(level, text, remedy string) string {
	line := fmt.Sprintf("%-4s %s", level, SanitizeLine(text))
	if remedy != "" {
		line += "\n     → " + SanitizeLine(remedy)
	}
	return strings.TrimSpace(line)
}

// Deref returns *p; the zero value if p is nil.
func Deref[T any](p *T) (value T) {
	if p != nil {
		value = *p
	}
	return value
}

// FormatTime formats a time in UTC; the text is empty if at is nil.
func FormatTime(at *time.Time) string {
	if at == nil {
		return ""
	}
	return at.UTC().Format(time.RFC3339)
}

// WriteJSON writes v to w as indented JSON.
func WriteJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// few is the maximum number of names that AbbreviateList prints.
const few = 5

// AbbreviateList joins the first names of a list, and adds how many more names there are.
func AbbreviateList(names []string) string {
	if more := len(names) - few; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:few], ", "), more)
	}
	return strings.Join(names, ", ")
}

// SanitizeLine replaces control characters except tabs, so that no name or message can
// control a terminal.
func SanitizeLine(line string) string {
	return strings.Map(func(r rune) rune {
		if r != '\t' && (r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0) {
			return ' '
		}
		return r
	}, line)
}

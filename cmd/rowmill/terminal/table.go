package terminal

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"golang.org/x/text/width"
)

const (
	// columnGap is the number of spaces between two columns.
	columnGap = 2
	// leastWidth is the width below which the cells of a column are not shortened.
	leastWidth = 16
)

// PrintTable prints a table to Out. The first row has the names of the columns. If Out is a
// terminal, the table fits its width: long cells become shorter, and then the columns
// leastImportant are dropped, in this order, and then the last columns. The first column
// always stays. On a terminal with colours, states are coloured.
func (t *IO) PrintTable(writeRows func(row RowWriter), leastImportant ...string) error {
	if t.OutWidth == 0 {
		return WriteTable(t.Out, writeRows)
	}
	var rows [][]string
	writeRows(func(cells ...string) {
		row := make([]string, len(cells))
		for i, cell := range cells {
			row[i] = strings.ReplaceAll(SanitizeLine(cell), "\t", " ")
		}
		rows = append(rows, row)
	})
	if len(rows) == 0 {
		return nil
	}
	rows, widths := fitTable(rows, t.OutWidth, leastImportant)
	var out strings.Builder
	for _, row := range rows {
		for i, cell := range row {
			cell = clip(cell, widths[i])
			padding := ""
			if i < len(row)-1 {
				padding = strings.Repeat(" ", widths[i]+columnGap-displayWidth(cell))
			}
			if isStateColumn(rows[0][i]) {
				cell = t.PaintState(cell)
			}
			out.WriteString(cell + padding)
		}
		out.WriteString("\n")
	}
	_, err := fmt.Fprint(t.Out, out.String())
	return err
}

// fitTable drops columns of rows until the others fit into width, and returns the remaining
// rows with the widths of their columns. rows[0] has the names of the columns.
func fitTable(rows [][]string, width int, leastImportant []string) ([][]string, []int) {
	for {
		widths, fits := fitColumns(rows, width)
		if fits || len(rows[0]) == 1 {
			return rows, widths
		}
		drop := len(rows[0]) - 1
		for _, name := range leastImportant {
			if i := slices.Index(rows[0], name); i > 0 {
				drop = i
				break
			}
		}
		for r, row := range rows {
			rows[r] = slices.Delete(row, drop, drop+1)
		}
	}
}

// fitColumns returns the widths of the columns. If the table is wider than width, it makes
// the widest columns narrower, down to leastWidth, but not the first column, numbers and
// times. fits is false if the table is still too wide.
func fitColumns(rows [][]string, width int) (widths []int, fits bool) {
	widths = make([]int, len(rows[0]))
	flexible := make([]bool, len(rows[0]))
	total := columnGap * (len(widths) - 1)
	for i := range widths {
		for r, row := range rows {
			widths[i] = max(widths[i], displayWidth(row[i]))
			flexible[i] = flexible[i] || i > 0 && r > 0 && !isNumber(row[i])
		}
		total += widths[i]
	}
	for ; total > width; total-- {
		widest := -1
		for i, w := range widths {
			if flexible[i] && w > leastWidth && (widest < 0 || w > widths[widest]) {
				widest = i
			}
		}
		if widest < 0 {
			if len(widths) == 1 {
				widths[0] = width
			}
			return widths, false
		}
		widths[widest]--
	}
	return widths, true
}

// isNumber reports whether a cell has a number or a time: a part of it would mislead.
func isNumber(cell string) bool {
	return cell == "" || cell == "-" || '0' <= cell[0] && cell[0] <= '9'
}

// isStateColumn reports whether the column with this name has states.
func isStateColumn(name string) bool { return name == "STATUS" || name == "STATE" }

// stateColours are the colours of states, as parameters of the escape sequence SGR.
var stateColours = map[string]string{
	"failed": "31", "fail": "31", "down": "31", "disabled": "31",
	"warn": "33", "running": "1;34",
	"succeeded": "32", "ok": "32", "up": "32",
}

// PaintState returns text in the colour of the state that it begins with, if Out may have
// colours.
func (t *IO) PaintState(text string) string {
	state, _, _ := strings.Cut(strings.TrimRight(text, " "), ",")
	colour := stateColours[state]
	if !t.OutColour || colour == "" {
		return text
	}
	return "\x1b[" + colour + "m" + text + "\x1b[0m"
}

// displayWidth returns the number of columns that text has on a terminal. Chinese, Japanese
// and Korean characters and emoji have two.
func displayWidth(text string) int {
	columns := utf8.RuneCountInString(text)
	for _, r := range text {
		columns += extraWidth(r)
	}
	return columns
}

func extraWidth(r rune) int {
	switch width.LookupRune(r).Kind() {
	case width.EastAsianWide, width.EastAsianFullwidth:
		return 1
	}
	return 0
}

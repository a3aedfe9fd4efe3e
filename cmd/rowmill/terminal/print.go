package terminal

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// Table aligns what write writes, fields separated by tabs.
func Table(w io.Writer, write func(io.Writer)) error {
	tabs := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	write(tabs)
	return tabs.Flush()
}

// JSON writes a value, indented.
func JSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// few is how many names a line has room for.
const few = 5

// Few joins the first names and says how many more there are.
func Few(names []string) string {
	if more := len(names) - few; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:few], ", "), more)
	}
	return strings.Join(names, ", ")
}

// Printable replaces control characters except tabs, so that no name or
// message can steer a terminal.
func Printable(line string) string {
	return strings.Map(func(r rune) rune {
		if r != '\t' && (r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0) {
			return ' '
		}
		return r
	}, line)
}

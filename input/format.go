package input

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/rowmill/rowmill/input/csv"
)

// A Format says how a file holds its rows.
type Format string

// The formats. Of these, any but Parquet may be compressed with gzip.
const (
	FormatAuto    Format = ""        // Tell finds out
	FormatCSV     Format = "csv"     // a header, then a record for each row; commas, or tabs, semicolons or bars by the header
	FormatTSV     Format = "tsv"     // the same with tabs
	FormatParquet Format = "parquet" //
	FormatJSONL   Format = "jsonl"   // JSON Lines: on each line an object, or on each line a string
	FormatLines   Format = "lines"   // plain text: each line is a row
)

// Formats lists the formats that a client can ask for.
func Formats() []string {
	return []string{string(FormatCSV), string(FormatTSV), string(FormatParquet), string(FormatJSONL), string(FormatLines)}
}

// ValidateFormat refuses a name that is no format.
func ValidateFormat(name string) error {
	if name == "" || slices.Contains(Formats(), name) {
		return nil
	}
	return fmt.Errorf("must be %s or %s, is %q", strings.Join(Formats()[:4], ", "), FormatLines, name)
}

// endings are the names' endings that say a format.
var endings = map[string]Format{
	".csv": FormatCSV, ".tsv": FormatTSV, ".tab": FormatTSV, ".parquet": FormatParquet,
	".jsonl": FormatJSONL, ".ndjson": FormatJSONL, ".json": FormatJSONL, ".txt": FormatLines, ".text": FormatLines,
}

// ending is the format that a file's name says, if any.
func ending(name string) Format {
	name = strings.TrimSuffix(strings.ToLower(name), ".gz")
	return endings[path.Ext(name)]
}

// A Kind is a format, and whether rows have columns in it.
type Kind struct {
	Format Format
	Table  bool // a row has columns, or members
}

// Tell finds out the format of a file, as Open does.
func Tell(r io.ReaderAt, size int64, opts Options) (Kind, error) {
	opts, file, packed, err := begin(r, size, opts)
	switch {
	case err != nil:
		return Kind{}, err
	case packed == packedParquet:
		return Kind{FormatParquet, true}, nil
	}
	text, err := openText(file, packed, opts.Limits)
	if err != nil {
		return Kind{}, err
	}
	defer text.close()
	format, err := tell(text.head, opts)
	return Kind{format, format == FormatCSV || format == FormatTSV || format == FormatJSONL && firstByte(text.head) == '{'}, err
}

// tell finds out the format of a text by its beginning. In this order count: the
// format that was asked for, JSON, the ending of the name, a column that was named,
// which only a table has. Without any sign a text is CSV, as the interface says of
// URLs, or with Lines plain text.
func tell(head []byte, opts Options) (Format, error) {
	asked, named := opts.Format, opts.Column != "" || opts.IDColumn != "" || opts.Fields != nil
	byName := ending(opts.Name)
	line, _, whole := bytes.Cut(bytes.TrimLeft(bytes.TrimPrefix(head, byteOrderMark), "\r\n"), []byte{'\n'})
	line = bytes.TrimRight(line, "\r")
	whole = whole || len(head) < sniffBytes
	if asked == FormatAuto && byName == FormatLines && !named {
		asked = FormatLines
	}
	switch first := firstByte(head); {
	case asked == FormatParquet || asked == FormatAuto && byName == FormatParquet:
		return "", invalid("The input file is no Parquet file. Give its format in input_format, or give a Parquet file.")
	case asked == FormatLines && named:
		return "", invalid("The input is plain text, which has no columns. Leave out column_name and id_column_name, or give another input_format.")
	case asked == FormatLines && bytes.IndexByte(head, 0) >= 0:
		return "", invalid("The input is no plain text: it holds NUL bytes, as UTF-16 does. Convert the file to UTF-8.")
	case asked == FormatJSONL && first == 0:
		return "", invalid("The JSON Lines input has no rows.")
	case asked == FormatJSONL && first == '"' && named:
		return "", errStrings
	case asked == FormatJSONL || asked == FormatAuto && isJSONLines(head):
		return FormatJSONL, oneDocument(head)
	case asked != FormatAuto:
		return asked, nil
	case first == '[':
		if err := oneDocument(head); err != nil {
			return "", err
		}
	}
	plain := opts.Lines && byName == FormatAuto || byName == FormatLines
	switch _, isHeader := separator(line, opts); {
	case byName != FormatAuto && byName != FormatLines:
		opts.Format = byName
		return tell(head, opts)
	case named && plain && whole && isText(line) && !isHeader:
		return "", invalid("The input is plain text: its first line does not name the columns of column_name and id_column_name. Leave these out, or give a table. Results have the order of the input, so that IDs can be joined by position.")
	case named:
		return FormatCSV, nil
	case len(line) > 0 && line[0] == '"' && json.Valid(line):
		return FormatJSONL, nil
	case opts.Lines:
		return FormatLines, nil
	}
	return FormatCSV, nil
}

// Guesses reports whether a text of this name is read as CSV for want of any sign:
// its first line is then taken for a header.
func Guesses(name, column string, format Format) bool {
	return format == FormatAuto && column == "" && ending(name) == FormatAuto
}

// firstByte is the first byte of a text that is no blank; 0 for none.
func firstByte(head []byte) byte {
	if head = bytes.TrimLeft(bytes.TrimPrefix(head, byteOrderMark), " \t\r\n"); len(head) > 0 {
		return head[0]
	}
	return 0
}

// isText reports whether a line is UTF-8.
func isText(line []byte) bool { return utf8.Valid(line) && bytes.IndexByte(line, 0) < 0 }

// oneDocument refuses JSON that cannot be read line by line: an array, or an object
// that goes over several lines.
func oneDocument(head []byte) error {
	head = bytes.TrimLeft(bytes.TrimPrefix(head, byteOrderMark), " \t\r\n")
	line, _, more := bytes.Cut(head, []byte{'\n'})
	what, filter := "a JSON array", "jq -c '.[]'"
	if !bytes.HasPrefix(head, []byte{'['}) {
		if !more || json.Valid(line) {
			return nil
		}
		what, filter = "one JSON object that goes over several lines", "jq -c ."
	}
	if !beginsJSON(head) {
		return nil
	}
	return invalid("The input is %s. Write each row on a line of its own, for example with %s, or give a file of CSV or Parquet.", what, filter)
}

// beginsJSON reports whether a text could go on as JSON does.
func beginsJSON(head []byte) bool {
	d := json.NewDecoder(bytes.NewReader(head))
	for {
		_, err := d.Token()
		var syntax *json.SyntaxError
		switch {
		case errors.As(err, &syntax):
			return false
		case err != nil: // the end of head
			return true
		}
	}
}

// separators are the possible separators of a CSV file.
const separators = ",\t;|"

// separator chooses the separator of a CSV file by its first line: the first one that
// gives every column that is wanted, and then it is certain; else a comma, if there
// is one; else the one that gives most columns.
func separator(line []byte, opts Options) (sep byte, certain bool) {
	var wanted []string
	for _, name := range []string{opts.Column, opts.IDColumn} {
		if name != "" {
			wanted = append(wanted, name)
		}
	}
	if opts.Fields != nil {
		for i, name := range opts.Fields.Names {
			if opts.Fields.Required[i] {
				wanted = append(wanted, name)
			}
		}
	}
	best, most := byte(','), 1
	for _, candidate := range []byte(separators) {
		names := header(line, candidate)
		has := func(name string) bool { return slices.Contains(names, name) }
		if len(wanted) > 0 && !slices.ContainsFunc(wanted, func(name string) bool { return !has(name) }) {
			return candidate, true
		}
		if len(names) > most && (best != ',' || most == 1) {
			best, most = candidate, len(names)
		}
	}
	return best, false
}

// header is the names of columns in a line with a separator; nil if it has none.
func header(line []byte, separator byte) (names []string) {
	r := csv.NewReader(bytes.NewReader(line), csv.Config{Separator: separator})
	n, err := r.Read()
	if err != nil {
		return nil
	}
	for i := range n {
		names = append(names, string(r.Field(i)))
	}
	return names
}

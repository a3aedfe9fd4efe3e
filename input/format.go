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

// Format is the name of a file format, such as "csv".
type Format string

// The formats of input files. A file of any format except Parquet can be compressed
// with gzip or zstd.
const (
	FormatAuto    Format = ""        // no format is given; Detect finds it
	FormatCSV     Format = "csv"     // a header line, then records, separated by comma, tab, semicolon or bar
	FormatTSV     Format = "tsv"     // like CSV, with tabs as separators
	FormatParquet Format = "parquet" // Apache Parquet
	FormatJSONL   Format = "jsonl"   // JSON Lines: each line is an object, or each line is a string
	FormatLines   Format = "lines"   // plain text: each line is a row
)

// Formats returns the formats that a client can ask for.
func Formats() []string {
	return []string{string(FormatCSV), string(FormatTSV), string(FormatParquet), string(FormatJSONL), string(FormatLines)}
}

// ValidateFormat returns an error if name is neither empty nor the name of a format.
func ValidateFormat(name string) error {
	if name == "" || slices.Contains(Formats(), name) {
		return nil
	}
	return fmt.Errorf("must be %s or %s, is %q", strings.Join(Formats()[:4], ", "), FormatLines, name)
}

// extensions maps file name extensions in lower case to formats.
var extensions = map[string]Format{
	".csv": FormatCSV, ".tsv": FormatTSV, ".tab": FormatTSV, ".parquet": FormatParquet,
	".jsonl": FormatJSONL, ".ndjson": FormatJSONL, ".json": FormatJSONL, ".txt": FormatLines, ".text": FormatLines,
}

// formatOfName returns the format for the extension of a file name, or FormatAuto if
// the extension is not known. It ignores a final .gz or .zst.
func formatOfName(name string) Format {
	name = strings.TrimSuffix(strings.TrimSuffix(strings.ToLower(name), ".gz"), ".zst")
	return extensions[path.Ext(name)]
}

// DetectedFormat is the result of Detect: the format of a file, and whether its rows have
// columns.
type DetectedFormat struct {
	Format Format
	Table  bool // rows have columns or members
}

// Detect returns the format that Open would use for a file.
func Detect(r io.ReaderAt, size int64, opts Options) (DetectedFormat, error) {
	opts, file, packed, err := openSource(r, size, opts)
	switch {
	case err != nil:
		return DetectedFormat{}, err
	case packed == containerParquet:
		return DetectedFormat{FormatParquet, true}, nil
	}
	text, err := openText(file, packed, opts)
	if err != nil {
		return DetectedFormat{}, err
	}
	defer text.close()
	format, err := detect(text.head, opts)
	return DetectedFormat{format, format == FormatCSV || format == FormatTSV || format == FormatJSONL && firstNonBlankByte(text.head) == '{'}, err
}

// detect finds the format of a text from its first bytes. It looks, in this order, at:
// the requested format, JSON syntax, the extension of the file name, and requested
// columns (only a table has columns). If none of these decides, the text is plain text
// if opts.Lines is set, and otherwise CSV, as the API promises for URLs.
func detect(head []byte, opts Options) (Format, error) {
	asked, named := opts.Format, opts.Column != "" || opts.IDColumn != "" || opts.Fields != nil
	byName := formatOfName(opts.Name)
	line, _, whole := bytes.Cut(bytes.TrimLeft(bytes.TrimPrefix(head, byteOrderMark), "\r\n"), []byte{'\n'})
	line = bytes.TrimRight(line, "\r")
	whole = whole || len(head) < sniffBytes
	if asked == FormatAuto && byName == FormatLines && !named {
		asked = FormatLines
	}
	switch first := firstNonBlankByte(head); {
	case asked == FormatParquet || asked == FormatAuto && byName == FormatParquet:
		return "", invalidFileError("The input file is not a Parquet file. Give its format in input_format, or give a Parquet file.")
	case asked == FormatLines && named:
		return "", invalidFileError("The input is plain text, which has no columns. Leave out column_name, id_column_name and prompt, or give another input_format.")
	case asked == FormatLines && bytes.IndexByte(head, 0) >= 0:
		return "", invalidFileError("The input is not plain text: it has NUL bytes, as in UTF-16. Convert the file to UTF-8.")
	case asked == FormatJSONL && first == 0:
		return "", invalidFileError("The JSON Lines input has no rows.")
	case asked == FormatJSONL && first == '"' && named:
		return "", errStrings
	case asked == FormatJSONL || asked == FormatAuto && isJSONLines(head):
		return FormatJSONL, rejectJSONDocument(head)
	case asked != FormatAuto:
		return asked, nil
	case first == '[':
		if err := rejectJSONDocument(head); err != nil {
			return "", err
		}
	}
	plain := opts.Lines && byName == FormatAuto || byName == FormatLines
	switch _, isHeader := detectSeparator(line, opts); {
	case byName != FormatAuto && byName != FormatLines:
		opts.Format = byName
		return detect(head, opts)
	case named && plain && whole && isText(line) && !isHeader:
		return "", invalidFileError("The input is plain text: its first line does not name the columns of column_name and id_column_name. Leave these out, or give a table. Results have the order of the input, so that IDs can be joined by position.")
	case named:
		return FormatCSV, nil
	case len(line) > 0 && line[0] == '"' && json.Valid(line):
		return FormatJSONL, nil
	case opts.Lines:
		return FormatLines, nil
	}
	return FormatCSV, nil
}

// AssumesCSV reports whether a text is read as CSV only because neither a format, a
// column nor the extension of name was given. Its first line is then read as a header.
func AssumesCSV(name, column string, format Format) bool {
	return format == FormatAuto && column == "" && formatOfName(name) == FormatAuto
}

// firstNonBlankByte returns the first non-blank byte of a text, or 0 if there is none.
func firstNonBlankByte(head []byte) byte {
	if head = bytes.TrimLeft(bytes.TrimPrefix(head, byteOrderMark), " \t\r\n"); len(head) > 0 {
		return head[0]
	}
	return 0
}

// isText reports whether a line is UTF-8 without NUL bytes.
func isText(line []byte) bool { return utf8.Valid(line) && bytes.IndexByte(line, 0) < 0 }

// rejectJSONDocument returns an error for JSON that cannot be read line by line: an array,
// or an object that spans several lines.
func rejectJSONDocument(head []byte) error {
	head = bytes.TrimLeft(bytes.TrimPrefix(head, byteOrderMark), " \t\r\n")
	line, _, more := bytes.Cut(head, []byte{'\n'})
	what, filter := "a JSON array", "jq -c '.[]'"
	if !bytes.HasPrefix(head, []byte{'['}) {
		if !more || json.Valid(line) {
			return nil
		}
		what, filter = "one JSON object that spans several lines", "jq -c ."
	}
	if !isJSONPrefix(head) {
		return nil
	}
	return invalidFileError("The input is %s. Write each row on a line of its own, for example with %s, or give a file of CSV or Parquet.", what, filter)
}

// isJSONPrefix reports whether head can be the beginning of a JSON document: it has no
// syntax error, but may end early.
func isJSONPrefix(head []byte) bool {
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

// separators lists the separators that a CSV file can have.
const separators = ",\t;|"

// detectSeparator finds the separator of a CSV file from its first line. If a separator
// splits the line into names that include all requested columns, certain is true.
// Without such a separator, a comma is used if the line has one, and otherwise the
// separator that gives the most columns.
func detectSeparator(line []byte, opts Options) (sep byte, certain bool) {
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
		names := parseHeader(line, candidate)
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

// parseHeader returns the column names in a line, or nil if the line is not a CSV record.
func parseHeader(line []byte, separator byte) (names []string) {
	r := csv.NewReader(bytes.NewReader(line), csv.Config{Separator: separator, Buffer: len(line) + 1})
	n, err := r.Read()
	if err != nil {
		return nil
	}
	for i := range n {
		names = append(names, string(r.Field(i)))
	}
	return names
}

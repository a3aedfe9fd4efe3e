package input

import (
	"bytes"
	"errors"
	"fmt"
	"io"
)

// packed says how to open a file before its text can be read.
type packed int

const (
	packedNot packed = iota
	packedGzip
	packedParquet
)

// sniffBytes is how many first bytes of a file are used to detect its form.
const sniffBytes = 512

// otherFormats lists files that clients mistake for CSV, by their first bytes.
var otherFormats = []struct{ magic, name, remedy string }{
	{"PK\x03\x04", "a ZIP archive or an Excel workbook", "Export it as CSV or Parquet."},
	{"\xD0\xCF\x11\xE0", "an old Excel workbook", "Export it as CSV or Parquet."},
	{"\x28\xB5\x2F\xFD", "Zstandard-compressed", "Upload it plain or compressed with gzip."},
	{"BZh", "bzip2-compressed", "Upload it plain or compressed with gzip."},
	{"\xFD7zXZ\x00", "xz-compressed", "Upload it plain or compressed with gzip."},
	{"ARROW1", "an Arrow file", "Write it as Parquet."},
	{"ORC", "an ORC file", "Write it as Parquet."},
	{"Obj\x01", "an Avro file", "Write it as Parquet."},
	{"SQLite format 3\x00", "an SQLite database", "Export a table as CSV or Parquet."},
	{"%PDF-", "a PDF document", "Give a file of CSV, Parquet or JSON Lines."},
}

// emptyFailure returns the failure of a file without bytes.
func emptyFailure() error {
	return invalid("The input file is empty. Give a file of CSV, Parquet or JSON Lines with at least one row.")
}

// sniff reads the first bytes of a file. It returns an error if the file cannot
// hold rows.
func sniff(r io.ReaderAt, size int64) (packed, error) {
	if size == 0 {
		return 0, emptyFailure()
	}
	head := make([]byte, min(sniffBytes, size))
	if n, err := r.ReadAt(head, 0); n < len(head) {
		if err == nil || errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return 0, fmt.Errorf("read the beginning of the input: %w", err)
	}
	return packedOf(head)
}

func packedOf(head []byte) (packed, error) {
	switch {
	case isParquet(head):
		return packedParquet, nil
	case isGzip(head):
		return packedGzip, nil
	}
	return packedNot, rejectOther(head)
}

func isParquet(head []byte) bool {
	return bytes.HasPrefix(head, []byte("PAR1")) || bytes.HasPrefix(head, []byte("PARE"))
}

// isJSONLines reports whether a text begins like a JSON object. A CSV file
// cannot begin so: a quote inside an unquoted field is an error.
func isJSONLines(head []byte) bool {
	head = bytes.TrimLeft(bytes.TrimPrefix(head, byteOrderMark), " \t\r\n")
	rest, isObject := bytes.CutPrefix(head, []byte("{"))
	return isObject && bytes.HasPrefix(bytes.TrimLeft(rest, " \t\r\n"), []byte(`"`))
}

func isGzip(head []byte) bool { return bytes.HasPrefix(head, []byte{0x1F, 0x8B}) }

// rejectOther returns an error if a file begins like a format that is not
// supported.
func rejectOther(head []byte) error {
	for _, other := range otherFormats {
		if bytes.HasPrefix(head, []byte(other.magic)) && !plainHeader(head, other.magic) {
			return invalid("The input file is %s, not CSV, Parquet or JSON Lines. %s", other.name, other.remedy)
		}
	}
	if isMarkup(head) {
		return invalid("The input is a web page or an XML document, not CSV, Parquet or JSON Lines. Check that the URL leads to the file itself and has not expired.")
	}
	return nil
}

// plainHeader reports whether a file could be CSV although it begins with a
// magic: the magic and the rest of the line are printable text.
func plainHeader(head []byte, magic string) bool {
	for _, c := range []byte(magic) {
		if c < ' ' || c >= 0x7F {
			return false
		}
	}
	line, _, _ := bytes.Cut(head, []byte{'\n'})
	for _, c := range bytes.TrimRight(line, "\r") {
		if c < ' ' && c != '\t' || c >= 0x7F {
			return false
		}
	}
	return magic != "%PDF-"
}

// isMarkup reports whether head begins like an HTML or XML document.
func isMarkup(head []byte) bool {
	text := bytes.ToLower(bytes.TrimLeft(bytes.TrimPrefix(head, byteOrderMark), " \t\r\n"))
	for _, start := range []string{"<!doctype", "<html", "<?xml", "<head", "<body"} {
		if bytes.HasPrefix(text, []byte(start)) {
			return true
		}
	}
	return false
}

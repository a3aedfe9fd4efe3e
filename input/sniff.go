package input

import (
	"bytes"
	"errors"
	"fmt"
	"io"
)

// containerKind is the container of a file: gzip, zstd, Parquet, or none for plain text.
type containerKind int

const (
	containerNone containerKind = iota
	containerGzip
	containerZstd
	containerParquet
)

// sniffBytes is the number of bytes at the beginning of a file that are used to detect
// its format.
const sniffBytes = 512

// otherFormats lists unsupported formats of files that clients mistake for CSV: the
// first bytes, the name and a remedy.
var otherFormats = []struct{ magic, name, remedy string }{
	{"PK\x03\x04", "a ZIP archive or an Excel workbook", "Export it as CSV or Parquet."},
	{"\xD0\xCF\x11\xE0", "an old Excel workbook", "Export it as CSV or Parquet."},
	{"BZh", "bzip2-compressed", "Upload it plain, or compressed with gzip or zstd."},
	{"\xFD7zXZ\x00", "xz-compressed", "Upload it plain, or compressed with gzip or zstd."},
	{"ARROW1", "an Arrow file", "Write it as Parquet."},
	{"ORC", "an ORC file", "Write it as Parquet."},
	{"Obj\x01", "an Avro file", "Write it as Parquet."},
	{"SQLite format 3\x00", "an SQLite database", "Export a table as CSV or Parquet."},
	{"%PDF-", "a PDF document", "Give a file of CSV, Parquet or JSON Lines."},
}

// emptyFailure returns the *rowmill.Failure for a file without bytes.
func emptyFailure() error {
	return invalidFileError("The input file is empty. Give a file of CSV, Parquet or JSON Lines with at least one row.")
}

// sniff detects gzip, zstd and Parquet from the first bytes of a file. It returns an error if
// the file is empty or has an unsupported format.
func sniff(r io.ReaderAt, size int64) (containerKind, error) {
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
	return detectContainer(head)
}

// detectContainer detects gzip, zstd and Parquet. head is the beginning of a file. It returns an
// error for an unsupported format.
func detectContainer(head []byte) (containerKind, error) {
	switch {
	case isParquet(head):
		return containerParquet, nil
	case isGzip(head):
		return containerGzip, nil
	case isZstd(head):
		return containerZstd, nil
	}
	return containerNone, rejectUnsupported(head)
}

// isParquet reports whether head begins like a Parquet file, encrypted or not.
func isParquet(head []byte) bool {
	return bytes.HasPrefix(head, []byte("PAR1")) || bytes.HasPrefix(head, []byte("PARE"))
}

// isJSONLines reports whether a text begins like a JSON object with a member. A CSV
// file cannot begin like this, because a quote inside an unquoted field is an error.
func isJSONLines(head []byte) bool {
	head = bytes.TrimLeft(bytes.TrimPrefix(head, byteOrderMark), " \t\r\n")
	rest, isObject := bytes.CutPrefix(head, []byte("{"))
	return isObject && bytes.HasPrefix(bytes.TrimLeft(rest, " \t\r\n"), []byte(`"`))
}

func isGzip(head []byte) bool { return bytes.HasPrefix(head, []byte{0x1F, 0x8B}) }

func isZstd(head []byte) bool { return bytes.HasPrefix(head, []byte{0x28, 0xB5, 0x2F, 0xFD}) }

// rejectUnsupported returns an error if a file begins like an unsupported format.
func rejectUnsupported(head []byte) error {
	for _, other := range otherFormats {
		if bytes.HasPrefix(head, []byte(other.magic)) && !isPlausibleCSVHeader(head, other.magic) {
			return invalidFileError("The input file is %s, not CSV, Parquet or JSON Lines. %s", other.name, other.remedy)
		}
	}
	if isMarkup(head) {
		return invalidFileError("The input is a web page or an XML document, not CSV, Parquet or JSON Lines. Check that the URL leads to the file itself and has not expired.")
	}
	return nil
}

// isPlausibleCSVHeader reports whether a file could be CSV although it begins with the first
// bytes (magic) of another format: the whole first line is printable ASCII. It returns
// false for PDF.
func isPlausibleCSVHeader(head []byte, magic string) bool {
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

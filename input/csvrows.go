package input

import (
	"errors"
	"fmt"
	"io"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/input/csv"
)

// csvSource reads a CSV file, compressed or not, and converts errors of the file into a
// *rowmill.Failure.
type csvSource struct {
	*csv.Reader
	text *textReader
}

// header reads the header row and returns the column names.
func (s *csvSource) header() ([]string, error) {
	n, err := s.Read()
	if errors.Is(err, io.EOF) {
		return nil, invalidFileError("The input file has no header row. Give a CSV file whose first line names the columns.")
	}
	if err != nil {
		return nil, s.convertReadError(err)
	}
	names := make([]string, n)
	for i := range names {
		names[i] = string(s.Field(i))
	}
	return names, nil
}

// convertReadError converts an error of reading the file. It returns a *rowmill.Failure if the
// file is at fault, otherwise an error that says that reading failed.
func (s *csvSource) convertReadError(err error) error {
	var parse *csv.ParseError
	if s.text.file.err != nil || !errors.As(err, &parse) {
		return s.text.convertReadError(err)
	}
	where := "byte"
	if s.text.packed != "" {
		where = "byte (unpacked)"
	}
	switch {
	case errors.Is(err, csv.ErrFields):
		return invalidFileError("Line %d of the CSV input has %d fields where the header has %d. Quote fields that hold a separator or a line break, and fill empty ones.",
			parse.Line, parse.Fields, parse.Want)
	case errors.Is(err, csv.ErrQuote):
		return invalidFileError(`Line %d of the CSV input has a stray quote at %s %d. A field that holds a quote (") must be quoted itself, and the quote doubled.`,
			parse.Line, where, parse.Offset)
	case errors.Is(err, csv.ErrUnclosed):
		return invalidFileError("The quoted field that begins on line %d of the CSV input, at %s %d, is not closed before the end of the file or %d bytes. Close it, or double the quotes inside.",
			parse.Line, where, parse.Offset, s.text.limits.MaxRecordBytes)
	case errors.Is(err, csv.ErrTooLong):
		return invalidFileError("The record that begins on line %d of the CSV input has more than %d bytes. Shorten it.", parse.Line, s.text.limits.MaxRecordBytes)
	case errors.Is(err, csv.ErrTooWide):
		return invalidFileError("The header of the CSV input has too many columns. Keep only the columns that are needed.")
	case errors.Is(err, csv.ErrNotUTF8):
		return invalidFileError("The input is not UTF-8: %s %d is not part of a valid character. Convert the file to UTF-8.", where, parse.Offset)
	case errors.Is(err, csv.ErrUTF16):
		return invalidFileError("The input is UTF-16 or UTF-32. Convert the file to UTF-8.")
	}
	return invalidFileError("The CSV input cannot be read (%v).", err)
}

// csvBuffer is the size of the read buffer, in bytes.
const csvBuffer = 256 << 10

// csvRowReader is the Reader for CSV and TSV files. It reads only the selected columns.
type csvRowReader struct {
	rowCounter
	src     *csvSource
	columns *columnSelection
	cell    func(column int) (string, error) // method readCell, as a function value
}

// openCSVTable begins to read a CSV file, and returns the names of its columns.
func openCSVTable(text *textReader, opts Options) (src *csvSource, names []string, err error) {
	src = &csvSource{csv.NewReader(text, csv.Config{MaxRecord: int(opts.Limits.MaxRecordBytes), Buffer: text.bufferSize(csvBuffer)}), text}
	if opts.Format == FormatTSV {
		src.SetSeparator('\t')
	} else if line, err := src.FirstLine(); err == nil { // if FirstLine fails, header returns its error
		sep, _ := detectSeparator(line, opts)
		src.SetSeparator(sep)
	}
	names, err = src.header()
	return src, names, err
}

func openCSV(text *textReader, opts Options) (Reader, error) {
	src, names, err := openCSVTable(text, opts)
	if err != nil {
		return nil, err
	}
	rows := &csvRowReader{rowCounter: newRowCounter(opts), src: src}
	if rows.columns, err = selectColumns(names, opts); err != nil {
		return nil, err
	}
	rows.cell = rows.readCell
	rows.rowPosition = func() string { return fmt.Sprintf(" (line %d)", src.Line()) }
	return rows, nil
}

func (r *csvRowReader) Next(row *rowmill.Row) error {
	if _, err := r.src.Read(); err != nil {
		if !errors.Is(err, io.EOF) || r.src.text.file.err != nil {
			return r.src.convertReadError(err)
		}
		return r.checkEnd("The CSV input has a header but no rows.")
	}
	if err := r.countRow(row); err != nil {
		return err
	}
	var err error
	if row.Text, err = r.columns.render(&r.rowCounter, r.cell); err != nil {
		return err
	}
	row.ID, row.Fields = rowmill.ID{}, r.columns.keptFields
	if r.columns.id >= 0 {
		id := string(r.src.Field(r.columns.id))
		row.ID = rowmill.ID{Kind: rowmill.IDString, Text: id}
		return r.checkSize("id", int64(len(id)))
	}
	return nil
}

// readCell returns the value of the current row in text column number column.
func (r *csvRowReader) readCell(column int) (string, error) {
	return string(r.src.Field(r.columns.text[column])), nil
}

func (r *csvRowReader) IDType() rowmill.IDType {
	if r.columns.id < 0 {
		return rowmill.IDType{}
	}
	return rowmill.IDType{IDKind: rowmill.IDString}
}

func (r *csvRowReader) Close() error {
	r.src.text.close()
	return nil
}

package input

import (
	"errors"
	"io"
	"unicode/utf8"

	"github.com/rowmill/rowmill"
)

// plainRowReader is the Reader for plain text. Each line is a row, even an empty line, so
// row n is line n+1.
type plainRowReader struct {
	rowCounter
	src   *textReader
	lines *lineReader
}

func openPlain(src *textReader, opts Options) *plainRowReader {
	r := &plainRowReader{rowCounter: newRowCounter(opts), src: src, lines: newLines(src, opts.Limits.MaxRecordBytes)}
	r.rowPosition = r.lines.describePosition
	return r
}

func (r *plainRowReader) Next(row *rowmill.Row) error {
	line, whole, err := r.lines.readLine()
	switch {
	case errors.Is(err, io.EOF) && r.src.file.err == nil:
		return io.EOF
	case err != nil:
		return r.src.convertReadError(err)
	case !whole:
		return invalidFileError("Line %d of the input has more than %d bytes. Shorten it.", r.lines.number, r.limits.MaxRecordBytes)
	case !utf8.Valid(line):
		return invalidFileError("Line %d of the input is not UTF-8. Convert the file to UTF-8, for example with iconv.", r.lines.number)
	}
	if err := r.countRow(row); err != nil {
		return err
	}
	row.Text, row.ID, row.Fields = string(line), rowmill.ID{}, ""
	return r.checkSize("text", int64(len(line)))
}

func (r *plainRowReader) IDType() rowmill.IDType { return rowmill.IDType{} }

func (r *plainRowReader) Close() error {
	r.src.close()
	return nil
}

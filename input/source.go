package input

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/internal/columnar"
	"github.com/rowmill/rowmill/internal/textfmt"
)

// A SourceColumn is a column of an input file. Its type is the type of an ID column: a text,
// a number, a boolean, or another single value of a Parquet file. Lists and groups are JSON
// texts.
type SourceColumn struct {
	Name string
	rowmill.IDType
}

// A SourceReader returns the values of columns of an input file, in the order of the rows that
// Open returns. Its memory is limited, whatever the size of the file. Only one goroutine may
// use it.
type SourceReader struct {
	Columns []SourceColumn
	next    func(values []rowmill.ID) error
	close   func()
}

// Next fills values with the values of the next row, one for each of Columns. After the last
// row it returns io.EOF.
func (s *SourceReader) Next(values []rowmill.ID) error { return s.next(values) }

// Close releases the reader's resources, but does not close the file.
func (s *SourceReader) Close() { s.close() }

// OpenSource opens columns of a file of rows: those in names, or all if names is nil. opts are
// the options with which Open reads the rows. A file without such columns is a
// *rowmill.Failure.
func OpenSource(r io.ReaderAt, size int64, opts Options, names []string) (*SourceReader, error) {
	opts, file, packed, err := openSource(r, size, opts)
	switch {
	case err != nil:
		return nil, err
	case packed == containerParquet:
		return openParquetSource(r, size, opts, names)
	}
	text, err := openText(file, packed, opts)
	if err != nil {
		return nil, err
	}
	switch opts.Format, err = detect(text.head, opts); {
	case err != nil:
	case opts.Format == FormatJSONL:
		return openJSONSource(r, size, opts, text, names)
	case opts.Format == FormatLines:
		err = invalidFileError("The input is plain text, which has no columns to keep. Leave out keep_columns.")
	default:
		return openCSVSource(text, opts, names)
	}
	text.close()
	return nil, err
}

// selectSource returns the positions of the wanted columns in a file. all lists the columns of
// the file.
func selectSource(all, names []string) (positions []int, err error) {
	for i := range all {
		if names == nil {
			if countName(all, all[i]) > 1 {
				return nil, ambiguousColumn(all, all[i], "The column")
			}
			positions = append(positions, i)
		}
	}
	for _, name := range names {
		at, err := findColumn(all, name, "keep_columns")
		if err != nil {
			return nil, err
		}
		positions = append(positions, at)
	}
	return positions, nil
}

func openParquetSource(r io.ReaderAt, size int64, opts Options, names []string) (*SourceReader, error) {
	f, err := columnar.Open(r, size, opts.Limits.Parquet)
	if err != nil {
		return nil, parquetError(err)
	}
	var all []string
	for _, c := range f.Columns() {
		all = append(all, c.Name)
	}
	positions, err := selectSource(all, names)
	if err != nil {
		return nil, err
	}
	rows := f.Rows(positions...)
	s := &SourceReader{close: func() { _ = rows.Close() }} // the file was only read
	for _, at := range positions {
		column := SourceColumn{Name: all[at]}
		if column.IDType, err = f.IDType(at); err != nil {
			s.Close()
			return nil, fmt.Errorf("read Parquet input: %w", err)
		}
		s.Columns = append(s.Columns, column)
	}
	s.next = func(values []rowmill.ID) (err error) {
		if err := rows.Next(); err != nil {
			if errors.Is(err, io.EOF) {
				return io.EOF
			}
			return parquetError(err)
		}
		for i := range positions {
			if values[i], err = rows.ID(i); err != nil {
				return parquetError(err)
			}
		}
		return nil
	}
	return s, nil
}

func openCSVSource(text *textReader, opts Options, names []string) (*SourceReader, error) {
	src, all, err := openCSVTable(text, opts)
	s := &SourceReader{close: text.close}
	var positions []int
	if err == nil {
		positions, err = selectSource(all, names)
	}
	if err != nil {
		s.Close()
		return nil, err
	}
	for _, at := range positions {
		s.Columns = append(s.Columns, SourceColumn{all[at], rowmill.IDType{IDKind: rowmill.IDString}})
	}
	s.next = func(values []rowmill.ID) error {
		if _, err := src.Read(); err != nil {
			if errors.Is(err, io.EOF) && src.text.file.err == nil {
				return io.EOF
			}
			return src.convertReadError(err)
		}
		for i, at := range positions {
			values[i] = rowmill.ID{Kind: rowmill.IDString, Text: string(src.Field(at))}
		}
		return nil
	}
	return s, nil
}

// openJSONSource opens columns of JSON Lines: the top-level members of the objects. It reads
// the whole file first, because each row may have other members and types. A column has
// numbers or booleans if all its values are; otherwise its values are texts. A row that is a
// string has no members.
func openJSONSource(r io.ReaderAt, size int64, opts Options, text *textReader, names []string) (*SourceReader, error) {
	columns, err := scanMembers(text, opts.Limits, names)
	text.close()
	if err != nil {
		return nil, err
	}
	_, file, packed, err := openSource(r, size, opts)
	if err != nil {
		return nil, err
	}
	if text, err = openText(file, packed, opts); err != nil {
		return nil, err
	}
	lines, position := newLines(text, opts.Limits.MaxRecordBytes), map[string]int{}
	for i, c := range columns {
		position[c.Name] = i
	}
	rows := &jsonRowReader{src: text, lines: lines}
	return &SourceReader{Columns: columns, close: text.close, next: func(values []rowmill.ID) error {
		clear(values)
		line, err := rows.nextObject()
		if err != nil || line[0] != '{' {
			return err
		}
		textfmt.VisitMembers(line, func(name string, _, value []byte) {
			if i, found := position[name]; found {
				values[i] = rows.typedValue(columns[i].IDKind, value)
			}
		})
		return nil
	}}, nil
}

// nextObject returns the next line that is not blank: a JSON object or a JSON string.
func (r *jsonRowReader) nextObject() ([]byte, error) {
	for {
		line, whole, err := r.lines.readLine()
		switch {
		case errors.Is(err, io.EOF) && r.src.file.err == nil:
			return nil, io.EOF
		case err != nil:
			return nil, r.src.convertReadError(err)
		}
		if line = bytes.TrimSpace(line); len(line) == 0 && whole {
			continue
		}
		if !whole || !json.Valid(line) || line[0] != '{' && line[0] != '"' {
			return nil, invalidFileError("Line %d of the JSON Lines input is not a JSON object, or has more than %d bytes.", r.lines.number, r.lines.maxBytes)
		}
		return line, nil
	}
}

// scanMembers returns the members in the lines of a file with their types: those in names, or
// all in the order of their first appearance if names is nil.
func scanMembers(text *textReader, limits Limits, names []string) ([]SourceColumn, error) {
	rows := &jsonRowReader{src: text, lines: newLines(text, limits.MaxRecordBytes)}
	kinds, found := map[string]rowmill.IDKind{}, []string{}
	for {
		line, err := rows.nextObject()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		if line[0] != '{' {
			continue
		}
		textfmt.VisitMembers(line, func(name string, _, value []byte) {
			before, seen := kinds[name]
			if !seen && len(found) < maxMembers {
				found = append(found, name)
			}
			if seen || names == nil || slices.Contains(names, name) {
				kinds[name] = commonKind(before, kindOfValue(value))
			}
		})
		if names == nil && len(kinds) > maxMembers {
			return nil, invalidFileError("The JSON Lines input has more than %d different members. Name the columns to keep in keep_columns.", maxMembers)
		}
	}
	if names == nil {
		names = found
	}
	if len(names) == 0 {
		return nil, invalidFileError("The rows are strings, which have no columns to keep. Leave out keep_columns.")
	}
	columns := make([]SourceColumn, 0, len(names))
	for _, name := range names {
		kind, seen := kinds[name]
		if !seen {
			return nil, invalidFileError("No object of the JSON Lines input has the member %s, which keep_columns names. %sThe input has %s.",
				quoteName(name), suggestColumn(found, name), describeColumns(found))
		}
		if kind == rowmill.IDNull {
			kind = rowmill.IDString // all values are null
		}
		columns = append(columns, SourceColumn{name, rowmill.IDType{IDKind: kind}})
	}
	return columns, nil
}

// maxMembers limits the columns of a JSON Lines file, which may have new members in each row.
// More columns make no useful table.
const maxMembers = 10_000

// kindOfValue returns the kind of a JSON value; IDNull for null, and IDString for a value that
// only a text can hold.
func kindOfValue(value []byte) rowmill.IDKind {
	switch value[0] {
	case 'n':
		return rowmill.IDNull
	case 't', 'f':
		return rowmill.IDBool
	case '"', '{', '[':
		return rowmill.IDString
	}
	if _, err := strconv.ParseInt(string(value), 10, 64); err == nil {
		return rowmill.IDInt
	}
	if _, err := strconv.ParseFloat(string(value), 64); err != nil { // too large
		return rowmill.IDString
	}
	if !bytes.ContainsAny(value, ".eE") { // an integer of more than 64 bits would lose digits
		return rowmill.IDString
	}
	return rowmill.IDFloat
}

// commonKind returns a kind that can hold the values of both kinds.
func commonKind(a, b rowmill.IDKind) rowmill.IDKind {
	numbers := []rowmill.IDKind{rowmill.IDInt, rowmill.IDFloat}
	switch {
	case a == rowmill.IDNull || a == b:
		return b
	case b == rowmill.IDNull:
		return a
	case slices.Contains(numbers, a) && slices.Contains(numbers, b):
		return rowmill.IDFloat
	}
	return rowmill.IDString
}

// typedValue returns a JSON value as a value of a column.
func (r *jsonRowReader) typedValue(kind rowmill.IDKind, value []byte) rowmill.ID {
	if value[0] == 'n' {
		return rowmill.ID{}
	}
	id := rowmill.ID{Kind: kind}
	switch kind {
	case rowmill.IDBool:
		if value[0] == 't' {
			id.Int = 1
		}
	case rowmill.IDInt:
		id.Int, _ = strconv.ParseInt(string(value), 10, 64) // kindOfValue has parsed all values of the column
	case rowmill.IDFloat:
		id.Real, _ = strconv.ParseFloat(string(value), 64)
	default:
		id.Text = r.formatValue(value)
	}
	return id
}

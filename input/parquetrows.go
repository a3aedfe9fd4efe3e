package input

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/internal/columnar"
)

// parquetRowReader is the Reader for Parquet files. It reads only the selected columns.
type parquetRowReader struct {
	rowCounter
	rows    *columnar.RowReader // reads the text columns, then the ID column if there is one
	columns *columnSelection    // the selected columns
	idType  rowmill.IDType
}

func openParquet(r io.ReaderAt, size int64, opts Options) (Reader, error) {
	f, err := columnar.Open(r, size, opts.Limits.Parquet)
	if err != nil {
		return nil, parquetError(err)
	}
	names := make([]string, len(f.Columns()))
	for i, c := range f.Columns() {
		names[i] = c.Name
	}
	columns, err := selectColumns(names, opts)
	if err != nil {
		return nil, err
	}
	if f.NumRows() > opts.Limits.MaxRows {
		return nil, invalidFileError("The Parquet input has %d rows, more than %d. Split it into several jobs.", f.NumRows(), opts.Limits.MaxRows)
	}
	rows := &parquetRowReader{rowCounter: newRowCounter(opts), columns: columns}
	rows.rowPosition = func() string { return "" }
	id := columns.id
	if id < 0 {
		rows.rows = f.Rows(columns.text...)
		return rows, nil
	}
	if c := f.Columns()[id]; c.Nested {
		return nil, invalidFileError("The id column %s is of type %s. Ids must be single values, such as strings or integers.", quoteName(c.Name), c.Type)
	}
	rows.rows = f.Rows(append(slices.Clone(columns.text), id)...)
	if rows.idType, err = f.IDType(id); err != nil {
		return nil, fmt.Errorf("read Parquet input: %w", err)
	}
	return rows, nil
}

func (r *parquetRowReader) Next(row *rowmill.Row) error {
	if err := r.rows.Next(); err != nil {
		if !errors.Is(err, io.EOF) {
			return parquetError(err)
		}
		return r.checkEnd("The Parquet input has no rows.")
	}
	if err := r.countRow(row); err != nil {
		return err
	}
	var err error
	if row.Text, err = r.columns.render(&r.rowCounter, r.rows.Text); err != nil {
		return parquetError(err)
	}
	row.ID, row.Fields = rowmill.ID{}, r.columns.keptFields
	if r.idType.IDKind == rowmill.IDNull {
		return nil
	}
	if row.ID, err = r.rows.ID(len(r.columns.text)); err != nil {
		return parquetError(err)
	}
	return r.checkSize("id", int64(len(row.ID.Text)))
}

func (r *parquetRowReader) IDType() rowmill.IDType { return r.idType }

func (r *parquetRowReader) Close() error { return r.rows.Close() }

// parquetError converts an error of package columnar. An error about the file's content
// becomes a *rowmill.Failure. A *rowmill.Failure is returned unchanged. Any other error
// means that reading failed.
func parquetError(err error) error {
	var (
		format  *columnar.FormatError
		failure *rowmill.Failure
	)
	if errors.As(err, &failure) {
		return failure
	}
	if errors.As(err, &format) {
		return invalidFileError("%s", format.Message)
	}
	return fmt.Errorf("read Parquet input: %w", err)
}

package results

import (
	"context"
	"errors"
	"fmt"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/internal/columnar"
)

const (
	// maxSearchRows and maxSearchBytes limit the rows and the bytes of text that one search
	// reads. A search of this size takes some tenths of a second, so no request keeps a
	// processor for long. The caller continues at the next row.
	maxSearchRows  = 250_000
	maxSearchBytes = 128 << 20
)

// ErrEnough is the error of a RowVisitor that needs no more rows.
var ErrEnough = errors.New("the visitor needs no more rows")

// A RowSearch calls Visit for the rows that Filter selects. It ends with the row after which Visit
// returns ErrEnough, and at the limit of one search.
type RowSearch struct {
	Filter RowFilter
	From   int64 // index of the first row
	Visit  RowVisitor

	Next int64 // index of the row where the next search must continue

	rows, bytes int
}

// AddRow examines one row and returns an error, ErrEnough too, if the search ends after it.
func (s *RowSearch) AddRow(row *rowmill.Row, out *rowmill.RowOutput) error {
	if row.Index < s.From {
		return nil
	}
	return s.examine(row, out, func() error { return s.Visit(row, out) })
}

// examine calls visit if the filter selects a row. It returns ErrEnough at the limit of the
// search.
func (s *RowSearch) examine(row *rowmill.Row, out *rowmill.RowOutput, visit func() error) error {
	s.Next = row.Index + 1
	code := ""
	if out.Err != nil {
		code = out.Err.Code
	}
	if s.Filter.selects(row.Text, out.Text, string(out.Finish), code) {
		if err := visit(); err != nil {
			return err
		}
	}
	s.rows++
	if s.bytes += len(row.Text) + len(out.Text); s.rows >= maxSearchRows || s.bytes >= maxSearchBytes {
		return ErrEnough
	}
	return nil
}

// SearchResults searches the files of a job that succeeded. full is the job's full file, and rows
// is its "rows" file. It reads only the columns that the filter needs, and the others for selected
// rows.
func (s *RowSearch) SearchResults(ctx context.Context, full, rows Source) error {
	err := s.searchResults(ctx, full, rows)
	if err != nil && !errors.Is(err, ErrEnough) {
		err = fmt.Errorf("search results: %w", err)
	}
	return err
}

func (s *RowSearch) searchResults(ctx context.Context, full, rows Source) error {
	content, reserved, err := openResultTables(full, rows)
	if err != nil {
		return err
	}
	selected, err := newAnswerReader(content, reserved, previewColumns()...)
	if err != nil {
		return err
	}
	examined, err := s.newFilterReader(selected.Schema, content, reserved)
	if err != nil {
		return err
	}
	for n := s.From; n < min(content.Rows(), reserved.Rows()); n++ {
		if n%checkEvery == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		if err := examined.readRow(n); err != nil {
			return err
		}
		examined.row.Index = n
		err := s.examine(examined.row, examined.out, func() error {
			if err := selected.readRow(n); err != nil {
				return err
			}
			return s.Visit(selected.row, selected.out)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// newFilterReader returns a reader of the columns that the filter needs.
func (s *RowSearch) newFilterReader(schema Schema, content, reserved *columnar.Table) (*rowReader, error) {
	var texts []string
	if s.Filter.Text != "" {
		texts = append(texts, columnInputs)
	}
	if s.Filter.readsAnswers() && !schema.Embedding {
		texts = append(texts, schema.OutputName())
	}
	last, err := newRowScan(reserved, columnFinish, columnCode)
	if err != nil {
		return nil, err
	}
	if len(texts) == 0 {
		return newRowReader(schema, last), nil
	}
	first, err := newRowScan(content, texts...)
	if err != nil {
		return nil, err
	}
	return newRowReader(schema, first, last), nil
}

package results

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/rowmill/rowmill/internal/columnar"
)

// rowScan reads some columns of a table at any row. It keeps one block in memory, so
// reading rows in ascending order is fast.
type rowScan struct {
	columns []columnar.TableColumn // the scanned columns
	values  []any                  // for each column, where a rowReader stores the value: the results of its cellFunc
	has     []*bool
	scan    *columnar.TableScan
	block   *columnar.RowBlock // the block that was read last; nil until the first read
}

// newRowScan returns a scan of the named columns.
func newRowScan(t *columnar.Table, names ...string) (*rowScan, error) {
	s := &rowScan{}
	var at []int
	for _, name := range names {
		c := t.ColumnPosition(name)
		if c < 0 {
			return nil, fmt.Errorf("the file has no column %q", name)
		}
		at = append(at, c)
		s.columns = append(s.columns, t.Columns()[c])
	}
	s.scan = t.Scan(at...)
	return s, nil
}

// blockAt returns the block with the row at a position of the table, and the row's position
// in this block.
func (s *rowScan) blockAt(position int64) (*columnar.RowBlock, int, error) {
	if s.block == nil || position < s.block.First || position >= s.block.First+int64(s.block.Rows) {
		err := s.scan.SeekRow(position)
		if err == nil {
			s.block, err = s.scan.Next()
		}
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			s.block = nil
			return nil, 0, err
		}
	}
	return s.block, int(position - s.block.First), nil
}

// each calls visit for the rows at positions from (included) to to (excluded). It stops
// when visit returns false or an error.
func (s *rowScan) each(ctx context.Context, from, to int64, visit func(b *columnar.RowBlock, i int) (more bool, err error)) error {
	for at := from; at < to; at++ {
		if (at-from)%checkEvery == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		b, i, err := s.blockAt(at)
		if err != nil {
			return err
		}
		if more, err := visit(b, i); err != nil || !more {
			return err
		}
	}
	return nil
}

// cellText returns the text of row i in column c. It returns an empty string for a null,
// and for a column that is not scanned (-1).
func cellText(b *columnar.RowBlock, c, i int) string {
	if c < 0 || b.IsNull(c, i) {
		return ""
	}
	return string(b.Text(c, i))
}

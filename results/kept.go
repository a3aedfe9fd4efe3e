package results

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/internal/columnar"
)

// A KeptColumn is a column of the input that result files can repeat.
type KeptColumn struct {
	Name string
	rowmill.IDType
}

// CheckKept returns an error if a column of the input cannot be in a file with schema s,
// because a column of the results has its name.
func (s Schema) CheckKept(name string) error {
	if IsReservedName(name) || name == s.OutputName() {
		return fmt.Errorf("the column %q of the input has the name of a column of the results", name)
	}
	return nil
}

// WriteKept writes columns of an input as a Parquet file. next fills values with the values of
// the next row, one for each column, and returns io.EOF after the last row.
func WriteKept(ctx context.Context, w io.Writer, columns []KeptColumn, next func(values []rowmill.ID) error) error {
	var table []columnar.TableColumn
	for _, c := range columns {
		table = append(table, columnar.TableColumn{Name: c.Name, Kind: idColumnKind(c.IDKind), Leaf: c.IDLeaf})
	}
	to, err := columnar.NewTableWriter(w, table, nil, columnar.TableConfig{})
	if err != nil {
		return fmt.Errorf("write kept columns: %w", err)
	}
	values := make([]rowmill.ID, len(columns))
	for row := 0; ; row++ {
		if row%checkEvery == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		err := next(values)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		for c := range values {
			appendID(to, c, &values[c])
		}
		if err := to.EndRow(); err != nil {
			return fmt.Errorf("write kept columns: %w", err)
		}
	}
	if err := to.Close(); err != nil {
		return fmt.Errorf("write kept columns: %w", err)
	}
	return nil
}

// ListColumns returns the names of the columns of a file.
func ListColumns(src Source) ([]string, error) {
	t, err := openTable(src)
	if err != nil {
		return nil, fmt.Errorf("list columns: %w", err)
	}
	return namesOf(t.Columns()), nil
}

// WriteWithKept writes the full file again, with the columns of the file kept before its own
// columns. chosen has the numbers of the full file's rows in the file kept; nil if both have
// the same rows. The ID and the fields of a Function are not repeated if kept has them.
func WriteWithKept(ctx context.Context, w io.Writer, full, kept Source, chosen *roaring.Bitmap) error {
	err := writeWithKept(ctx, w, full, kept, chosen)
	if err != nil {
		return fmt.Errorf("write the results with kept columns: %w", err)
	}
	return nil
}

func writeWithKept(ctx context.Context, w io.Writer, full, kept Source, chosen *roaring.Bitmap) error {
	own, err := openTable(full)
	if err != nil {
		return err
	}
	s, err := schemaOf(own)
	if err != nil {
		return err
	}
	beside, err := openTable(kept)
	if err != nil {
		return err
	}
	if rows := uint64(own.Rows()); chosen == nil && beside.Rows() != own.Rows() || chosen != nil && chosen.GetCardinality() != rows { //nolint:gosec // not negative
		return fmt.Errorf("the results have %d rows, and the input has other rows", rows)
	}
	for _, c := range beside.Columns() {
		if c.Name == s.IDColumn {
			continue
		}
		if err := s.CheckKept(c.Name); err != nil {
			return err
		}
		s.Kept = append(s.Kept, c)
	}
	s.Fields = slices.DeleteFunc(s.Fields, func(name string) bool { return slices.Contains(namesOf(s.Kept), name) })
	all := s.variantColumns(FileVariant{Inputs: true, Logprobs: true, Columns: AllColumns})
	to, err := columnar.NewTableWriter(w, all, s.meta(), columnar.TableConfig{})
	if err != nil {
		return err
	}
	first, err := newRowScan(beside, namesOf(s.Kept)...)
	if err != nil {
		return err
	}
	second, err := newRowScan(own, namesOf(all[len(s.Kept):])...)
	if err != nil {
		return err
	}
	if err := eachRowPair(ctx, own.Rows(), first, second, chosen, func(a *columnar.RowBlock, i int, b *columnar.RowBlock, j int) error {
		to.CopyCells(a, i, 0)
		to.CopyCells(b, j, len(s.Kept))
		return to.EndRow()
	}); err != nil {
		return err
	}
	return to.Close()
}

// eachRowPair calls visit for each of the first rows of second, with the same row of first:
// the row at this position, or the row whose number chosen has at this position.
func eachRowPair(ctx context.Context, rows int64, first, second *rowScan, chosen *roaring.Bitmap, visit func(a *columnar.RowBlock, i int, b *columnar.RowBlock, j int) error) error {
	var numbers roaring.IntPeekable
	if chosen != nil {
		numbers = chosen.Iterator()
	}
	for row := range rows {
		if row%checkEvery == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		number := row
		if numbers != nil {
			number = int64(numbers.Next())
		}
		a, i, err := first.blockAt(number)
		if err != nil {
			return err
		}
		b, j, err := second.blockAt(row)
		if err != nil {
			return err
		}
		if err := visit(a, i, b, j); err != nil {
			return err
		}
	}
	return nil
}

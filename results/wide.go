package results

import (
	"context"
	"encoding/json"
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

// WriteWide writes the full file again with more columns: the columns of the file kept before
// its own columns, and the properties of the answers after them. kept is nil if the job keeps
// no columns. chosen has the numbers of the full file's rows in the file kept; nil if both
// have the same rows. answers is the JSON Schema of the answers, or empty. The ID and the
// fields of a Function are not repeated if kept has them.
func WriteWide(ctx context.Context, w io.Writer, full, kept Source, chosen *roaring.Bitmap, answers json.RawMessage) error {
	wide := &wideFile{}
	err := wide.open(full, kept, answers)
	if err == nil {
		err = wide.write(ctx, w, chosen)
	}
	if err != nil {
		return fmt.Errorf("write the results with more columns: %w", err)
	}
	return nil
}

// A wideFile is the full file with more columns.
type wideFile struct {
	schema     Schema
	properties []property // the unpacked columns of the schema
	own, kept  *columnar.Table
}

// open reads the schemas of the files, and sets the schema of the wide file.
func (f *wideFile) open(full, kept Source, answers json.RawMessage) (err error) {
	if f.own, err = openTable(full); err != nil {
		return err
	}
	if f.schema, err = schemaOf(f.own); err != nil {
		return err
	}
	s := &f.schema
	if kept != nil {
		if f.kept, err = openTable(kept); err != nil {
			return err
		}
		for _, c := range f.kept.Columns() {
			if c.Name == s.IDColumn {
				continue
			}
			if err := s.CheckKept(c.Name); err != nil {
				return err
			}
			s.Kept = append(s.Kept, c)
		}
		s.Fields = slices.DeleteFunc(s.Fields, func(name string) bool { return slices.Contains(namesOf(s.Kept), name) })
	}
	if !s.Embedding {
		f.properties = listProperties(answers)
	}
	for _, p := range f.properties {
		name := p.name
		if IsReservedName(name) || slices.Contains(namesOf(s.variantColumns(Wide)), name) {
			name = s.OutputName() + "." + name
		}
		s.Unpacked = append(s.Unpacked, columnar.TableColumn{Name: name, Kind: p.kind})
	}
	return s.Validate()
}

func (f *wideFile) write(ctx context.Context, w io.Writer, chosen *roaring.Bitmap) error {
	rows := uint64(f.own.Rows()) //nolint:gosec // not negative
	if f.kept != nil && (chosen == nil && f.kept.Rows() != f.own.Rows() || chosen != nil && chosen.GetCardinality() != rows) {
		return fmt.Errorf("the results have %d rows, and the input has other rows", rows)
	}
	s := f.schema
	all := s.variantColumns(Wide)
	to, err := columnar.NewTableWriter(w, all, s.meta(), columnar.TableConfig{})
	if err != nil {
		return err
	}
	own := all[len(s.Kept) : len(all)-len(s.Unpacked)]
	output := slices.IndexFunc(own, func(c columnar.TableColumn) bool { return c.Name == s.OutputName() })
	second, err := newRowScan(f.own, namesOf(own)...)
	if err != nil {
		return err
	}
	var first *rowScan
	if f.kept != nil {
		if first, err = newRowScan(f.kept, namesOf(s.Kept)...); err != nil {
			return err
		}
	}
	if err := eachRowPair(ctx, f.own.Rows(), first, second, chosen, func(a *columnar.RowBlock, i int, b *columnar.RowBlock, j int) error {
		if a != nil {
			to.CopyCells(a, i, 0)
		}
		to.CopyCells(b, j, len(s.Kept))
		if len(f.properties) > 0 {
			appendProperties(to, len(all)-len(s.Unpacked), f.properties, cellText(b, output, j))
		}
		return to.EndRow()
	}); err != nil {
		return err
	}
	return to.Close()
}

// eachRowPair calls visit for each of the first rows of second, with the same row of first:
// the row at this position, or the row whose number chosen has at this position. If first is
// nil, visit gets no block of it.
func eachRowPair(ctx context.Context, rows int64, first, second *rowScan, chosen *roaring.Bitmap, visit func(a *columnar.RowBlock, i int, b *columnar.RowBlock, j int) error) error {
	var numbers roaring.IntPeekable
	if chosen != nil && first != nil {
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
		var a *columnar.RowBlock
		var i int
		if first != nil {
			var err error
			if a, i, err = first.blockAt(number); err != nil {
				return err
			}
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

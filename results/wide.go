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

// metaColumns returns the columns about the run of each row, and the reserved columns that have
// their values.
func metaColumns() (shown []columnar.TableColumn, reserved []string) {
	for _, c := range []struct {
		name, reserved string
		kind           columnar.TableKind
	}{
		{"finish_reason", columnFinish, columnar.TableText},
		{"input_tokens", columnInputTokens, columnar.TableInt},
		{"output_tokens", columnOutputTokens, columnar.TableInt},
		{"server", columnEngine, columnar.TableText},
		{"duration_seconds", columnSeconds, columnar.TableReal},
		{"attempts", columnAttempts, columnar.TableInt},
		{"error_code", columnCode, columnar.TableText},
		{"error", columnMessage, columnar.TableText},
	} {
		shown, reserved = append(shown, columnar.TableColumn{Name: c.name, Kind: c.kind}), append(reserved, c.reserved)
	}
	return shown, reserved
}

// A WideSource has the files and settings from which WriteWide makes a file.
type WideSource struct {
	Full          Source          // the full file, or another file with its columns
	Rows          Source          // the "rows" file, or another file with its columns
	Kept          Source          // columns of the input, see WriteKept; nil if the job keeps none
	Chosen        *roaring.Bitmap // numbers of the rows of Full in Kept; nil if both have the same rows
	Answers       json.RawMessage // JSON Schema of the answers; empty if there is none
	Specification string          // JSON of the job's settings
}

// WriteWide writes the full file again with more columns: columns of the input before its own
// columns, and properties of the answers and columns about the run of each row after them. The
// ID and the fields of a Function are not repeated if the kept columns have them.
func WriteWide(ctx context.Context, w io.Writer, from WideSource) error {
	wide := &wideFile{WideSource: from}
	err := wide.open()
	if err == nil {
		err = wide.write(ctx, w)
	}
	if err != nil {
		return fmt.Errorf("write the results with more columns: %w", err)
	}
	return nil
}

// A wideFile is the full file with more columns.
type wideFile struct {
	WideSource
	schema          Schema
	properties      []property // the unpacked columns of the schema
	own, rows, kept *columnar.Table
}

// open reads the schemas of the files, and sets the schema of the wide file.
func (f *wideFile) open() (err error) {
	if f.own, f.rows, err = openResultTables(f.Full, f.Rows); err != nil {
		return err
	}
	if f.schema, err = schemaOf(f.own); err != nil {
		return err
	}
	s := &f.schema
	s.Specification = f.Specification
	if f.Kept != nil {
		if f.kept, err = openTable(f.Kept); err != nil {
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
		f.properties = listProperties(f.Answers)
	}
	for _, p := range f.properties {
		s.Unpacked = append(s.Unpacked, columnar.TableColumn{Name: s.freeName(p.name), Kind: p.kind})
	}
	about, _ := metaColumns()
	for _, c := range about {
		c.Name = s.freeName(c.Name)
		s.Meta = append(s.Meta, c)
	}
	return s.Validate()
}

// freeName returns a name for a new column: name, or OUTPUT.name if another column has the name.
func (s Schema) freeName(name string) string {
	if IsReservedName(name) || slices.Contains(namesOf(s.variantColumns(Wide)), name) {
		return s.OutputName() + "." + name
	}
	return name
}

func (f *wideFile) write(ctx context.Context, w io.Writer) error {
	rows := uint64(f.own.Rows()) //nolint:gosec // not negative
	if f.kept != nil && (f.Chosen == nil && f.kept.Rows() != f.own.Rows() || f.Chosen != nil && f.Chosen.GetCardinality() != rows) {
		return fmt.Errorf("the results have %d rows, and the input has other rows", rows)
	}
	s := f.schema
	all := s.variantColumns(Wide)
	to, err := columnar.NewTableWriter(w, all, s.meta(), columnar.TableConfig{})
	if err != nil {
		return err
	}
	unpacked := len(all) - len(s.Meta) - len(s.Unpacked) // position of the first unpacked column
	own := all[len(s.Kept):unpacked]
	output := slices.IndexFunc(own, func(c columnar.TableColumn) bool { return c.Name == s.OutputName() })
	var scans wideScans
	_, reserved := metaColumns()
	if scans.own, err = newRowScan(f.own, namesOf(own)...); err != nil {
		return err
	}
	if scans.rows, err = newRowScan(f.rows, reserved...); err != nil {
		return err
	}
	if len(s.Kept) > 0 {
		if scans.kept, err = newRowScan(f.kept, namesOf(s.Kept)...); err != nil {
			return err
		}
	}
	if f.Chosen != nil {
		scans.numbers = f.Chosen.Iterator()
	}
	for row := range f.own.Rows() {
		if row%checkEvery == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		number := row
		if scans.numbers != nil {
			number = int64(scans.numbers.Next())
		}
		if scans.kept != nil {
			if err := scans.kept.copyRow(to, number, 0); err != nil {
				return err
			}
		}
		if err := scans.own.copyRow(to, row, len(s.Kept)); err != nil {
			return err
		}
		if len(f.properties) > 0 {
			b, i, err := scans.own.blockAt(row)
			if err != nil {
				return err
			}
			appendProperties(to, unpacked, f.properties, cellText(b, output, i))
		}
		if err := scans.rows.copyRow(to, row, len(all)-len(s.Meta)); err != nil {
			return err
		}
		if err := to.EndRow(); err != nil {
			return err
		}
	}
	return to.Close()
}

// wideScans are the scans of the files of a wide file.
type wideScans struct {
	kept, own, rows *rowScan
	numbers         roaring.IntPeekable // numbers of the rows in kept; nil if they are the positions in own
}

// copyRow copies the row at a position to the columns of a table from first on.
func (s *rowScan) copyRow(to *columnar.TableWriter, position int64, first int) error {
	b, i, err := s.blockAt(position)
	if err != nil {
		return err
	}
	to.CopyCells(b, i, first)
	return nil
}

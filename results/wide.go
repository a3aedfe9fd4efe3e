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
	wide, err := OpenWide(from)
	if err != nil {
		return err
	}
	return wide.Write(ctx, w, Wide, 0, wide.Rows())
}

// OpenWide opens the rows of a job with all columns that WriteWide writes. The caller closes the
// files of the source.
func OpenWide(from WideSource) (*WideFile, error) {
	wide := &WideFile{source: from}
	if err := wide.open(); err != nil {
		return nil, fmt.Errorf("open the results with more columns: %w", err)
	}
	return wide, nil
}

// Rows returns the number of rows.
func (f *WideFile) Rows() int64 { return f.own.Rows() }

// Write writes the rows from first (included) to end (excluded) as a Parquet file of a variant.
func (f *WideFile) Write(ctx context.Context, w io.Writer, v FileVariant, first, end int64) error {
	if err := f.write(ctx, w, v, first, end); err != nil {
		return fmt.Errorf("write the results with more columns: %w", err)
	}
	return nil
}

// A WideFile is the full file with more columns.
type WideFile struct {
	source          WideSource
	schema          Schema
	properties      []property // the unpacked columns of the schema
	own, rows, kept *columnar.Table
}

// open reads the schemas of the files, and sets the schema of the wide file.
func (f *WideFile) open() (err error) {
	if f.own, f.rows, err = openResultTables(f.source.Full, f.source.Rows); err != nil {
		return err
	}
	if f.schema, err = schemaOf(f.own); err != nil {
		return err
	}
	s := &f.schema
	s.Specification = f.source.Specification
	if f.source.Kept != nil {
		if f.kept, err = openTable(f.source.Kept); err != nil {
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
		f.properties = listProperties(f.source.Answers)
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

func (f *WideFile) write(ctx context.Context, w io.Writer, v FileVariant, first, end int64) error {
	rows := uint64(f.own.Rows()) //nolint:gosec // not negative
	if f.kept != nil && (f.source.Chosen == nil && f.kept.Rows() != f.own.Rows() || f.source.Chosen != nil && f.source.Chosen.GetCardinality() != rows) {
		return fmt.Errorf("the results have %d rows, and the input has other rows", rows)
	}
	shown := f.schema
	shown.Kept = slices.DeleteFunc(slices.Clone(shown.Kept), func(c columnar.TableColumn) bool { return !v.Columns.Has(c.Name) })
	properties := f.properties
	if !v.Unpack {
		shown.Unpacked, properties = nil, nil
	}
	if !v.Meta {
		shown.Meta = nil
	}
	all := shown.variantColumns(v)
	to, err := columnar.NewTableWriter(w, all, shown.meta(), columnar.TableConfig{})
	if err != nil {
		return err
	}
	unpacked := len(all) - len(shown.Meta) - len(shown.Unpacked) // position of the first unpacked column
	own := all[len(shown.Kept):unpacked]
	output := slices.IndexFunc(own, func(c columnar.TableColumn) bool { return c.Name == shown.OutputName() })
	var scans wideScans
	if scans.own, err = newRowScan(f.own, namesOf(own)...); err != nil {
		return err
	}
	if v.Meta {
		_, reserved := metaColumns()
		if scans.rows, err = newRowScan(f.rows, reserved...); err != nil {
			return err
		}
	}
	if len(shown.Kept) > 0 {
		if scans.kept, err = newRowScan(f.kept, namesOf(shown.Kept)...); err != nil {
			return err
		}
	}
	if f.source.Chosen != nil {
		scans.numbers = f.source.Chosen.Iterator()
		for range first {
			scans.numbers.Next()
		}
	}
	for row := first; row < end; row++ {
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
		if err := scans.own.copyRow(to, row, len(shown.Kept)); err != nil {
			return err
		}
		if len(properties) > 0 {
			b, i, err := scans.own.blockAt(row)
			if err != nil {
				return err
			}
			appendProperties(to, unpacked, properties, cellText(b, output, i))
		}
		if scans.rows != nil {
			if err := scans.rows.copyRow(to, row, len(all)-len(shown.Meta)); err != nil {
				return err
			}
		}
		if err := to.EndRow(); err != nil {
			return err
		}
	}
	return to.Close()
}

// wideScans are the scans of the files of a wide file; nil for files without a column to write.
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

package results

import (
	"context"
	"fmt"
	"io"

	"golang.org/x/sync/errgroup"

	"github.com/rowmill/rowmill/columnar"
	"github.com/rowmill/rowmill/contain"
)

// Variant says which optional columns a client's file has. The ID column and
// the output are in all of them.
type Variant struct {
	Inputs   bool // the column inputs
	Logprobs bool // the column cumulative_logprobs
}

// Full is the variant that the others, and the exports, are made from.
var Full = Variant{Inputs: true, Logprobs: true}

// Name tells the variants apart in keys and file names, such as
// "inputs=1~logprobs=0".
func (v Variant) Name() string {
	digit := func(b bool) byte {
		if b {
			return '1'
		}
		return '0'
	}
	return fmt.Sprintf("inputs=%c~logprobs=%c", digit(v.Inputs), digit(v.Logprobs))
}

// Filename is the name clients download a variant under; ext is "parquet",
// "json" or "zip".
func Filename(jobID string, v Variant, ext string) string {
	return fmt.Sprintf("service-results~%s~%s.%s", jobID, v.Name(), ext)
}

// Concat writes variant v of the complete parts of a job, all shards in order
// from row 0, by copying their column chunks. A row that is missing or out of
// place is an error. It returns the number of rows.
func Concat(ctx context.Context, w io.Writer, s Schema, parts []Source, v Variant) (int64, error) {
	return concat(ctx, w, s, parts, s.variantColumns(v), false)
}

// ConcatRows is Concat for the reserved columns and the attempts at rows: how each
// row came about, which Failures and ReadRow read.
func ConcatRows(ctx context.Context, w io.Writer, s Schema, parts []Source) (int64, error) {
	return concat(ctx, w, s, parts, s.rowsColumns(), true)
}

func concat(ctx context.Context, w io.Writer, s Schema, parts []Source, columns []columnar.TableColumn, tries bool) (int64, error) {
	if err := s.Validate(); err != nil {
		return 0, fmt.Errorf("concatenate parts: %w", err)
	}
	splice, err := columnar.NewSplicer(w, columns, s.meta())
	if err != nil {
		return 0, fmt.Errorf("concatenate parts: %w", err)
	}
	rows := int64(0)
	var tables []*columnar.Table
	for i := range parts {
		if len(tables) == 0 {
			if tables, err = openAll(ctx, parts[i:min(i+openAtOnce, len(parts))], i); err != nil {
				return 0, err
			}
		}
		t := tables[0]
		tables = tables[1:]
		low, high, ok := denseRange(t)
		if t.Rows() == 0 {
			continue
		}
		if !ok || low != rows {
			return 0, fmt.Errorf("concatenate part %d: it is not complete from row %d on: its %d rows lie in %d to %d", i, rows, t.Rows(), low, high)
		}
		rows = high + 1
		if err := splice.Append(ctx, t); err != nil {
			return 0, fmt.Errorf("concatenate part %d: %w", i, err)
		}
		if !tries {
			continue
		}
		if err := copyTries(splice, t); err != nil {
			return 0, fmt.Errorf("concatenate part %d: %w", i, err)
		}
	}
	if err := splice.Close(); err != nil {
		return 0, fmt.Errorf("concatenate parts: %w", err)
	}
	return rows, nil
}

// openAll opens parts together, of which the first has that number: a job of a thousand
// million rows has sixty thousand, and each is a request or two.
func openAll(ctx context.Context, parts []Source, number int) ([]*columnar.Table, error) {
	tables := make([]*columnar.Table, len(parts))
	var g errgroup.Group
	for i, src := range parts {
		g.Go(func() error {
			if err := ctx.Err(); err != nil {
				return err
			}
			err := contain.Run(func() (err error) {
				tables[i], err = open(src)
				return err
			})
			if err != nil {
				return fmt.Errorf("concatenate part %d: %w", number+i, err)
			}
			return nil
		})
	}
	return tables, g.Wait()
}

// denseRange is the first and the last row of a part; ok reports that it has
// every row between, row group by row group.
func denseRange(t *columnar.Table) (low, high int64, ok bool) {
	c := t.Column(columnRow)
	if c < 0 {
		return 0, -1, false
	}
	ok = true
	for g := range t.Groups() {
		from, to := t.GroupRows(g)
		first, last, known := t.GroupInts(g, c)
		if !known || last-first != to-from-1 || g > 0 && first != high+1 {
			ok = false
		}
		if g == 0 {
			low = first
		}
		high = last
	}
	return low, high, ok
}

// Subset writes variant v of src, the full file or another that has the
// variant's columns, by copying column chunks.
func Subset(ctx context.Context, w io.Writer, src Source, s Schema, v Variant) error {
	if err := s.Validate(); err != nil {
		return fmt.Errorf("write %s: %w", v.Name(), err)
	}
	t, err := open(src)
	if err != nil {
		return fmt.Errorf("write %s: %w", v.Name(), err)
	}
	splice, err := columnar.NewSplicer(w, s.variantColumns(v), s.meta())
	if err != nil {
		return fmt.Errorf("write %s: %w", v.Name(), err)
	}
	if err := splice.Append(ctx, t); err != nil {
		return fmt.Errorf("write %s: %w", v.Name(), err)
	}
	if err := splice.Close(); err != nil {
		return fmt.Errorf("write %s: %w", v.Name(), err)
	}
	return nil
}

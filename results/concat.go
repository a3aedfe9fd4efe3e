package results

import (
	"context"
	"fmt"
	"io"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/rowmill/rowmill/internal/columnar"
	"github.com/rowmill/rowmill/internal/panics"
)

// Name returns the variant's name in object keys and file names, such as
// "inputs=1~logprobs=0".
func (v FileVariant) Name() string {
	var names []string
	for _, o := range v.Options() {
		names = append(names, o.name+map[bool]string{true: "=1", false: "=0"}[*o.Value])
	}
	if v.Unpack {
		names = append(names, "unpack=1")
	}
	if v.Meta {
		names = append(names, "meta=1")
	}
	switch v.Columns {
	case "":
	case AllColumns:
		names = append(names, "columns=all")
	default: // the names may be long and have any characters
		names = append(names, "columns=some")
	}
	return strings.Join(names, "~")
}

// Filename returns the name of a variant as a file of its own, behind a signed URL. ext is "parquet".
func Filename(jobID string, v FileVariant, ext string) string {
	return fmt.Sprintf("service-results~%s~%s.%s", jobID, v.Name(), ext)
}

// ConcatParts writes variant v of a job's results to w. It copies column chunks without
// decoding. parts are the complete parts of all shards, in order, from row 0 on. A
// missing row or a row in the wrong position is an error. ConcatParts returns the number of
// rows.
func ConcatParts(ctx context.Context, w io.Writer, s Schema, parts []Source, v FileVariant) (int64, error) {
	return concatColumns(ctx, w, s, parts, s.variantColumns(v), false)
}

// JoinParts concatenates the complete parts of some shards into one part with the same
// columns. It copies column chunks without decoding. The parts must follow each other
// from row first on. The columns for clients become one contiguous byte range and the
// reserved columns another, so the object store can build both result files by
// server-side copy. JoinParts returns the number of rows.
func JoinParts(ctx context.Context, w io.Writer, s Schema, first int64, parts []Source) (int64, error) {
	next := first
	err := writeSpliced(w, s, s.columns(), func(to *columnar.Splicer) error {
		to.SetFirstTrailingColumn(len(s.variantColumns(Full)))
		var tried []*columnar.Table
		err := eachTable(ctx, parts, func(t *columnar.Table) error {
			if len(t.Keys(triesPrefix)) > 0 {
				tried = append(tried, t)
			}
			return appendPart(ctx, to, t, &next)
		})
		for _, t := range tried {
			if err == nil {
				err = copyAttempts(to, t)
			}
		}
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("join parts: %w", err)
	}
	return next - first, nil
}

// writeSpliced writes a file with the given columns. The function add must append the parts
// to the file.
func writeSpliced(w io.Writer, s Schema, columns []columnar.TableColumn, add func(*columnar.Splicer) error) error {
	if err := s.Validate(); err != nil {
		return err
	}
	to, err := columnar.NewSplicer(w, columns, s.meta())
	if err != nil {
		return err
	}
	if err := add(to); err != nil {
		return err
	}
	return to.Close()
}

// eachTable opens the parts in batches of openAtOnce, and calls visit for each part in
// order.
func eachTable(ctx context.Context, parts []Source, visit func(t *columnar.Table) error) error {
	for at := 0; at < len(parts); at += openAtOnce {
		tables, err := openAll(ctx, parts[at:min(at+openAtOnce, len(parts))], at)
		if err != nil {
			return err
		}
		for i, t := range tables {
			tables[i] = nil // release the table now: its footer may be large
			if err := visit(t); err != nil {
				return fmt.Errorf("part %d: %w", at+i, err)
			}
		}
	}
	return nil
}

// appendPart appends a complete part. It returns an error if the part does not begin at
// row next. It sets next to the row after the part.
func appendPart(ctx context.Context, splice *columnar.Splicer, t *columnar.Table, next *int64) error {
	if t.Rows() == 0 {
		return nil
	}
	low, high, ok := denseRange(t)
	if !ok || low != *next {
		return fmt.Errorf("the part must have all rows from row %d on in order, but it has %d rows from %d to %d", *next, t.Rows(), low, high)
	}
	*next = high + 1
	return splice.Append(ctx, t)
}

// ConcatRows is like ConcatParts, but writes the "rows" file: the reserved columns and the
// attempts at rows. ListFailures and ReadRow read this file.
func ConcatRows(ctx context.Context, w io.Writer, s Schema, parts []Source) (int64, error) {
	return concatColumns(ctx, w, s, parts, s.reservedColumns(), true)
}

// concatColumns implements ConcatParts and ConcatRows. If withAttempts is true, it also
// copies the attempts at rows.
func concatColumns(ctx context.Context, w io.Writer, s Schema, parts []Source, columns []columnar.TableColumn, withAttempts bool) (int64, error) {
	rows := int64(0)
	err := writeSpliced(w, s, columns, func(to *columnar.Splicer) error {
		return eachTable(ctx, parts, func(t *columnar.Table) error {
			if err := appendPart(ctx, to, t, &rows); err != nil || !withAttempts {
				return err
			}
			return copyAttempts(to, t)
		})
	})
	if err != nil {
		return 0, fmt.Errorf("concatenate parts: %w", err)
	}
	return rows, nil
}

// openAll opens parts in parallel. A job of a thousand million rows has sixty thousand
// parts, and opening a part costs one or two requests. number is the number of the
// first part, for error messages.
func openAll(ctx context.Context, parts []Source, number int) ([]*columnar.Table, error) {
	tables := make([]*columnar.Table, len(parts))
	var g errgroup.Group
	for i, src := range parts {
		openInGroup(ctx, &g, number+i, func() (err error) {
			tables[i], err = openTable(src)
			return err
		})
	}
	return tables, g.Wait()
}

// openInGroup calls open in a goroutine of g. A panic becomes an error. number is the
// number of the part, for error messages.
func openInGroup(ctx context.Context, g *errgroup.Group, number int, open func() error) {
	g.Go(func() error {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := panics.Catch(open); err != nil {
			return fmt.Errorf("part %d: %w", number, err)
		}
		return nil
	})
}

// denseRange returns the first and the last row index of a part. ok is true if the part
// has every row between them, and its row groups are in the order of the rows.
func denseRange(t *columnar.Table) (low, high int64, ok bool) {
	c := t.ColumnPosition(columnRow)
	if c < 0 {
		return 0, -1, false
	}
	ok = true
	for g := range t.Groups() {
		from, to := t.GroupRows(g)
		first, last, known := t.GroupIntRange(g, c)
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

// WriteSubset writes variant v of src to w. It copies column chunks without decoding. src is
// the full file or another file that has the variant's columns.
func WriteSubset(ctx context.Context, w io.Writer, src Source, s Schema, v FileVariant) error {
	t, err := openTable(src)
	if err == nil {
		err = writeSpliced(w, s, s.variantColumns(v), func(to *columnar.Splicer) error { return to.Append(ctx, t) })
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", v.Name(), err)
	}
	return nil
}

package results

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"

	"github.com/rowmill/rowmill/internal/columnar"
	"github.com/rowmill/rowmill/internal/textfmt"
)

// exportBytes is the number of bytes of an export that are buffered before they are
// written.
const exportBytes = 64 << 10

// exporter reads the columns of a FileVariant from the full file, and writes them as JSON
// or CSV text.
type exporter struct {
	ctx            context.Context
	t              *columnar.Table
	schema         Schema
	columns        []columnar.TableColumn // columns of the variant
	tablePositions []int                  // tablePositions[c] is the position of columns[c] in t
	w              io.Writer
	buf            []byte
	leaves         []*columnar.LeafType // for each column: its type if the kind is TableLeaf, else nil
	floats         []float32            // buffer for an embedding
	row            []byte               // buffer for a cell
	err            error                // error of the last appendValue
}

func newExporter(ctx context.Context, w io.Writer, full Source, s Schema, v FileVariant) (*exporter, error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	t, err := openTable(full)
	if err != nil {
		return nil, err
	}
	e := &exporter{ctx: ctx, t: t, w: w, schema: s, columns: s.variantColumns(v)}
	for _, c := range e.columns {
		at := t.ColumnPosition(c.Name)
		if at < 0 || t.Columns()[at] != c {
			return nil, fmt.Errorf("the file has no column %q of the schema's type", c.Name)
		}
		var leaf *columnar.LeafType
		if c.Kind == columnar.TableLeaf {
			if leaf, err = columnar.ParseLeaf(c.Leaf); err != nil {
				return nil, err
			}
		}
		e.tablePositions, e.leaves = append(e.tablePositions, at), append(e.leaves, leaf)
	}
	return e, nil
}

// each reads the given columns of the table and calls row for every row. It writes the
// buffer when it is full.
func (e *exporter) each(columns []int, row func(b *columnar.RowBlock, i int)) error {
	scan := e.t.Scan(columns...)
	for {
		if err := e.ctx.Err(); err != nil {
			return err
		}
		b, err := scan.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		for i := range b.Rows {
			if row(b, i); e.err != nil {
				return e.err
			}
			if len(e.buf) >= exportBytes {
				if err := e.flush(); err != nil {
					return err
				}
			}
		}
	}
}

// flush writes the buffered text.
func (e *exporter) flush() error {
	_, err := e.w.Write(e.buf)
	e.buf = e.buf[:0]
	return err
}

// appendValue appends a value that is not null to the buffer, as JSON or as a CSV cell.
// c is the column's position in the variant, at is its position in the block, and i is
// the position of the row in the block.
func (e *exporter) appendValue(b *columnar.RowBlock, c, at, i int, asJSON bool) {
	switch e.columns[c].Kind {
	case columnar.TableText:
		if cell := e.textForExport(c, b.Text(at, i)); asJSON {
			e.buf = textfmt.AppendString(e.buf, cell)
		} else {
			e.buf = appendCSVCell(e.buf, cell)
		}
	case columnar.TableInt:
		e.buf = strconv.AppendInt(e.buf, b.Int(at, i), 10)
	case columnar.TableUint:
		e.buf = strconv.AppendUint(e.buf, b.Uint(at, i), 10)
	case columnar.TableReal:
		e.buf = appendReal(e.buf, b.Real(at, i), asJSON)
	case columnar.TableBool:
		e.buf = strconv.AppendBool(e.buf, b.Bool(at, i))
	case columnar.TableLeaf:
		if asJSON {
			e.buf, e.err = e.leaves[c].AppendJSON(e.buf, b.Leaf(at, i))
			return
		}
		e.row, e.err = e.leaves[c].AppendText(e.row[:0], b.Leaf(at, i))
		e.buf = appendCSVCell(e.buf, e.row)
	case columnar.TableFloats:
		if asJSON {
			e.appendList(b, at, i)
			return
		}
		e.buf = append(e.buf, '"')
		e.appendList(b, at, i)
		e.buf = append(e.buf, '"')
	}
}

// appendList appends the floats of an embedding as a JSON array.
func (e *exporter) appendList(b *columnar.RowBlock, c, i int) {
	e.floats = b.AppendFloats(c, i, e.floats[:0])
	e.buf = append(e.buf, '[')
	for j, v := range e.floats {
		if j > 0 {
			e.buf = append(e.buf, ',')
		}
		e.buf = appendFloat(e.buf, float64(v), 32, true)
	}
	e.buf = append(e.buf, ']')
}

// appendReal appends a number as JSON or CSV. In JSON, infinity becomes a string, so
// that an ID is not lost, and NaN becomes null.
func appendReal(b []byte, v float64, asJSON bool) []byte {
	if !math.IsInf(v, 0) {
		return appendFloat(b, v, 64, asJSON)
	}
	text := "Infinity"
	if v < 0 {
		text = "-Infinity"
	}
	if asJSON {
		return textfmt.AppendString(b, []byte(text))
	}
	return append(b, text...)
}

// appendFloat appends a number in decimal form. In JSON, infinity and NaN become null.
func appendFloat(b []byte, v float64, bits int, asJSON bool) []byte {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		if asJSON {
			return append(b, "null"...)
		}
		return strconv.AppendFloat(b, v, 'g', -1, bits)
	}
	return textfmt.AppendDecimal(b, v, bits)
}

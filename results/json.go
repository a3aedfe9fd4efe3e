package results

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"

	"github.com/rowmill/rowmill/internal/columnar"
	"github.com/rowmill/rowmill/internal/spelling"
)

// WriteJSON streams variant v of the full file as a JSON object of arrays:
// outputs, inputs and cumulative_logprobs if v has them, the ID column, and
// with the inputs the fields of a Function under their own names. It reads each
// column in a separate pass. Embeddings are arrays of numbers. Failed rows,
// null IDs, and IDs that JSON has no number for are null. Other IDs are
// numbers, booleans or strings as in the file.
func WriteJSON(ctx context.Context, w io.Writer, full Source, s Schema, v Variant) error {
	e, err := newExporter(ctx, w, full, s, v)
	if err != nil {
		return fmt.Errorf("write JSON: %w", err)
	}
	members := []struct{ column, name string }{
		{s.JobID, memberOutputs}, {columnInputs, columnInputs}, {columnScore, columnScore}, {s.IDColumn, s.IDColumn},
	}
	for _, name := range s.Fields {
		members = append(members, struct{ column, name string }{name, name})
	}
	e.buf = append(e.buf, '{')
	for _, m := range members {
		c := slices.IndexFunc(e.columns, func(c columnar.TableColumn) bool { return c.Name == m.column })
		if c < 0 {
			continue
		}
		if m.column != s.JobID {
			e.buf = append(e.buf, ',')
		}
		e.buf = append(spelling.AppendString(e.buf, []byte(m.name)), ':')
		if err := e.jsonColumn(c); err != nil {
			return fmt.Errorf("write JSON: column %q: %w", m.column, err)
		}
	}
	e.buf = append(e.buf, '}')
	if err := e.flush(); err != nil {
		return fmt.Errorf("write JSON: %w", err)
	}
	return nil
}

// jsonColumn appends a column as an array.
func (e *exporter) jsonColumn(c int) error {
	kind := e.columns[c].Kind
	separator := byte('[')
	err := e.each(e.at[c:c+1], func(b *columnar.Block, i int) {
		e.buf = append(e.buf, separator)
		separator = ','
		if b.Null(0, i) {
			e.buf = append(e.buf, "null"...)
			return
		}
		switch kind {
		case columnar.TableText:
			e.buf = spelling.AppendString(e.buf, e.text(c, b.Text(0, i)))
		case columnar.TableInt:
			e.buf = strconv.AppendInt(e.buf, b.Int(0, i), 10)
		case columnar.TableUint:
			e.buf = strconv.AppendUint(e.buf, b.Uint(0, i), 10)
		case columnar.TableReal:
			e.buf = appendReal(e.buf, b.Real(0, i), true)
		case columnar.TableBool:
			e.buf = strconv.AppendBool(e.buf, b.Bool(0, i))
		case columnar.TableLeaf:
			e.buf, e.err = e.leaf.AppendJSON(e.buf, b.Leaf(0, i))
		case columnar.TableFloats:
			e.appendList(b, 0, i)
		}
	})
	if separator == '[' {
		e.buf = append(e.buf, '[')
	}
	e.buf = append(e.buf, ']')
	return err
}

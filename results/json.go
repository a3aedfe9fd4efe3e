package results

import (
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/rowmill/rowmill/internal/columnar"
	"github.com/rowmill/rowmill/internal/textfmt"
)

// WriteJSON streams variant v of the full file as a JSON object of arrays: outputs,
// inputs and cumulative_logprobs if v has them, the ID column, and, if v has inputs,
// the fields of a Function under their own names. It reads each column in a separate
// pass. Embeddings are arrays of numbers. Failed rows, null IDs and NaN become null. An
// infinite ID becomes the string "Infinity" or "-Infinity". Other IDs are numbers,
// booleans or strings, as in the file.
func WriteJSON(ctx context.Context, w io.Writer, full Source, s Schema, v FileVariant) error {
	e, err := newExporter(ctx, w, full, s, v)
	if err != nil {
		return fmt.Errorf("write JSON: %w", err)
	}
	e.buf = append(e.buf, '{')
	for _, name := range slices.Concat([]string{s.OutputName()}, fixedNames, []string{s.IDColumn}, s.Fields, namesOf(s.Kept), namesOf(s.Unpacked), namesOf(s.Meta)) {
		c := slices.IndexFunc(e.columns, func(c columnar.TableColumn) bool { return c.Name == name })
		if c < 0 {
			continue
		}
		member := memberOutputs
		if name != s.OutputName() {
			member = name
			e.buf = append(e.buf, ',')
		}
		e.buf = append(textfmt.AppendString(e.buf, []byte(member)), ':')
		if err := e.appendJSONColumn(c); err != nil {
			return fmt.Errorf("write JSON: column %q: %w", name, err)
		}
	}
	e.buf = append(e.buf, '}')
	if err := e.flush(); err != nil {
		return fmt.Errorf("write JSON: %w", err)
	}
	return nil
}

// appendJSONColumn writes column c of the variant as a JSON array.
func (e *exporter) appendJSONColumn(c int) error {
	separator := byte('[')
	err := e.each(e.tablePositions[c:c+1], func(b *columnar.RowBlock, i int) {
		e.buf = append(e.buf, separator)
		separator = ','
		if b.IsNull(0, i) {
			e.buf = append(e.buf, "null"...)
		} else {
			e.appendValue(b, c, 0, i, true)
		}
	})
	if separator == '[' {
		e.buf = append(e.buf, '[')
	}
	e.buf = append(e.buf, ']')
	return err
}

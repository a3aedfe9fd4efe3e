package results

import (
	"context"
	"fmt"
	"io"

	"github.com/rowmill/rowmill/internal/columnar"
	"github.com/rowmill/rowmill/internal/textfmt"
)

// WriteJSONLines streams variant v of the full file as JSON Lines: one object for each row,
// with the columns as members. Values are as in WriteJSON.
func WriteJSONLines(ctx context.Context, w io.Writer, full Source, s Schema, v FileVariant) error {
	e, err := newExporter(ctx, w, full, s, v)
	if err != nil {
		return fmt.Errorf("write JSON Lines: %w", err)
	}
	heads := make([][]byte, len(e.columns)) // the text before the value of each column
	for c, column := range e.columns {
		heads[c] = append(textfmt.AppendString([]byte{','}, []byte(column.Name)), ':')
	}
	heads[0][0] = '{'
	err = e.each(e.tablePositions, func(b *columnar.RowBlock, i int) {
		for c, head := range heads {
			e.buf = append(e.buf, head...)
			if b.IsNull(c, i) {
				e.buf = append(e.buf, "null"...)
			} else {
				e.appendValue(b, c, c, i, true)
			}
		}
		e.buf = append(e.buf, "}\n"...)
	})
	if err == nil {
		err = e.flush()
	}
	if err != nil {
		return fmt.Errorf("write JSON Lines: %w", err)
	}
	return nil
}

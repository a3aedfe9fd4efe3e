package results

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/rowmill/rowmill/internal/columnar"
)

// PreviewText limits each text of a preview, in bytes: a page of a thousand
// rows then has at most 32 MiB.
const PreviewText = 16 << 10

// PreviewRow is a committed row in the form of GET /v1/jobs/{id}/preview.
type PreviewRow struct {
	Row    int64
	Input  string
	Output any    // string or []float32; nil for a failed row
	Cut    bool   // the input or output is longer than PreviewText and was cut
	Code   string // the reason of a failure, or empty
}

// FirstRow returns the smallest row index of a part.
func FirstRow(part Source) (int64, error) {
	t, err := open(part)
	if err != nil {
		return 0, fmt.Errorf("find the first row of a part: %w", err)
	}
	columns, err := positions(t, columnRow)
	if err != nil {
		return 0, fmt.Errorf("find the first row of a part: %w", err)
	}
	if t.Groups() > 0 {
		if low, _, ok := t.GroupInts(0, columns[0]); ok {
			return low, nil
		}
	}
	return 0, errors.New("find the first row of a part: it has no rows")
}

// PreviewPart reads the wanted rows from a part and skips rows that the part
// does not have. wanted must ascend.
func PreviewPart(ctx context.Context, part Source, wanted []int64) ([]PreviewRow, error) {
	t, err := open(part)
	if err != nil {
		return nil, fmt.Errorf("preview a part: %w", err)
	}
	columns, err := positions(t, columnRow, columnCode, columnInputs, t.Meta(metaJob))
	if err != nil {
		return nil, fmt.Errorf("preview a part: %w", err)
	}
	var found []PreviewRow
	for g := range t.Groups() {
		if low, high, ok := t.GroupInts(g, columns[0]); ok && (high < wanted[0] || low > wanted[len(wanted)-1]) {
			continue
		}
		from, to := t.GroupRows(g)
		err := eachBlock(ctx, t, columns, from, to, func(b *columnar.Block, i int) {
			row := b.Int(0, i)
			if _, is := slices.BinarySearch(wanted, row); !is {
				return
			}
			view := PreviewRow{Row: row}
			view.readTexts(t, columns[3], b, 2, i)
			view.readCode(b, 1, i)
			found = append(found, view)
		})
		if err != nil {
			return nil, fmt.Errorf("preview a part: %w", err)
		}
	}
	return found, nil
}

// PreviewResults reads rows from (included) to to (excluded) of a job that
// succeeded, from its full file and its "rows" file.
func PreviewResults(ctx context.Context, full, rows Source, from, to int64) ([]PreviewRow, error) {
	content, err := open(full)
	if err != nil {
		return nil, fmt.Errorf("preview results: %w", err)
	}
	reserved, err := open(rows)
	if err != nil {
		return nil, fmt.Errorf("preview results: %w", err)
	}
	columns, err := positions(content, columnInputs, content.Meta(metaJob))
	if err != nil {
		return nil, fmt.Errorf("preview results: %w", err)
	}
	codes, err := positions(reserved, columnCode)
	if err != nil {
		return nil, fmt.Errorf("preview results: %w", err)
	}
	to = min(to, content.Rows(), reserved.Rows())
	if from >= to {
		return nil, nil
	}
	found := make([]PreviewRow, 0, to-from)
	err = eachBlock(ctx, content, columns, from, to, func(b *columnar.Block, i int) {
		view := PreviewRow{Row: b.First + int64(i)}
		view.readTexts(content, columns[1], b, 0, i)
		found = append(found, view)
	})
	if err == nil {
		err = eachBlock(ctx, reserved, codes, from, to, func(b *columnar.Block, i int) {
			found[b.First+int64(i)-from].readCode(b, 0, i)
		})
	}
	if err != nil {
		return nil, fmt.Errorf("preview results: %w", err)
	}
	return found, nil
}

// eachBlock visits the rows at positions from (included) to to (excluded).
func eachBlock(ctx context.Context, t *columnar.Table, columns []int, from, to int64, visit func(b *columnar.Block, i int)) error {
	scan := t.Scan(columns...)
	if err := scan.SeekRow(from); err != nil {
		return err
	}
	for at := from; at < to; {
		if err := ctx.Err(); err != nil {
			return err
		}
		b, err := scan.Next()
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return err
		}
		for ; at < min(to, b.First+int64(b.Rows)); at++ {
			visit(b, int(at-b.First))
		}
	}
	return nil
}

// readTexts reads the input from position c of a block, and the output from
// position c+1. column is the output's position in the table.
func (r *PreviewRow) readTexts(t *columnar.Table, column int, b *columnar.Block, c, i int) {
	r.Input = r.text(b.Text(c, i))
	switch {
	case b.Null(c+1, i):
	case t.Columns()[column].Kind == columnar.TableFloats:
		r.Output = b.Floats(c+1, i, nil)
	default:
		r.Output = r.text(b.Text(c+1, i))
	}
}

// readCode reads the reason of a failure.
func (r *PreviewRow) readCode(b *columnar.Block, c, i int) {
	if !b.Null(c, i) {
		r.Code = string(b.Text(c, i))
	}
}

// text returns all, cut to at most PreviewText bytes of whole characters.
func (r *PreviewRow) text(all []byte) string {
	if len(all) <= PreviewText {
		return string(all)
	}
	r.Cut = true
	end := PreviewText
	for end > 0 && all[end]&0xC0 == 0x80 {
		end--
	}
	return string(all[:end])
}

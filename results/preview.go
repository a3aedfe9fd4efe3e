package results

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/rowmill/rowmill/internal/columnar"
)

// PreviewText is the longest text in a preview, in bytes. So a page of a thousand rows
// has at most 32 MiB.
const PreviewText = 16 << 10

// PreviewRow is a committed row in a preview, as in GET /v1/jobs/{id}/preview.
type PreviewRow struct {
	Row    int64
	Input  string
	Output any    // string or []float32; nil for a failed row
	Cut    bool   // true if the input or output was longer than PreviewText and was cut
	Code   string // error code of a failed row, or empty
}

// FirstRowIndex returns the index of the first row of a part. It returns an error if the
// part has no rows.
func FirstRowIndex(part Source) (int64, error) {
	t, err := openTable(part)
	if err != nil {
		return 0, fmt.Errorf("find the first row of a part: %w", err)
	}
	if c := t.ColumnPosition(columnRow); c >= 0 && t.Groups() > 0 {
		if low, _, ok := t.GroupIntRange(0, c); ok {
			return low, nil
		}
	}
	return 0, errors.New("find the first row of a part: the part has no rows")
}

// PreviewPart reads rows with the indexes in wanted from a part. It skips rows that the
// part does not have. The indexes in wanted must ascend.
func PreviewPart(ctx context.Context, part Source, wanted []int64) (found []PreviewRow, err error) {
	t, err := openTable(part)
	if err == nil {
		found, err = previewPart(ctx, t, wanted)
	}
	if err != nil {
		return nil, fmt.Errorf("preview a part: %w", err)
	}
	return found, nil
}

func previewPart(ctx context.Context, t *columnar.Table, wanted []int64) (found []PreviewRow, err error) {
	r, err := newAnswerReader(t, t, columnRow, columnCode)
	if err != nil {
		return nil, err
	}
	for g := range t.Groups() {
		if low, high, ok := t.GroupIntRange(g, t.ColumnPosition(columnRow)); ok && (high < wanted[0] || low > wanted[len(wanted)-1]) {
			continue
		}
		from, to := t.GroupRows(g)
		err := r.scans[1].each(ctx, from, to, func(b *columnar.RowBlock, i int) (bool, error) {
			row := b.Int(0, i)
			if _, isWanted := slices.BinarySearch(wanted, row); !isWanted {
				return true, nil
			}
			err := r.readRow(b.First + int64(i))
			found = append(found, r.preview(row))
			return true, err
		})
		if err != nil {
			return nil, err
		}
	}
	return found, nil
}

// PreviewResults reads the rows from from (included) to to (excluded) of a job that
// succeeded. full is the job's full file, and rows is its "rows" file.
func PreviewResults(ctx context.Context, full, rows Source, from, to int64) (found []PreviewRow, err error) {
	content, reserved, err := openResultTables(full, rows)
	if err == nil {
		found, err = previewResults(ctx, content, reserved, from, to)
	}
	if err != nil {
		return nil, fmt.Errorf("preview results: %w", err)
	}
	return found, nil
}

func previewResults(ctx context.Context, content, reserved *columnar.Table, from, to int64) (found []PreviewRow, err error) {
	r, err := newAnswerReader(content, reserved, columnCode)
	if err != nil {
		return nil, err
	}
	for n := from; n < min(to, content.Rows(), reserved.Rows()); n++ {
		if err := errors.Join(ctx.Err(), r.readRow(n)); err != nil {
			return nil, err
		}
		found = append(found, r.preview(n))
	}
	return found, nil
}

// preview returns the row that was read last as a PreviewRow. row is the index of this
// row in the job.
func (r *rowReader) preview(row int64) PreviewRow {
	p := PreviewRow{Row: row, Output: r.output()}
	p.Input = p.shortenText(r.row.Text)
	if text, ok := p.Output.(string); ok {
		p.Output = p.shortenText(text)
	}
	if r.out.Err != nil {
		p.Code = r.out.Err.Code
	}
	return p
}

// shortenText returns text, shortened to at most PreviewText bytes of whole characters. It sets
// r.Cut if it shortened the text.
func (r *PreviewRow) shortenText(text string) string {
	if len(text) <= PreviewText {
		return text
	}
	r.Cut = true
	end := PreviewText
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return strings.Clone(text[:end]) // a copy, so that the memory of the whole text can be freed
}

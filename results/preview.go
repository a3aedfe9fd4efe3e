package results

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/internal/columnar"
)

// PreviewText is the longest text in a preview, in bytes. So a page of a thousand rows
// has at most 32 MiB.
const PreviewText = 16 << 10

// PreviewRow is a committed row in a preview, as in GET /v1/jobs/{id}/preview.
type PreviewRow struct {
	Row    int64
	ID     string // text of the row's ID; empty if the job has no ID column
	Input  string
	Output any    // string or []float32; nil for a failed row
	Cut    bool   // true if the input or output was longer than PreviewText and was cut
	Code   string // error code of a failed row, or empty

	Finish                    rowmill.FinishReason // empty if the engine gave none
	InputTokens, OutputTokens int64
	Seconds                   float64 // of the last counted attempt
}

// previewColumns returns the reserved columns that a preview reads; the first has the index of
// the row.
func previewColumns() []string {
	return []string{columnRow, columnCode, columnFinish, columnInputTokens, columnOutputTokens, columnSeconds}
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
	r, err := newAnswerReader(t, t, previewColumns()...)
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
			found = append(found, r.PreviewRow(r.row, r.out))
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
	r, err := newAnswerReader(content, reserved, previewColumns()...)
	if err != nil {
		return nil, err
	}
	for n := from; n < min(to, content.Rows(), reserved.Rows()); n++ {
		if err := errors.Join(ctx.Err(), r.readRow(n)); err != nil {
			return nil, err
		}
		found = append(found, r.PreviewRow(r.row, r.out))
	}
	return found, nil
}

// PreviewRow returns a committed row as a preview shows it.
func (s Schema) PreviewRow(row *rowmill.Row, out *rowmill.RowOutput) PreviewRow {
	p := PreviewRow{
		Row: row.Index, ID: s.IDText(row.ID), Finish: out.Finish, InputTokens: out.InputTokens, OutputTokens: out.OutputTokens, Seconds: out.Seconds,
	}
	p.Input = p.ShortenText(row.Text)
	switch {
	case out.Err != nil:
		p.Code = out.Err.Code
	case s.Embedding:
		p.Output = out.Embedding
	default:
		p.Output = p.ShortenText(out.Text)
	}
	return p
}

// IDText returns an ID as in a CSV export; a null is empty.
func (s Schema) IDText(id rowmill.ID) string {
	switch id.Kind {
	case rowmill.IDInt:
		return strconv.FormatInt(id.Int, 10)
	case rowmill.IDUint:
		return strconv.FormatUint(uint64(id.Int), 10) //nolint:gosec // the bits of an unsigned number
	case rowmill.IDFloat:
		return string(appendReal(nil, id.Real, false))
	case rowmill.IDBool:
		return strconv.FormatBool(id.Int == 1)
	case rowmill.IDLeafValue:
		leaf, err := columnar.ParseLeaf(s.IDLeaf)
		if err != nil {
			return ""
		}
		text, _ := leaf.AppendText(nil, []byte(id.Text))
		return string(text)
	}
	return id.Text
}

// ShortenText returns text, shortened to at most PreviewText bytes of whole characters. It sets
// r.Cut if it shortened the text.
func (r *PreviewRow) ShortenText(text string) string {
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

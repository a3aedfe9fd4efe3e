package results

import (
	"context"
	"fmt"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/internal/columnar"
)

// FailedRow is a failed row in the JSON form of GET /v1/jobs/{id}/errors.
type FailedRow struct {
	Row int64 `json:"row"`
	RowFailure
}

// RowFailure is the error of a failed row.
type RowFailure struct {
	Code    string `json:"code"`
	Message string `json:"message"`
	Raw     string `json:"raw_output"` // empty if the engine returned nothing
}

// RowView is a row in the JSON form of GET /v1/jobs/{id}/rows/{n}.
type RowView struct {
	Row          int64                 `json:"row"`
	Input        string                `json:"input"`
	Output       any                   `json:"output"`        // string or []float32; nil for a failed row
	Error        *RowFailure           `json:"error"`         // nil if the row has an output
	Finish       *rowmill.FinishReason `json:"finish_reason"` // nil if the engine gave none
	InputTokens  int64                 `json:"input_tokens"`
	OutputTokens int64                 `json:"output_tokens"`
	Engine       string                `json:"engine"`
	Seconds      float64               `json:"duration_seconds"` // of the last counted attempt
	Attempts     int64                 `json:"attempts"`
	AttemptLog   []AttemptView         `json:"attempt_log"`      // the first and the last attempts
	Omitted      int                   `json:"attempts_omitted"` // number of attempts left out of attempt_log
}

// AttemptView is one attempt at a row. A row's log can have more attempts than
// RowView.Attempts counts.
type AttemptView struct {
	At      time.Time `json:"at"`
	Seconds float64   `json:"duration_seconds"`
	Node    string    `json:"node"`
	Engine  string    `json:"engine"`
	Status  *int      `json:"status"`  // HTTP status of a failed attempt, or nil
	Code    *string   `json:"code"`    // nil for the accepted attempt
	Message *string   `json:"message"` // nil for the accepted attempt
}

// ListFailures lists at most limit failed rows of the "rows" file or of a part, in order.
// It starts after the row with the index after; -1 means the beginning. To continue the
// list, pass next as after. next is -1 if there are no more failures.
func ListFailures(ctx context.Context, rows Source, after int64, limit int) (failures []FailedRow, next int64, err error) {
	if limit < 1 {
		return nil, -1, fmt.Errorf("list failures: the limit is %d, and must be at least 1", limit)
	}
	t, err := openTable(rows)
	if err == nil {
		failures, err = findFailures(ctx, t, after, limit+1)
	}
	if err != nil {
		return nil, -1, fmt.Errorf("list failures: %w", err)
	}
	if len(failures) > limit {
		return failures[:limit], failures[limit-1].Row, nil
	}
	return failures, -1, nil
}

// findFailures returns at most limit failed rows after the row with the index after. It
// reads the error codes first, and other columns only for blocks with failures.
func findFailures(ctx context.Context, t *columnar.Table, after int64, limit int) (found []FailedRow, err error) {
	codes, err := newRowScan(t, columnRow, columnCode)
	if err != nil {
		return nil, err
	}
	details, err := newRowScan(t, columnCode, columnMessage, columnRaw)
	if err != nil {
		return nil, err
	}
	for g := range t.Groups() {
		from, to := t.GroupRows(g)
		_, high, known := t.GroupIntRange(g, t.ColumnPosition(columnRow))
		if known && high <= after || t.GroupNulls(g, t.ColumnPosition(columnCode)) == to-from {
			continue
		}
		err := codes.each(ctx, from, to, func(b *columnar.RowBlock, i int) (bool, error) {
			if b.IsNull(1, i) || b.Int(0, i) <= after {
				return true, nil
			}
			d, j, err := details.blockAt(b.First + int64(i))
			if err != nil {
				return false, err
			}
			found = append(found, FailedRow{b.Int(0, i), RowFailure{cellText(d, 0, j), cellText(d, 1, j), cellText(d, 2, j)}})
			return len(found) < limit, nil
		})
		if err != nil || len(found) == limit {
			return found, err
		}
	}
	return found, nil
}

// ReadRow reads row n of a job that succeeded. full is the job's full file, and rows is
// its "rows" file. If the job has no row n, the error is rowmill.ErrNotFound.
func ReadRow(full, rows Source, n int64) (view RowView, err error) {
	content, reserved, err := openResultTables(full, rows)
	switch {
	case err != nil:
	case content.Rows() != reserved.Rows():
		err = fmt.Errorf("the full file has %d rows, the rows file %d", content.Rows(), reserved.Rows())
	case n < 0 || n >= content.Rows():
		err = fmt.Errorf("the job has %d rows: %w", content.Rows(), rowmill.ErrNotFound)
	default:
		view, err = readView(content, reserved, n, n)
	}
	if err != nil {
		return RowView{}, fmt.Errorf("read row %d: %w", n, err)
	}
	return view, nil
}

// openResultTables opens a job's full file and its "rows" file.
func openResultTables(full, rows Source) (content, reserved *columnar.Table, err error) {
	if content, err = openTable(full); err == nil {
		reserved, err = openTable(rows)
	}
	return content, reserved, err
}

// FindRow reads row n of a job from one part, merged or not. If the part does not have
// the row, the error is rowmill.ErrNotFound.
func FindRow(part Source, n int64) (view RowView, err error) {
	t, err := openTable(part)
	if err == nil {
		var position int64
		if position, err = findRow(t, n); err == nil {
			view, err = readView(t, t, position, n)
		}
	}
	if err != nil {
		return RowView{}, fmt.Errorf("find row %d: %w", n, err)
	}
	return view, nil
}

// findRow returns the position in t of the row with index n. If t does not have the
// row, the error is rowmill.ErrNotFound.
func findRow(t *columnar.Table, n int64) (position int64, err error) {
	scan, err := newRowScan(t, columnRow)
	if err != nil {
		return 0, err
	}
	position = -1
	for g := range t.Groups() {
		low, high, ok := t.GroupIntRange(g, t.ColumnPosition(columnRow))
		if ok && (n < low || n > high) {
			continue
		}
		from, to := t.GroupRows(g)
		err := scan.each(context.Background(), from, to, func(b *columnar.RowBlock, i int) (bool, error) {
			if b.Int(0, i) == n {
				position = b.First + int64(i)
			}
			return position < 0, nil
		})
		if err != nil || position >= 0 {
			return position, err
		}
	}
	return 0, rowmill.ErrNotFound
}

// readView reads the row at a position in both tables. If the row's index is not n, it
// returns an error. content has the columns for clients, and reserved has the reserved
// columns.
func readView(content, reserved *columnar.Table, position, n int64) (RowView, error) {
	r, err := newAnswerReader(content, reserved, columnRow, columnFinish, columnInputTokens, columnOutputTokens, columnEngine, columnSeconds, columnAttempts, columnCode, columnMessage, columnRaw)
	if err == nil {
		r.tries, err = newAttemptsReader(reserved)
	}
	if err == nil {
		err = r.readRow(position)
	}
	if err == nil && r.row.Index != n {
		err = fmt.Errorf("the file has row %d in its position", r.row.Index)
	}
	if err != nil {
		return RowView{}, err
	}
	view := RowView{
		Row: n, Input: r.row.Text, Output: r.output(), InputTokens: r.out.InputTokens, OutputTokens: r.out.OutputTokens,
		Engine: r.out.Engine, Seconds: r.out.Seconds, Attempts: int64(r.out.Attempts), AttemptLog: []AttemptView{},
	}
	if r.hasError {
		view.Error = &RowFailure{r.err.Code, r.err.Message, r.err.Raw}
	}
	if r.out.Finish != "" {
		view.Finish = &r.out.Finish
	}
	if r.out.Tries != nil {
		view.addAttempts(r.out.Tries)
	}
	return view, nil
}

// addAttempts adds the log of attempts to the view.
func (r *RowView) addAttempts(tries *rowmill.RowAttempts) {
	r.Omitted = tries.Omitted
	for _, a := range tries.Attempts {
		view := AttemptView{At: a.At, Seconds: a.Took.Seconds(), Node: a.Node, Engine: a.Engine}
		if a.Status != 0 {
			view.Status = &a.Status
		}
		if a.Code != "" {
			view.Code, view.Message = &a.Code, &a.Message
		}
		r.AttemptLog = append(r.AttemptLog, view)
	}
}

package results

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/internal/columnar"
)

// Failure is a failed row in the form of GET /v1/jobs/{id}/errors.
type Failure struct {
	Row     int64  `json:"row"`
	Code    string `json:"code"`
	Message string `json:"message"`
	Raw     string `json:"raw_output"` // empty if the engine returned nothing
}

// RowView is a row in the form of GET /v1/jobs/{id}/rows/{n}.
type RowView struct {
	Row          int64                 `json:"row"`
	Input        string                `json:"input"`
	Output       any                   `json:"output"`        // string or []float32; nil for a failed row
	Finish       *rowmill.FinishReason `json:"finish_reason"` // nil if the engine gave none
	InputTokens  int64                 `json:"input_tokens"`
	OutputTokens int64                 `json:"output_tokens"`
	Engine       string                `json:"engine"`
	Attempts     int64                 `json:"attempts"`
	AttemptLog   []AttemptView         `json:"attempt_log"`      // the first and the last attempts
	Omitted      int                   `json:"attempts_omitted"` // number of attempts left out between them
}

// AttemptView is one attempt at a row. The log also has attempts that Attempts
// does not count.
type AttemptView struct {
	At      time.Time `json:"at"`
	Seconds float64   `json:"duration_seconds"`
	Node    string    `json:"node"`
	Engine  string    `json:"engine"`
	Status  *int      `json:"status"`  // HTTP status of a failed attempt, or nil
	Code    *string   `json:"code"`    // nil for the accepted attempt
	Message *string   `json:"message"` // nil for the accepted attempt
}

// Failures lists at most limit failed rows after row after (-1 for all), in
// order, from the "rows" file or a part. To continue, pass next as after. next
// is -1 at the end.
func Failures(ctx context.Context, rows Source, after int64, limit int) (failures []Failure, next int64, err error) {
	if limit < 1 {
		return nil, -1, fmt.Errorf("list failures: the limit is %d, and must be at least 1", limit)
	}
	t, err := open(rows)
	if err != nil {
		return nil, -1, fmt.Errorf("list failures: %w", err)
	}
	find := failureFinder{ctx: ctx, t: t, after: after, limit: limit}
	if find.columns, err = positions(t, columnRow, columnCode, columnMessage, columnRaw); err != nil {
		return nil, -1, fmt.Errorf("list failures: %w", err)
	}
	for g := range t.Groups() {
		if err := find.group(g); err != nil {
			return nil, -1, fmt.Errorf("list failures: %w", err)
		}
		if len(find.found) > limit {
			return find.found[:limit], find.found[limit-1].Row, nil
		}
	}
	return find.found, -1, nil
}

// failureFinder collects failures until it has one more than limit.
type failureFinder struct {
	ctx     context.Context
	t       *columnar.Table
	columns []int // row, code, message, raw
	after   int64
	limit   int
	found   []Failure
}

// group searches one row group. It reads the error codes first, and other
// columns only for blocks with failures.
func (f *failureFinder) group(g int) error {
	from, to := f.t.GroupRows(g)
	if f.t.GroupNulls(g, f.columns[1]) == to-from {
		return nil
	}
	if _, high, ok := f.t.GroupInts(g, f.columns[0]); ok && high <= f.after {
		return nil
	}
	codes, details := f.t.Scan(f.columns[:2]...), f.t.Scan(f.columns...)
	if err := codes.SeekRow(from); err != nil {
		return err
	}
	for from < to && len(f.found) <= f.limit {
		if err := f.ctx.Err(); err != nil {
			return err
		}
		b, err := codes.Next()
		if err != nil {
			return err
		}
		from = b.First + int64(b.Rows)
		for i := range b.Rows {
			if b.Null(1, i) || b.Int(0, i) <= f.after {
				continue
			}
			if err := details.SeekRow(b.First); err != nil {
				return err
			}
			if err := f.block(details); err != nil {
				return err
			}
			break
		}
	}
	return nil
}

// block collects the failures of the next block of the scan.
func (f *failureFinder) block(details *columnar.TableScan) error {
	b, err := details.Next()
	if err != nil {
		return err
	}
	for i := 0; i < b.Rows && len(f.found) <= f.limit; i++ {
		if b.Null(1, i) || b.Int(0, i) <= f.after {
			continue
		}
		failure := Failure{Row: b.Int(0, i), Code: string(b.Text(1, i))}
		if !b.Null(2, i) {
			failure.Message = string(b.Text(2, i))
		}
		if !b.Null(3, i) {
			failure.Raw = string(b.Text(3, i))
		}
		f.found = append(f.found, failure)
	}
	return nil
}

// ReadRow reads row n of a finished job from its full file and its "rows" file.
// For a row beyond the last the error is rowmill.ErrNotFound.
func ReadRow(full, rows Source, n int64) (RowView, error) {
	view := RowView{Row: n}
	content, err := open(full)
	if err != nil {
		return RowView{}, fmt.Errorf("read row %d: %w", n, err)
	}
	reserved, err := open(rows)
	if err != nil {
		return RowView{}, fmt.Errorf("read row %d: %w", n, err)
	}
	if content.Rows() != reserved.Rows() {
		return RowView{}, fmt.Errorf("read row %d: the full file has %d rows, the rows file %d", n, content.Rows(), reserved.Rows())
	}
	if n < 0 || n >= content.Rows() {
		return RowView{}, fmt.Errorf("read row %d of %d: %w", n, content.Rows(), rowmill.ErrNotFound)
	}
	if err := view.readClientColumns(content, n); err != nil {
		return RowView{}, fmt.Errorf("read row %d: %w", n, err)
	}
	if err := errors.Join(view.readReservedColumns(reserved, n), view.readAttempts(reserved)); err != nil {
		return RowView{}, fmt.Errorf("read row %d: %w", n, err)
	}
	return view, nil
}

// FindRow reads row n of a job from a part or from merged parts. If the part
// does not have the row, the error is rowmill.ErrNotFound.
func FindRow(part Source, n int64) (RowView, error) {
	t, err := open(part)
	if err != nil {
		return RowView{}, fmt.Errorf("find row %d: %w", n, err)
	}
	place, err := findRow(t, n)
	if err != nil {
		return RowView{}, fmt.Errorf("find row %d: %w", n, err)
	}
	view := RowView{Row: n}
	if err := view.readClientColumns(t, place); err != nil {
		return RowView{}, fmt.Errorf("find row %d: %w", n, err)
	}
	if err := errors.Join(view.readReservedColumns(t, place), view.readAttempts(t)); err != nil {
		return RowView{}, fmt.Errorf("find row %d: %w", n, err)
	}
	return view, nil
}

// findRow returns the position in t of the row with index n.
func findRow(t *columnar.Table, n int64) (int64, error) {
	columns, err := positions(t, columnRow)
	if err != nil {
		return 0, err
	}
	for g := range t.Groups() {
		low, high, ok := t.GroupInts(g, columns[0])
		if ok && (n < low || n > high) {
			continue
		}
		from, to := t.GroupRows(g)
		scan := t.Scan(columns...)
		if err := scan.SeekRow(from); err != nil {
			return 0, err
		}
		for from < to {
			b, err := scan.Next()
			if err != nil {
				return 0, err
			}
			from = b.First + int64(b.Rows)
			for i := range b.Rows {
				if b.Int(0, i) == n {
					return b.First + int64(i), nil
				}
			}
		}
	}
	return 0, rowmill.ErrNotFound
}

// readClientColumns reads the columns of clients' files for the row at a
// position.
func (r *RowView) readClientColumns(t *columnar.Table, place int64) error {
	columns, err := positions(t, columnInputs, t.Meta(metaJob))
	if err != nil {
		return err
	}
	b, i, err := blockAt(t, place, columns)
	if err != nil {
		return err
	}
	r.Input = string(b.Text(0, i))
	switch {
	case b.Null(1, i):
	case t.Columns()[columns[1]].Kind == columnar.TableFloats:
		r.Output = b.Floats(1, i, nil)
	default:
		r.Output = string(b.Text(1, i))
	}
	return nil
}

// readReservedColumns reads the reserved columns for the row at a position.
func (r *RowView) readReservedColumns(t *columnar.Table, place int64) error {
	columns, err := positions(t, columnRow, columnFinish, columnInputTokens, columnOutputTokens, columnEngine, columnAttempts)
	if err != nil {
		return err
	}
	b, i, err := blockAt(t, place, columns)
	if err != nil {
		return err
	}
	if row := b.Int(0, i); row != r.Row {
		return fmt.Errorf("the file has row %d in its position", row)
	}
	if !b.Null(1, i) {
		finish := rowmill.FinishReason(b.Text(1, i))
		r.Finish = &finish
	}
	r.InputTokens, r.OutputTokens = b.Int(2, i), b.Int(3, i)
	if !b.Null(4, i) {
		r.Engine = string(b.Text(4, i))
	}
	r.Attempts = b.Int(5, i)
	return nil
}

// readAttempts reads the log of the row's attempts.
func (r *RowView) readAttempts(t *columnar.Table) error {
	r.AttemptLog = []AttemptView{}
	reader, err := newTriesReader(t)
	if err != nil {
		return err
	}
	tries, err := reader.of(r.Row)
	if err != nil || tries == nil {
		return err
	}
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
	return nil
}

// blockAt reads the block that holds the row at a position. It also returns the
// row's position in the block.
func blockAt(t *columnar.Table, place int64, columns []int) (*columnar.Block, int, error) {
	scan := t.Scan(columns...)
	if err := scan.SeekRow(place); err != nil {
		return nil, 0, err
	}
	b, err := scan.Next()
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return nil, 0, err
	}
	return b, int(place - b.First), nil
}

// positions returns the indexes of the named columns.
func positions(t *columnar.Table, names ...string) ([]int, error) {
	var all []int
	for _, name := range names {
		c := t.Column(name)
		if c < 0 {
			return nil, fmt.Errorf("the file has no column %q", name)
		}
		all = append(all, c)
	}
	return all, nil
}

package results

import (
	"errors"
	"fmt"
	"io"

	"github.com/rowmill/rowmill"
)

// ErrInputRemoved means that the input of a row was removed.
var ErrInputRemoved = errors.New("the input of the row was removed")

// ReadInput returns the input row with an index. It is called in ascending
// order. If the error is ErrInputRemoved, the row has no input and no ID.
type ReadInput func(index int64) (rowmill.Row, error)

// PartialWriter writes all rows of a job as one part, so that every variant and export
// can be made from this part. The caller adds the rows that ran. For each other row,
// PartialWriter writes a failure that says why the row has no outcome.
type PartialWriter struct {
	part   *PartWriter
	input  ReadInput
	reason func(row int64) *rowmill.RowError // why a row has no outcome
	next   int64
}

// NewPartialWriter begins the file on w. reason says why a row that is not added
// has no outcome.
func NewPartialWriter(w io.Writer, s Schema, input ReadInput, reason func(row int64) *rowmill.RowError) (*PartialWriter, error) {
	s.Partial = true
	part, err := NewPartWriter(w, s)
	if err != nil {
		return nil, err
	}
	return &PartialWriter{part: part, input: input, reason: reason}, nil
}

// Add writes a row that ran, and before it a failure for each row that was
// skipped.
func (p *PartialWriter) Add(row *rowmill.Row, out *rowmill.Output) error {
	if err := p.fill(row.Index); err != nil {
		return err
	}
	p.next = row.Index + 1
	return p.part.Add(row, out)
}

// Close writes failures for the rows after the last added row, up to this number of
// rows, and ends the file. It does not close the underlying writer.
func (p *PartialWriter) Close(rows int64) error {
	if p.next > rows {
		return fmt.Errorf("close partial results: it has row %d, but the job has %d rows", p.next-1, rows)
	}
	if err := p.fill(rows); err != nil {
		return err
	}
	return p.part.Close()
}

// fill writes failures for the rows from p.next (included) to to (excluded).
func (p *PartialWriter) fill(to int64) error {
	for ; p.next < to; p.next++ {
		out := rowmill.Output{Err: p.reason(p.next)}
		row, err := p.input(p.next)
		gone := errors.Is(err, ErrInputRemoved)
		if err != nil && !gone {
			return fmt.Errorf("read the input of row %d: %w", p.next, err)
		}
		row.Index = p.next
		p.part.inputRemoved = gone
		err = p.part.Add(&row, &out)
		p.part.inputRemoved = false
		if err != nil {
			return err
		}
	}
	return nil
}

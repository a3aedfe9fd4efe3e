package results

import (
	"errors"
	"fmt"
	"io"

	"github.com/rowmill/rowmill"
)

// ErrInputRemoved means that the input of a row no longer exists.
var ErrInputRemoved = errors.New("the input of the row was removed")

// InputReadFunc returns the input row with an index. It is called with ascending indexes.
// If the error is ErrInputRemoved, the result row has no input and no ID.
type InputReadFunc func(index int64) (rowmill.Row, error)

// PartialWriter writes all rows of a job without a full result as one part, from which every
// variant and export can be made. The caller adds the rows that ran. For each other
// row, PartialWriter writes a failure with the reason why the row has no outcome.
type PartialWriter struct {
	part   *PartWriter
	input  InputReadFunc
	reason func(row int64) *rowmill.RowError // returns the reason why a row has no outcome
	next   int64                             // index of the first row that is not written yet
}

// NewPartialWriter returns a PartialWriter on w. The function reason must return the
// reason why a row that is not added has no outcome.
func NewPartialWriter(w io.Writer, s Schema, input InputReadFunc, reason func(row int64) *rowmill.RowError) (*PartialWriter, error) {
	s.Partial = true
	part, err := NewPartWriter(w, s)
	if err != nil {
		return nil, err
	}
	return &PartialWriter{part: part, input: input, reason: reason}, nil
}

// Add writes a row that ran. Before it, Add writes a failure for each row between the
// last added row and this row.
func (p *PartialWriter) Add(row *rowmill.Row, out *rowmill.RowOutput) error {
	if err := p.fillMissingRows(row.Index); err != nil {
		return err
	}
	p.next = row.Index + 1
	return p.part.Add(row, out)
}

// Close writes failures for all rows after the last added row, and ends the file. rows
// is the number of rows of the job. Close does not close the underlying writer.
func (p *PartialWriter) Close(rows int64) error {
	if p.next > rows {
		return fmt.Errorf("close partial results: row %d was added, but the job has only %d rows", p.next-1, rows)
	}
	if err := p.fillMissingRows(rows); err != nil {
		return err
	}
	return p.part.Close()
}

// fillMissingRows writes failures for the rows in [p.next, to).
func (p *PartialWriter) fillMissingRows(end int64) error {
	for ; p.next < end; p.next++ {
		out := rowmill.RowOutput{Err: p.reason(p.next)}
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

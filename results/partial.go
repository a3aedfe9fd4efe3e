package results

import (
	"errors"
	"fmt"
	"io"

	"github.com/rowmill/rowmill"
)

// ErrInputGone says that the input of a row is not kept any more.
var ErrInputGone = errors.New("the input of the row was removed")

// Input reads the row of a number. Rows are asked for in ascending order. An
// error that is ErrInputGone leaves the row without input and ID.
type Input func(index int64) (rowmill.Row, error)

// A PartialWriter writes all rows of a job as one part, from which every variant
// and export can be made: those that have run as they are given to it, and in
// the gaps between them failures that say why there is none.
type PartialWriter struct {
	part  *PartWriter
	input Input
	why   rowmill.RowError // of rows that have not run
	next  int64
}

// NewPartialWriter begins the file on w. why is what is said of rows that have
// not run.
func NewPartialWriter(w io.Writer, s Schema, input Input, why rowmill.RowError) (*PartialWriter, error) {
	s.Partial = true
	part, err := NewPartWriter(w, s)
	if err != nil {
		return nil, err
	}
	return &PartialWriter{part: part, input: input, why: why}, nil
}

// Add writes a row that has run, and those before it that have not.
func (p *PartialWriter) Add(row *rowmill.Row, out *rowmill.Output) error {
	if err := p.fill(row.Index); err != nil {
		return err
	}
	p.next = row.Index + 1
	return p.part.Add(row, out)
}

// Close writes what is left of so many rows. It does not close the writer below.
func (p *PartialWriter) Close(rows int64) error {
	if p.next > rows {
		return fmt.Errorf("close partial results: row %d is there, of %d rows", p.next-1, rows)
	}
	if err := p.fill(rows); err != nil {
		return err
	}
	return p.part.Close()
}

func (p *PartialWriter) fill(to int64) error {
	out := rowmill.Output{Err: &p.why}
	for ; p.next < to; p.next++ {
		row, err := p.input(p.next)
		gone := errors.Is(err, ErrInputGone)
		if err != nil && !gone {
			return fmt.Errorf("read the input of row %d: %w", p.next, err)
		}
		row.Index = p.next
		p.part.gone = gone
		err = p.part.Add(&row, &out)
		p.part.gone = false
		if err != nil {
			return err
		}
	}
	return nil
}

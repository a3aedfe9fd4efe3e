package results

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/rowmill/rowmill/internal/columnar"
)

// interleave merges parts row by row and returns the number of rows. If next is 0 or
// more, the parts must have all rows from next on. If next is negative, rows may be
// missing.
func interleave(ctx context.Context, w io.Writer, s Schema, parts []*mergePart, next int64) (int64, error) {
	table, err := columnar.NewTableWriter(w, s.columns(), s.meta(), columnar.TableConfig{})
	if err != nil {
		return 0, err
	}
	gapless, tries := next >= 0, attemptsWriter{to: table}
	err = visitAcceptedRows(ctx, parts, func(c *partCursor) error {
		if gapless && c.row != next {
			return fmt.Errorf("row %d is missing: the next row is %d, in part %d", next, c.row, c.number)
		}
		next = c.row + 1
		if err := table.CopyRow(c.block, c.at); err != nil || c.tries == nil {
			return err
		}
		tried, err := c.tries.attempts(c.row)
		if err != nil {
			return fmt.Errorf("part %d: %w", c.number, err)
		}
		return tries.add(c.row, tried)
	})
	if err != nil {
		return 0, err
	}
	return table.Rows(), errors.Join(tries.flush(), table.Close())
}

// visitAcceptedRows calls visit for the accepted rows of parts, each row once, in order.
func visitAcceptedRows(ctx context.Context, parts []*mergePart, visit func(c *partCursor) error) error {
	queue := newQueue(parts)
	for last := int64(-1); len(queue) > 0; {
		top := queue[0]
		if top.block == nil { // no block is loaded yet: the first accepted row is low or a later row
			if err := top.loadFirstBlock(); err != nil {
				return err
			}
			queue.fixFirst()
			continue
		}
		if top.row == last {
			return fmt.Errorf("row %d appears twice, the second time in part %d", top.row, top.number)
		}
		if last = top.row; last%checkEvery == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		if err := visit(top); err != nil {
			return err
		}
		if err := top.advanceToAccepted(); err != nil {
			return err
		}
		queue.fixFirst()
	}
	return nil
}

// partCursor is a reading position in a part.
type partCursor struct {
	*mergePart
	scan  *columnar.TableScan
	rowAt int // position of the row index column in the table
	block *columnar.RowBlock
	at    int    // position of the current row in block
	row   int64  // index of the current row, or low if block is nil
	found uint64 // number of accepted rows read so far
	done  bool   // true after the end of the part
}

// loadFirstBlock reads the first block and moves to the first accepted row.
func (c *partCursor) loadFirstBlock() error {
	c.at = -1
	return c.advanceToAccepted()
}

// advanceToAccepted moves to the next accepted row. After the last row it calls finish.
func (c *partCursor) advanceToAccepted() (err error) {
	c.at++
	for {
		for c.block == nil || c.at >= c.block.Rows {
			if c.block, err = c.scan.Next(); errors.Is(err, io.EOF) {
				return c.finish()
			} else if err != nil {
				return fmt.Errorf("part %d: %w", c.number, err)
			}
			c.at = 0
		}
		row := c.block.Int(c.rowAt, c.at)
		if c.found > 0 && row <= c.row {
			return fmt.Errorf("part %d: row %d follows row %d", c.number, row, c.row)
		}
		if c.Accept == nil || c.Accept.Contains(uint32(row-c.First)) {
			c.row = row
			c.found++
			return nil
		}
		c.at++
	}
}

// finish ends the reading of the part. It returns an error if the part lacks accepted
// rows.
func (c *partCursor) finish() error {
	c.done = true
	c.block, c.scan, c.tries = nil, nil, nil // the buffers are large, so free them now
	if c.Accept != nil && c.found != c.Accept.GetCardinality() {
		return c.errMissingRows(c.found)
	}
	return nil
}

// cursorHeap is a binary heap of cursors. The cursor with the lowest row is first.
type cursorHeap []*partCursor

// newQueue returns a queue with a cursor for each part.
func newQueue(parts []*mergePart) cursorHeap {
	var q cursorHeap
	for _, p := range parts {
		all := make([]int, len(p.table.Columns()))
		for i := range all {
			all[i] = i
		}
		c := &partCursor{mergePart: p, scan: p.table.Scan(all...), rowAt: p.table.ColumnPosition(columnRow), row: p.low}
		if len(q) > 0 {
			c.scan.ShareBuffer(q[0].scan)
		}
		q = append(q, c)
	}
	for i := len(q)/2 - 1; i >= 0; i-- {
		q.siftDown(i)
	}
	return q
}

// fixFirst restores the order of the heap after the first cursor has moved. It removes
// the first cursor if that cursor is done.
func (q *cursorHeap) fixFirst() {
	if (*q)[0].done {
		last := len(*q) - 1
		(*q)[0] = (*q)[last]
		*q = (*q)[:last]
	}
	q.siftDown(0)
}

// siftDown moves cursor i down in the heap until its children have higher rows.
func (q cursorHeap) siftDown(i int) {
	for {
		least := i
		for child := 2*i + 1; child <= 2*i+2 && child < len(q); child++ {
			if q[child].row < q[least].row {
				least = child
			}
		}
		if least == i {
			return
		}
		q[i], q[least] = q[least], q[i]
		i = least
	}
}

package results

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/rowmill/rowmill/internal/columnar"
)

// interleave merges parts row by row. If next is 0 or more, the parts must have all rows
// from next on. If next is negative, rows may be missing.
func interleave(ctx context.Context, w io.Writer, s Schema, parts []*mergePart, next int64) (int64, error) {
	table, err := columnar.NewTableWriter(w, s.columns(), s.meta(), columnar.TableConfig{})
	if err != nil {
		return 0, err
	}
	gapless, tries := next >= 0, triesWriter{to: table}
	err = walk(ctx, parts, func(c *cursor) error {
		if gapless && c.row != next {
			return fmt.Errorf("row %d is missing: the next is %d, in part %d", next, c.row, c.number)
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

// walk visits the accepted rows of parts, each row once, in order.
func walk(ctx context.Context, parts []*mergePart, visit func(c *cursor) error) error {
	queue := newQueue(parts)
	for last := int64(-1); len(queue) > 0; {
		top := queue[0]
		if top.block == nil { // not loaded yet: the first accepted row is low or a later row
			if err := top.load(); err != nil {
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
		if err := top.advance(); err != nil {
			return err
		}
		queue.fixFirst()
	}
	return nil
}

// cursor is a position in a part.
type cursor struct {
	*mergePart
	scan  *columnar.TableScan
	rowAt int // position of the row index column
	block *columnar.Block
	at    int    // position in block
	row   int64  // index of the row at that position, or low if block is nil
	found uint64 // accepted rows so far
	done  bool
}

// load reads the first block and moves to the first accepted row.
func (c *cursor) load() error {
	c.at = -1
	return c.advance()
}

// advance moves to the next accepted row.
func (c *cursor) advance() (err error) {
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

func (c *cursor) finish() error {
	c.done = true
	c.block, c.scan, c.tries = nil, nil, nil // free the buffers, which are large
	if c.Accept != nil && c.found != c.Accept.GetCardinality() {
		return c.errMissingRows(c.found)
	}
	return nil
}

// queue is a binary heap of cursors, ordered by row.
type queue []*cursor

func newQueue(parts []*mergePart) queue {
	var q queue
	for _, p := range parts {
		all := make([]int, len(p.table.Columns()))
		for i := range all {
			all[i] = i
		}
		c := &cursor{mergePart: p, scan: p.table.Scan(all...), rowAt: p.table.Column(columnRow), row: p.low}
		if len(q) > 0 {
			c.scan.ShareBuffer(q[0].scan)
		}
		q = append(q, c)
	}
	for i := len(q)/2 - 1; i >= 0; i-- {
		q.down(i)
	}
	return q
}

// fixFirst restores the order after the first cursor moved, and removes the
// cursor if it is done.
func (q *queue) fixFirst() {
	if (*q)[0].done {
		last := len(*q) - 1
		(*q)[0] = (*q)[last]
		*q = (*q)[:last]
	}
	q.down(0)
}

func (q queue) down(i int) {
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

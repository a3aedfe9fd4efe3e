package results

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/rowmill/rowmill/columnar"
)

// interleave merges parts row by row. With next ≥ 0 the rows must be all from
// next on; otherwise they need only ascend.
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
		tried, err := c.tries.of(c.row)
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

// walk visits the rows of parts that count, in order and each once.
func walk(ctx context.Context, parts []*mergePart, visit func(c *cursor) error) error {
	queue := newQueue(parts)
	for last := int64(-1); len(queue) > 0; {
		top := queue[0]
		if top.block == nil { // known so far: no row before low
			if err := top.load(); err != nil {
				return err
			}
			queue.settle()
			continue
		}
		if top.row == last {
			return fmt.Errorf("row %d is there twice, the second time in part %d", top.row, top.number)
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
		queue.settle()
	}
	return nil
}

// cursor is a place in a part.
type cursor struct {
	*mergePart
	scan  *columnar.TableScan
	rowAt int // the column of row indexes
	block *columnar.Block
	at    int    // in block
	row   int64  // at that place, or low where block is nil
	found uint64 // rows passed that count
	done  bool
}

// load reads the first block and goes to the first row that counts.
func (c *cursor) load() error {
	c.at = -1
	return c.advance()
}

// advance goes to the next row that counts.
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
	c.block, c.scan, c.tries = nil, nil, nil // the buffers are large
	if c.Accept != nil && c.found != c.Accept.GetCardinality() {
		return c.lacking(c.found)
	}
	return nil
}

// queue is a binary heap of cursors by row.
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

// settle restores the order after the first cursor has moved, and drops it
// when it is done.
func (q *queue) settle() {
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

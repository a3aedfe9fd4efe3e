package commit

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sort"
	"sync"
	"sync/atomic"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/actors/assign"
	"github.com/rowmill/rowmill/blob"
	"github.com/rowmill/rowmill/blob/layout"
	"github.com/rowmill/rowmill/internal/shard"
	"github.com/rowmill/rowmill/results"
	"github.com/rowmill/rowmill/results/archive"
	"github.com/rowmill/rowmill/store"
)

// CopyWriter writes copies: rows that get the answer of an equal row, their original. It
// reads each needed answer once from the parts, in the order of shards, and stores it
// in a temporary file without a name. It uses 12 bytes of memory for each answer. Only
// one Write runs at a time.
type CopyWriter struct {
	Files *CompactionPlanner
	Of    *shard.RowCopies // the copies of the whole input
	// List opens the stored list of copies from which Of was read.
	List func(ctx context.Context) (blob.Object, error)
	// Input opens shard n of the job.
	Input func(ctx context.Context, n int) (*shard.Reader, error)

	// read is the number of the first shard from which answers must still be read.
	read    int
	answers []answerIndex // by shard, for the shards before read
	spill   *os.File      // the temporary file; nil before the first answer
	size    int64         // size of spill in bytes

	mu     sync.Mutex  // held during Write
	closed atomic.Bool // Close was called
}

// answerIndex says where the needed answers of one shard are in the temporary file.
type answerIndex struct {
	rows []uint32 // positions of the rows in the shard, in order
	at   []int64  // by index in rows: offset of the answer in the file; then the end of the last answer
}

// NeededShards returns the shards whose answers must be read before the copies of shard n can
// be written. All rows of these shards are then committed, except copies.
func (c *CopyWriter) NeededShards(n int) (shards []int) {
	for m := c.read; m <= c.Of.LastOriginalShard(n); m++ {
		if c.Of.OriginalRows(m) != nil {
			shards = append(shards, m)
		}
	}
	return shards
}

// Write stores copies of shard n as a part. rows are the copies to write, and parts has
// the parts of each shard in NeededShards(n). If a merge has removed one of these parts,
// the error is rowmill.ErrNotFound or blob.ErrLost, and the caller may call Write again
// with the new parts.
func (c *CopyWriter) Write(ctx context.Context, n int, rows *roaring.Bitmap, parts map[int][]store.Part) (part assign.Part, err error) {
	c.mu.Lock()
	defer func() {
		c.mu.Unlock()
		if c.closed.Load() {
			c.Close()
		}
	}()
	for ; c.read <= c.Of.LastOriginalShard(n); c.read++ {
		a, err := c.readAnswers(ctx, c.read, parts[c.read])
		if err != nil {
			return part, fmt.Errorf("read the answers of shard %d: %w", c.read, err)
		}
		c.answers = append(c.answers, a)
	}
	if part, err = c.write(ctx, n, rows); err != nil {
		return part, fmt.Errorf("write the copies of shard %d: %w", n, err)
	}
	return part, nil
}

// Close removes the temporary file, or lets a running Write remove it at its end. Write
// must not be called after Close.
func (c *CopyWriter) Close() {
	c.closed.Store(true)
	if !c.mu.TryLock() { // the running Write closes the file
		return
	}
	defer c.mu.Unlock()
	if c.spill != nil {
		_ = c.spill.Close() // no Write reads the file any more
		c.spill = nil
	}
}

// readAnswers reads the needed answers of shard n from its parts, and appends them to
// the temporary file.
func (c *CopyWriter) readAnswers(ctx context.Context, n int, parts []store.Part) (a answerIndex, err error) {
	needed := c.Of.OriginalRows(n)
	if needed == nil {
		return a, nil
	}
	if c.spill == nil {
		if c.spill, err = results.CreateUnnamedFile("rowmill-copies-*"); err != nil {
			return a, err
		}
	}
	sources, release, err := openPartSources(ctx, c.Files.Bucket, c.Files.Shards[n].First, parts, needed)
	defer release()
	if err != nil {
		return a, err
	}
	out := bufio.NewWriterSize(io.NewOffsetWriter(c.spill, c.size), 256<<10)
	at := c.size
	err = results.VisitPartRows(ctx, c.Files.Schema, sources, func(row *rowmill.Row, answer *rowmill.RowOutput) error {
		record, err := encodeAnswer(answer)
		if err != nil {
			return err
		}
		a.rows = append(a.rows, uint32(row.Index-c.Files.Shards[n].First)) //nolint:gosec // position in the shard
		a.at = append(a.at, at)
		at += int64(len(record))
		_, err = out.Write(record)
		return err
	})
	if err = errors.Join(err, out.Flush()); err != nil {
		return a, err
	}
	if found, want := len(a.rows), needed.GetCardinality(); uint64(found) != want { //nolint:gosec // a number of rows
		return a, fmt.Errorf("the parts have only %d of the %d answers that the copies need", found, want)
	}
	a.at = append(a.at, at)
	c.size = at
	return a, nil
}

// answer reads the answer of a row from the temporary file into out. row is the number
// of the row in the job.
func (c *CopyWriter) answer(row int64, out *rowmill.RowOutput) error {
	n := c.Of.ShardOf(row)
	a, rel := &c.answers[n], uint32(row-c.Files.Shards[n].First) //nolint:gosec // position in the shard
	i := sort.Search(len(a.rows), func(i int) bool { return a.rows[i] >= rel })
	if i == len(a.rows) || a.rows[i] != rel {
		return fmt.Errorf("the answer of row %d is missing", row)
	}
	record := make([]byte, a.at[i+1]-a.at[i])
	if _, err := c.spill.ReadAt(record, a.at[i]); err != nil {
		return fmt.Errorf("read the answer of row %d: %w", row, err)
	}
	return decodeAnswer(record, out)
}

// write stores the copies of shard n that are in rows as a part.
func (c *CopyWriter) write(ctx context.Context, n int, rows *roaring.Bitmap) (part assign.Part, err error) {
	list, err := c.List(ctx)
	if err != nil {
		return part, err
	}
	originals, err := c.Of.ReadOriginals(list, n)
	if err = errors.Join(err, list.Close()); err != nil {
		return part, err
	}
	input, err := c.Input(ctx, n)
	if err != nil {
		return part, err
	}
	defer func() { _ = input.Close() }() // opened for reading only
	f := c.Files
	part = assign.Part{Key: layout.NewPartKey(f.Schema.JobID, n, f.Epoch), Shard: n, Rows: assign.NewRowSet(rows)}
	part.Size, err = archive.WritePart(ctx, f.Bucket, part.Key, f.Schema, func(file *results.PartWriter) (err error) {
		part.Totals, err = c.writeRows(ctx, file, n, rows, originals, input)
		return err
	})
	return part, err
}

// rowsPerContextCheck is the number of rows that are written between two checks whether the
// context has ended.
const rowsPerContextCheck = 4096

// writeRows writes the copies of shard n that are in rows to file, and returns their
// totals. originals has the original of each copy in the shard, and input is the shard.
func (c *CopyWriter) writeRows(ctx context.Context, file *results.PartWriter, n int, rows *roaring.Bitmap, originals []int64, input *shard.Reader) (totals store.RowTotals, err error) {
	var block *shard.Block
	var out rowmill.RowOutput
	last := int64(-1) // number of the row whose answer is in out
	for i, it := 0, c.Of.Rows(n).Iterator(); it.HasNext(); i++ {
		rel := it.Next()
		if !rows.Contains(rel) {
			continue
		}
		if i%rowsPerContextCheck == 0 && ctx.Err() != nil {
			return totals, ctx.Err()
		}
		if at := int(rel); block == nil || at >= block.First+block.Rows() {
			if block, err = input.ReadBlock(input.BlockOf(at)); err != nil {
				return totals, err
			}
		}
		if last != originals[i] {
			last = originals[i]
			if err := c.answer(last, &out); err != nil {
				return totals, err
			}
		}
		row := block.Row(input.FirstRow(), int(rel))
		if err := file.Add(&row, &out); err != nil {
			return totals, err
		}
		totals.Rows++
		totals.Deduplicated++
		switch {
		case out.Failed():
			totals.Failed++
		case out.Finish == rowmill.FinishLength:
			totals.TruncatedOutputs++
		}
	}
	if uint64(totals.Rows) != rows.GetCardinality() { //nolint:gosec // a number of rows
		return totals, fmt.Errorf("wrote %d copies instead of %d: the other rows are no copies", totals.Rows, rows.GetCardinality())
	}
	return totals, nil
}

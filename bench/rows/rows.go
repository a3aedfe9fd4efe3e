// Package rows is what the Go contenders of the benchmarks have in common: it
// reads the rows of a Parquet file, hands them to a fixed number of workers,
// appends every answer to a log that is flushed to disk in groups, and writes
// the rows with their answers to a Parquet file in input order. How an answer
// is got is the contender's business. It shares no code with the product it
// is compared with.
package rows

import (
	"context"
	"fmt"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
)

// batchRows is how many rows are read, handed out and written together. A few
// batches are in memory at a time, so that workers do not wait at the border.
const batchRows = 8192

// Answer is what a contender makes of one row.
type Answer struct {
	Text  string
	Score float64 // 100·exp(mean log probability)
}

// Ask gets the answer to one text. It is called from one goroutine per
// worker; text must not be kept.
type Ask func(ctx context.Context, text []byte) (Answer, error)

// Job is a run from Parquet to Parquet.
type Job struct {
	In, Out string // paths
	Workers int    // requests in flight
	// NewAsk makes the Ask of one worker; done frees what it holds.
	NewAsk func() (ask Ask, done func(), err error)
}

// batch is consecutive rows on their way through the workers.
type batch struct {
	first   int64 // number of its first row
	ids     []int64
	texts   [][]byte
	answers []Answer
	left    atomic.Int64  // rows without an answer
	done    chan struct{} // closed with the last answer
}

// place is one row of a batch.
type place struct {
	batch *batch
	row   int
}

// Run runs the job and returns the number of rows written.
func Run(ctx context.Context, job Job) (int64, error) {
	in, err := openInput(job.In)
	if err != nil {
		return 0, err
	}
	defer in.close()
	out, err := createOutput(job.Out)
	if err != nil {
		return 0, err
	}
	defer out.close()
	log, err := createLog(job.Out + ".log")
	if err != nil {
		return 0, err
	}
	defer log.remove()

	group, ctx := errgroup.WithContext(ctx)
	work := make(chan place, 2*job.Workers)
	read := make(chan *batch, 1)
	group.Go(func() error {
		defer close(read)
		defer close(work)
		return deal(ctx, in, read, work)
	})
	for range job.Workers {
		group.Go(func() error { return answer(ctx, job, work, log) })
	}
	group.Go(func() error { return write(ctx, read, out) })
	if err := group.Wait(); err != nil {
		return 0, err
	}
	if err := log.flush(); err != nil {
		return 0, err
	}
	return out.rows, out.commit()
}

// deal reads batches and hands their rows out in order.
func deal(ctx context.Context, in *input, read chan<- *batch, work chan<- place) error {
	for {
		b, err := in.next()
		if err != nil || b == nil {
			return err
		}
		b.answers = make([]Answer, len(b.texts))
		b.left.Store(int64(len(b.texts)))
		b.done = make(chan struct{})
		select {
		case read <- b:
		case <-ctx.Done():
			return ctx.Err()
		}
		for row := range b.texts {
			select {
			case work <- place{b, row}:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
}

// answer is one worker.
func answer(ctx context.Context, job Job, work <-chan place, log *appendLog) error {
	ask, done, err := job.NewAsk()
	if err != nil {
		return fmt.Errorf("start worker: %w", err)
	}
	defer done()
	for p := range work {
		got, err := ask(ctx, p.batch.texts[p.row])
		if err != nil {
			return fmt.Errorf("row %d: %w", p.batch.first+int64(p.row), err)
		}
		p.batch.answers[p.row] = got
		if err := log.append(p.batch.ids[p.row], got); err != nil {
			return err
		}
		if p.batch.left.Add(-1) == 0 {
			close(p.batch.done)
		}
	}
	return nil
}

// write writes batches in the order in which they were read.
func write(ctx context.Context, read <-chan *batch, out *output) error {
	for b := range read {
		select {
		case <-b.done:
		case <-ctx.Done():
			return ctx.Err()
		}
		if err := out.write(b); err != nil {
			return err
		}
	}
	return nil
}

// Package rows is the common part of the Go contenders in the benchmarks: it reads the
// rows of a Parquet file, passes them to a fixed number of workers, appends every
// answer to a log that is flushed to disk in groups, and writes the rows with their
// answers to a Parquet file in input order. Each contender gets the answers in its own
// way. The package shares no code with the service.
package rows

import (
	"context"
	"fmt"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
)

// batchRows is how many rows are read, distributed and written together. A few batches
// are in memory at a time, so that workers do not wait between batches.
const batchRows = 8192

// Answer is the answer to one row.
type Answer struct {
	Text  string
	Score float64 // 100·exp(mean log probability)
}

// Ask returns the answer to a text. One goroutine per worker calls it; it must not keep
// text.
type Ask func(ctx context.Context, text []byte) (Answer, error)

// Job is a run from a Parquet file to a Parquet file.
type Job struct {
	In, Out string // paths
	Workers int    // requests in flight
	// NewAsk returns an Ask for a worker; done frees its resources.
	NewAsk func() (ask Ask, done func(), err error)
}

// batch is a group of consecutive rows.
type batch struct {
	first   int64 // number of the first row
	ids     []int64
	texts   [][]byte
	answers []Answer
	left    atomic.Int64  // rows without an answer
	done    chan struct{} // closed with the last answer
}

// place is the place of a row in a batch.
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

// deal reads batches and sends their rows to workers in order.
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

// answer is the loop of a worker.
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

// write writes batches in input order.
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

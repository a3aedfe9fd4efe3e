package main

import (
	"context"
	"fmt"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
)

// batchRows is how many rows are read, distributed and written together. A few batches
// are in memory at a time, so that workers do not wait between batches.
const batchRows = 8192

// An answer is the answer to one row.
type answer struct {
	text  string
	score float64 // 100·exp(mean log probability)
}

// A job is a run from a Parquet file to a Parquet file.
type job struct {
	in, out string // paths
	workers int    // connections
	address string
	codec   codec
}

// batch is a group of consecutive rows.
type batch struct {
	first   int64 // number of the first row
	ids     []int64
	texts   [][]byte
	answers []answer
	left    atomic.Int64  // rows without an answer
	done    chan struct{} // closed with the last answer
}

// place is the place of a row in a batch.
type place struct {
	batch *batch
	row   int
}

// run reads the rows, passes them to the workers, appends every answer to a log that is
// flushed to disk in groups, and writes the rows with their answers in input order. It
// returns the number of rows written.
func run(ctx context.Context, job job) (int64, error) {
	in, err := openInput(job.in)
	if err != nil {
		return 0, err
	}
	defer in.close()
	out, err := createOutput(job.out)
	if err != nil {
		return 0, err
	}
	defer out.close()
	log, err := createLog(job.out + ".log")
	if err != nil {
		return 0, err
	}
	defer log.remove()

	group, ctx := errgroup.WithContext(ctx)
	work := make(chan place, 2*job.workers)
	read := make(chan *batch, 1)
	group.Go(func() error {
		defer close(read)
		defer close(work)
		return deal(ctx, in, read, work)
	})
	for range job.workers {
		group.Go(func() error { return ask(ctx, job, work, log) })
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
		b.answers = make([]answer, len(b.texts))
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

// ask is the loop of a worker.
func ask(ctx context.Context, job job, work <-chan place, log *appendLog) error {
	c, err := dial(ctx, job.address)
	if err != nil {
		return err
	}
	defer c.net.Close()
	for p := range work {
		got, err := c.ask(job.codec, p.batch.texts[p.row])
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

package main

import (
	"context"
	"fmt"
	"time"
)

// first measures the time from the submission of a CSV file by URL to the server's
// first request, on a node that has run a job before, for a million rows and for the
// largest number. It then cancels the job.
func (b *bench) first(ctx context.Context) error {
	n, address, end, err := b.onNull(ctx, "-models", model, "-delay", "100ms")
	if err != nil {
		return err
	}
	defer end()
	sizes := []int64{1, 1_000_000, b.most}
	took := make(map[int64]spread)
	for round := range b.rounds + 1 { // the first round is a warm-up
		for _, rows := range sizes {
			path, err := b.makeCSV(rows)
			if err != nil {
				return err
			}
			ms, err := n.toFirst(ctx, address, b.fileOf(path))
			if err != nil {
				return err
			}
			if round == 0 {
				continue
			}
			took[rows] = append(took[rows], ms)
			b.log.Info("measured", "rows", rows, "first_request_ms", short(ms))
		}
	}
	t := table{head: []string{"rows", "first request after, ms"}}
	for _, rows := range sizes {
		t.add(fmt.Sprint(rows), took[rows].String())
	}
	t.report("First request: %d rounds, median (min–max)", b.rounds)
	return n.stop()
}

// toFirst returns the milliseconds from the submission of a job to its first request at
// the server. It then cancels the job.
func (n *node) toFirst(ctx context.Context, address string, s submission) (float64, error) {
	for { // skip late requests of the earlier job
		if late, err := firstRequest(ctx, address); err != nil {
			return 0, err
		} else if late == 0 {
			break
		}
		time.Sleep(500 * time.Millisecond)
	}
	begun := time.Now()
	id, err := n.submit(ctx, s)
	if err != nil {
		return 0, err
	}
	var at int64
	for at == 0 {
		time.Sleep(time.Millisecond)
		if at, err = firstRequest(ctx, address); err != nil {
			return 0, err
		}
	}
	return float64(time.Unix(0, at).Sub(begun).Microseconds()) / 1000, n.cancel(ctx, id)
}

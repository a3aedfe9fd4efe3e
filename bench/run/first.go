package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"time"
)

// first measures how soon the first row of a CSV file by URL reaches a server: from
// the submission until the server has the first request, on a node that has run a
// job before, for a million rows and for most. The job is cancelled then.
func (b *bench) first(ctx context.Context, most int64) error {
	null, address, err := b.startNull(ctx, "-models", model, "-delay", "100ms")
	if err != nil {
		return err
	}
	defer null.end()
	n, err := startNode(ctx, b.rowmill, filepath.Join(b.dir, "node-first"), address)
	if err != nil {
		return err
	}
	defer n.end()
	sizes := []int64{1, 1_000_000, most}
	took := make(map[int64]spread)
	for round := range b.rounds + 1 { // the first one warms
		for _, rows := range sizes {
			path, err := b.makeCSV(rows)
			if err != nil {
				return err
			}
			for { // what still comes of the job before
				if late, err := firstRequest(ctx, address); err != nil {
					return err
				} else if late == 0 {
					break
				}
				time.Sleep(500 * time.Millisecond)
			}
			begun := time.Now()
			id, err := n.submit(ctx, submission{
				Inputs: b.fileBase + filepath.Base(path), Model: model, Column: "text", IDColumn: "id", Priority: 1,
			})
			if err != nil {
				return err
			}
			var at int64
			for at == 0 {
				time.Sleep(time.Millisecond)
				if at, err = firstRequest(ctx, address); err != nil {
					return err
				}
			}
			if err := n.call(ctx, http.MethodGet, "/v1/job-cancel/"+id, nil, nil); err != nil {
				return err
			}
			if round == 0 {
				continue
			}
			ms := float64(time.Unix(0, at).Sub(begun).Microseconds()) / 1000
			took[rows] = append(took[rows], ms)
			b.log.Info("measured", "rows", rows, "first_request_ms", short(ms))
		}
	}
	t := table{head: []string{"rows", "first request after, ms"}}
	for _, rows := range sizes {
		t.add(fmt.Sprint(rows), took[rows].String())
	}
	fmt.Printf("\nFirst request: %d rounds, median (min–max)\n\n", b.rounds)
	t.print(os.Stdout)
	return n.stop()
}

// firstRequest is when the null server had its first request since it was asked
// this before, in Unix nanoseconds; 0 where it had none.
func firstRequest(ctx context.Context, engine string) (int64, error) {
	return nullTime(ctx, engine, "first")
}

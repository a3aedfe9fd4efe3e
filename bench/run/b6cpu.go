package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"time"
)

// Sizes of b6/cpu. One node takes half a minute for the job, so that its shards have
// several parts and are merged, as with several nodes.
const (
	hurriedRows   = 200_000
	hurriedSlots  = 64
	hurriedAnswer = time.Millisecond
)

// fastFigures holds the figures of a job that runs as fast as this machine allows.
type fastFigures struct {
	rate float64 // rows per second, from the submission to the commit of the last row
	cpu  float64 // processor time of all nodes, seconds per row
}

// scaleCPU is the second half of B6: the processor time of the same job on n nodes. The
// servers are faster than the nodes, so that the periodic work of nodes has a small
// share.
func (b *bench) scaleCPU(ctx context.Context, most int) error {
	all := make(map[int][]fastFigures)
	for round := range b.rounds {
		for n := 1; n <= most; n *= 2 {
			h, err := b.runFast(ctx, n)
			if err != nil {
				return fmt.Errorf("%d nodes: %w", n, err)
			}
			all[n] = append(all[n], h)
			b.log.Info("measured", "round", round+1, "nodes", n, "rows_per_s", h.rate, "cpu_us_per_row", 1e6*h.cpu)
		}
	}
	fmt.Printf("\nB6 scale-out, processor time: %d rows as fast as all nodes can on this one machine, %d rounds, median (min–max)\n\n", hurriedRows, b.rounds)
	t := table{head: []string{"nodes", "rows/s in all", "CPU µs/row", "÷ one node's"}}
	cpu := func(h fastFigures) float64 { return 1e6 * h.cpu }
	for n := 1; n <= most; n *= 2 {
		t.add(strconv.Itoa(n), collect(all[n], func(h fastFigures) float64 { return h.rate }).String(),
			collect(all[n], cpu).String(), collect(all[n], cpu).over(collect(all[1], cpu)).String())
	}
	t.print(os.Stdout)
	return nil
}

// runFast runs the job on n new nodes.
func (b *bench) runFast(ctx context.Context, n int) (h fastFigures, err error) {
	in, err := dataset{rows: hurriedRows, bytes: slowBytes, seed: 6}.make(b.dir)
	if err != nil {
		return h, err
	}
	l, err := b.startLab(ctx, n, func(log string) (*process, string, error) { return b.startPaced(log, hurriedSlots, hurriedAnswer) })
	if err != nil {
		return h, err
	}
	defer l.end()
	if err := l.warm(ctx, b); err != nil {
		return h, fmt.Errorf("first job: %w", err)
	}
	j, err := l.job(ctx, b, in)
	if err != nil {
		return h, err
	}
	if err := b.checked(ctx, l.nodes[0], j.id, hurriedRows); err != nil {
		return h, err
	}
	h = fastFigures{rate: hurriedRows / committed(j.course).Sub(j.submitted).Seconds(), cpu: j.cpu.Seconds() / hurriedRows}
	return h, l.stop()
}

package main

import (
	"context"
	"fmt"
	"strconv"
)

// embeddingModel is the catalog's embedding model.
const embeddingModel = "qwen-3-embedding-0.6b"

// load is a job of B7.
type load struct {
	name  string
	data  dataset
	model string
	null  []string // flags for the inference server
	asks  map[string]any
}

// growth is B7: memory and processor time per row for larger jobs, long answers, and
// vectors. Each load runs on a new node.
func (b *bench) growth(ctx context.Context) error {
	loads := make([]load, 0, 6)
	for rows := int64(10_000); rows <= b.most; rows *= 10 {
		loads = append(loads, load{
			name: strconv.FormatInt(rows, 10) + " rows of 100 B", model: model,
			data: dataset{rows: rows, bytes: 100, seed: 7}, null: []string{"-tokens", "20"},
		})
	}
	loads = append(loads,
		load{
			name: "20,000 rows, answers of 32,000 tokens", model: model,
			data: dataset{rows: 20_000, bytes: 100, seed: 7}, null: []string{"-tokens", "32000"}, asks: map[string]any{"max_tokens": 32_000},
		},
		load{
			name: "200,000 embeddings of 1,024 floats", model: embeddingModel,
			data: dataset{rows: 200_000, bytes: 100, seed: 7}, null: []string{"-dimension", "1024"},
		})

	t := table{head: []string{"load", "peak anonymous memory, MiB", "CPU µs/row", "rows/s"}}
	for _, l := range loads {
		m, err := b.grow(ctx, l)
		if err != nil {
			return fmt.Errorf("%s: %w", l.name, err)
		}
		rows := float64(l.data.rows)
		t.add(l.name, short(float64(m.peak)/(1<<20)), short(m.cpu.Seconds()*1e6/rows), short(rows/m.wall.Seconds()))
		b.log.Info("measured", "load", l.name, "peak_mib", m.peak>>20, "cpu", m.cpu, "wall", m.wall)
	}
	t.report("B7 growth: one job each on a fresh node, GOMAXPROCS as the machine has")
	return nil
}

// grow runs one load on a new node.
func (b *bench) grow(ctx context.Context, l load) (measured, error) {
	in, err := l.data.make(b.dir)
	if err != nil {
		return measured{}, err
	}
	null, address, err := b.startNull(ctx, append(l.null, "-models", l.model)...)
	if err != nil {
		return measured{}, err
	}
	defer null.end()
	s := b.fileOf(in)
	s.Model, s.Sampling = l.model, l.asks
	return b.onNewNode(ctx, b.rowmill, address, l.data.rows, s)
}

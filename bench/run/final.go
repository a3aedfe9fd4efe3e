package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// finalBytes is the size of the rows of final.
const finalBytes = 8000

// final measures on an S3 server how long a result takes after the last row, and how
// many bytes pass through the node that owns the job once its input is counted:
// another node runs the rows, and parts gather for long enough to need no merging.
// Shards come in the default size and in one whose parts an S3 server can copy.
func (b *bench) final(ctx context.Context, rows int64) error {
	in, err := (dataset{rows: rows, bytes: finalBytes, seed: 7}).make(b.dir)
	if err != nil {
		return err
	}
	b.roles = []string{"api", "engines"}
	t := table{head: []string{"shards", "result, MiB", "last row to result, ms", "through the owner, MiB", "÷ result", "merges by the owner", "elsewhere", "their seconds", "copies by the server"}}
	for _, c := range []struct {
		name     string
		settings []string
	}{
		{"of 8 MiB", []string{"jobs.part_interval=1m", "jobs.part_bytes=2GiB", "jobs.memory_budget=1GiB"}},
		{"of 32 MiB", []string{"jobs.part_interval=1m", "jobs.part_bytes=2GiB", "jobs.memory_budget=1GiB", "jobs.shard_bytes=32MiB"}},
	} {
		for range b.rounds {
			m, err := b.finalOf(ctx, in, rows, c.settings)
			if err != nil {
				return fmt.Errorf("shards %s: %w", c.name, err)
			}
			t.add(c.name, short(float64(m.result)/(1<<20)), short(m.final.Seconds()*1e3), short(m.moved/(1<<20)), short(m.moved/float64(m.result)), short(m.merges), short(m.elsewhere), short(m.seconds), short(m.copies))
			b.log.Info("measured", "shards", c.name, "result_mib", m.result>>20, "final", m.final, "moved_mib", int64(m.moved)>>20)
		}
	}
	fmt.Printf("\nFinal: %d rows of %d B on S3, one node that owns and one that runs rows\n\n", rows, finalBytes)
	t.print(os.Stdout)
	return nil
}

// finished is how a job came to its result.
type finished struct {
	result int64 // bytes
	final  time.Duration
	moved  float64 // bytes
	merges float64 // by the owner
	copies float64 // requests to copy

	elsewhere float64 // merges by the other node
	seconds   float64 // of these
}

func (b *bench) finalOf(ctx context.Context, in string, rows int64, settings []string) (m finished, err error) {
	l, err := b.startLab(ctx, 2, func(string) (*process, string, error) {
		return b.startNull(ctx, "-tokens", "20", "-models", model)
	}, settings...)
	if err != nil {
		return m, err
	}
	defer l.end()
	owner := l.nodes[0]
	through := func() (float64, error) {
		values, err := owner.metrics(ctx)
		return tally(values).sum("rowmill_s3_bytes_total"), err
	}
	job, err := owner.submit(ctx, submission{
		Inputs: b.fileBase + filepath.Base(in), Model: model, Column: "text", IDColumn: "id", Priority: 1,
	})
	if err != nil {
		return m, err
	}
	if err := owner.counted(ctx, job, rows); err != nil {
		return m, err
	}
	before, err := through()
	if err != nil {
		return m, err
	}
	if _, err := owner.wait(ctx, job, 100*time.Millisecond); err != nil {
		return m, err
	}
	after, err := through()
	if err != nil {
		return m, err
	}
	m.moved = after - before
	values, err := owner.metrics(ctx)
	if err != nil {
		return m, err
	}
	m.merges = values["rowmill_merge_seconds_count"]
	for name, n := range values {
		if strings.HasPrefix(name, "rowmill_s3_requests_total") && strings.Contains(name, `"CopyObject"`) {
			m.copies += n
		}
	}
	other, err := l.nodes[1].metrics(ctx)
	if err != nil {
		return m, err
	}
	m.elsewhere, m.seconds = other["rowmill_merge_seconds_count"], other["rowmill_merge_seconds_sum"]
	m.final = time.Duration(values["rowmill_finalise_seconds_sum"] * float64(time.Second))
	out := filepath.Join(b.dir, "result.parquet")
	defer os.Remove(out)
	if err := owner.download(ctx, job, out); err != nil {
		return m, err
	}
	if err := checkResult(out, job, rows); err != nil {
		return m, err
	}
	info, err := os.Stat(out)
	if err != nil {
		return m, fmt.Errorf("look at result: %w", err)
	}
	m.result = info.Size()
	return m, nil
}

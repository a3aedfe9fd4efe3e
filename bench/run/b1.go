package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// model is the model of every benchmark of the chat path.
const model = "llama-3.1-8b"

// contender is one way to get a file of rows answered.
type contender struct {
	name string
	run  func(ctx context.Context, in, out string) (usage, error)
	// outputColumn of its result; empty when the contender checked it itself.
	outputColumn string
}

// rowPath is B1: processor time per row from Parquet to Parquet, of the
// service, of a limit that cannot be undercut by much, and of what people
// write themselves.
func (b *bench) rowPath(ctx context.Context, rows int64) error {
	in, err := dataset{rows: rows, bytes: 1024, seed: 1}.make(b.dir)
	if err != nil {
		return err
	}
	null, address, err := b.startNull(ctx, "-models", model)
	if err != nil {
		return err
	}
	defer null.end()
	contenders, err := b.contenders(ctx, address, rows)
	if err != nil {
		return err
	}

	cpu := make(map[string]spread)
	rate := make(map[string]spread)
	for round := range b.rounds {
		for _, c := range contenders {
			out := filepath.Join(b.dir, "result.parquet")
			used, err := c.run(ctx, in, out)
			if err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
			if c.outputColumn != "" {
				if err := checkResult(out, c.outputColumn, rows); err != nil {
					return fmt.Errorf("%s: %w", c.name, err)
				}
			}
			_ = os.Remove(out) // the next round would overwrite it
			cpu[c.name] = append(cpu[c.name], used.cpu.Seconds()*1e6/float64(rows))
			rate[c.name] = append(rate[c.name], float64(rows)/used.wall.Seconds())
			b.log.Info("measured", "round", round+1, "contender", c.name,
				"cpu_us_per_row", short(cpu[c.name][round]), "rows_per_s", short(rate[c.name][round]))
		}
	}

	t := table{head: []string{"contender", "CPU µs/row", "÷ limit (encoding/json)", "÷ limit (scanned)", "rows/s"}}
	for _, c := range contenders {
		t.add(c.name, cpu[c.name].String(), cpu[c.name].over(cpu[limitStd]).String(),
			cpu[c.name].over(cpu[limitScan]).String(), rate[c.name].String())
	}
	fmt.Printf("\nB1 row path: %d rows, 1 KB in, 0.5 KB out, log probabilities on, %d rounds, median (min–max)\n\n", rows, b.rounds)
	t.print(os.Stdout)
	return nil
}

// Names of the two limits, which others are divided by.
const (
	limitStd  = "limit, encoding/json"
	limitScan = "limit, scanned"
)

// contenders builds what runs in B1. The order within a round is that of the
// list, the service between the limits it is divided by.
func (b *bench) contenders(ctx context.Context, address string, rows int64) ([]contender, error) {
	limit, err := b.build(ctx, "limit")
	if err != nil {
		return nil, err
	}
	plain, err := b.build(ctx, "plain")
	if err != nil {
		return nil, err
	}
	python, err := b.python(ctx)
	if err != nil {
		return nil, err
	}
	program := func(name string, args ...string) func(context.Context, string, string) (usage, error) {
		return func(ctx context.Context, in, out string) (usage, error) {
			args := append(args[:len(args):len(args)], "--in", in, "--out", out, "--address", address, "--model", model)
			used, printed, err := runOnce(ctx, name, args...)
			if err != nil {
				return usage{}, err
			}
			return used, wantRows(printed, rows)
		}
	}
	return []contender{
		{name: limitStd, run: program(limit, "--json", "std"), outputColumn: "output"},
		{name: "rowmill", run: b.service(address, rows)},
		{name: limitScan, run: program(limit, "--json", "scan"), outputColumn: "output"},
		{name: "Go, net/http", run: program(plain), outputColumn: "output"},
		{name: "Python, asyncio streams", run: program(python, "bench/asyncio_raw.py"), outputColumn: "output"},
	}, nil
}

// service runs the rows through a fresh node. What the node does before the
// submission and after the job's success is not counted; the download and the
// check of the result are not either.
func (b *bench) service(address string, rows int64) func(context.Context, string, string) (usage, error) {
	return func(ctx context.Context, in, out string) (usage, error) {
		data := filepath.Join(b.dir, "node")
		if err := os.RemoveAll(data); err != nil {
			return usage{}, fmt.Errorf("remove old data: %w", err)
		}
		n, err := startNode(ctx, b.rowmill, data, address)
		if err != nil {
			return usage{}, err
		}
		defer n.end()
		r, err := n.measure(ctx, submission{
			Inputs: b.fileBase + filepath.Base(in), Model: model, Column: "text", IDColumn: "id", Priority: 1,
		})
		if err != nil {
			return usage{}, err
		}
		if err := n.download(ctx, r.job, out); err != nil {
			return usage{}, err
		}
		if err := checkResult(out, r.job, rows); err != nil {
			return usage{}, err
		}
		wait, err := n.sinceLastAnswer(ctx, address, r.job)
		if err != nil {
			return usage{}, err
		}
		b.log.Info("result is readable", "after_last_answer", wait)
		return r.usage, n.stop()
	}
}

// sinceLastAnswer returns how long after the inference server's last answer
// the job had succeeded, its result being readable.
func (n *node) sinceLastAnswer(ctx context.Context, engine, id string) (time.Duration, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+engine+"/null/last", nil)
	if err != nil {
		return 0, fmt.Errorf("make request: %w", err)
	}
	response, err := n.client.Do(request)
	if err != nil {
		return 0, fmt.Errorf("ask for the last answer: %w", err)
	}
	defer response.Body.Close()
	data, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, fmt.Errorf("ask for the last answer: %w", err)
	}
	last, err := strconv.ParseInt(string(data), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("time of the last answer: %w", err)
	}
	job, err := n.job(ctx, id)
	if err != nil {
		return 0, err
	}
	if job.Completed == nil {
		return 0, fmt.Errorf("job %s has no time of completion", id)
	}
	return job.Completed.Sub(time.Unix(0, last)), nil
}

// measured is what one job took.
type measured struct {
	usage
	job  string
	peak int64 // anonymous memory, bytes
}

// measure runs one job on the node and returns what the node's process used
// for it.
func (n *node) measure(ctx context.Context, s submission) (measured, error) {
	before, err := n.cpu()
	if err != nil {
		return measured{}, err
	}
	peak := n.watchMemory()
	begun := time.Now()
	job, err := n.submit(ctx, s)
	if err != nil {
		peak()
		return measured{}, err
	}
	_, err = n.wait(ctx, job, 100*time.Millisecond)
	wall := time.Since(begun)
	most := peak()
	if err != nil {
		return measured{}, err
	}
	after, err := n.cpu()
	if err != nil {
		return measured{}, err
	}
	return measured{usage: usage{cpu: after - before, wall: wall}, job: job, peak: most}, nil
}

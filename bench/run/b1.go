package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// model is the model of all chat benchmarks.
const model = "llama-3.1-8b"

// A contender is a way to get answers for a file of rows. It checks its result.
type contender struct {
	name string
	run  func(ctx context.Context, in string) (usage, error)
}

// limitName is the name of the limit, by which figures are divided.
const limitName = "limit"

// rowPath is B1: processor time per row, from Parquet to Parquet, of the service and of
// a practical lower limit.
func (b *bench) rowPath(ctx context.Context) error {
	in, err := dataset{rows: b.rows, bytes: b.bytes, seed: 1}.make(b.dir)
	if err != nil {
		return err
	}
	null, address, err := b.startNull(ctx, "-models", model, "-tokens", strconv.Itoa(b.tokens), "-delay", b.delay.String(), "-slots", strconv.Itoa(b.slots))
	if err != nil {
		return err
	}
	defer null.end()
	contenders, err := b.contenders(ctx, address)
	if err != nil {
		return err
	}

	cpu := make(map[string]spread)
	rate := make(map[string]spread)
	for round := range b.rounds {
		for _, c := range contenders {
			used, err := c.run(ctx, in)
			if err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
			cpu[c.name] = append(cpu[c.name], used.cpu.Seconds()*1e6/float64(b.rows))
			rate[c.name] = append(rate[c.name], float64(b.rows)/used.wall.Seconds())
			b.log.Info("measured", "round", round+1, "contender", c.name,
				"cpu_us_per_row", short(cpu[c.name][round]), "rows_per_s", short(rate[c.name][round]))
		}
	}

	t := table{head: []string{"contender", "CPU µs/row", "÷ " + limitName, "rows/s"}}
	for _, c := range contenders {
		t.add(c.name, cpu[c.name].String(), cpu[c.name].over(cpu[limitName]).String(), rate[c.name].String())
	}
	t.report("B1 row path: %d rows, %d bytes in, %d tokens out, log probabilities: %t, %d rounds, median (min–max)",
		b.rows, b.bytes, b.tokens, b.logprobs, b.rounds)
	return nil
}

// contenders builds the contenders of B1, in the order of a round.
func (b *bench) contenders(ctx context.Context, address string) ([]contender, error) {
	limit, err := b.build(ctx, "limit")
	if err != nil {
		return nil, err
	}
	list := []contender{{"rowmill", b.service(b.rowmill, address)}}
	if b.beside != "" {
		list = append(list, contender{"rowmill, " + filepath.Base(b.beside), b.service(b.beside, address)})
	}
	if b.traced > 0 {
		list = append(list, contender{fmt.Sprintf("rowmill, traced at %.4g %%", 100*b.traced), b.tracedService(address)})
	}
	return append(list, contender{limitName, func(ctx context.Context, in string) (usage, error) {
		out := filepath.Join(b.dir, "result.parquet")
		defer os.Remove(out)
		used, printed, err := runOnce(ctx, limit, "--in", in, "--out", out, "--address", address, "--model", model, "--logprobs="+strconv.FormatBool(b.logprobs))
		if err != nil {
			return usage{}, err
		}
		return used, errors.Join(wantRows(printed, b.rows), checkResult(out, "output", b.rows))
	}}), nil
}

// tracedService is service with a node that sends traces to a collector.
func (b *bench) tracedService(address string) func(context.Context, string) (usage, error) {
	run := b.service(b.rowmill, address,
		"tracing.endpoint="+b.fileBase, "tracing.sample=1", "tracing.rows="+strconv.FormatFloat(b.traced, 'g', -1, 64))
	return func(ctx context.Context, in string) (usage, error) {
		before := b.spans.Load()
		used, err := run(ctx, in)
		sent := b.spans.Load() - before
		if err == nil && sent == 0 {
			err = errors.New("no span arrived: nothing was traced")
		}
		b.log.Info("spans were sent", "bytes", sent)
		return used, err
	}
}

// service runs the rows through a new node with additional settings, NAME=VALUE.
func (b *bench) service(binary, address string, settings ...string) func(context.Context, string) (usage, error) {
	return func(ctx context.Context, in string) (usage, error) {
		s := b.fileOf(in)
		if !b.logprobs {
			s.Sampling = map[string]any{"logprobs": false}
		}
		m, err := b.onNewNode(ctx, binary, address, b.rows, s, settings...)
		return m.usage, err
	}
}

// measured holds the figures of a job.
type measured struct {
	usage
	record jobRecord
	id     string
	peak   int64 // peak of anonymous memory, bytes
}

// onNewNode runs one job on a new node with the inference server at address, and checks
// its result. Processor time before the submission and after the job's success does not
// count, nor do the download and the check of the result.
func (b *bench) onNewNode(ctx context.Context, binary, address string, rows int64, s submission, settings ...string) (measured, error) {
	data := filepath.Join(b.dir, "node")
	n, err := startNode(ctx, binary, data, address, settings...)
	if err != nil {
		return measured{}, err
	}
	defer n.end()
	m, err := n.measure(ctx, s)
	if err != nil {
		return measured{}, err
	}
	columns := []string{"include_inputs", "include_cumulative_logprobs"}
	if s.Sampling["logprobs"] == false { // the result has none
		columns = columns[:1]
	}
	if err := b.checked(ctx, n, m.id, rows, columns...); err != nil {
		return measured{}, err
	}
	if err := n.stop(); err != nil {
		return measured{}, err
	}
	return m, os.RemoveAll(data)
}

// checked downloads a job's result from a node and checks it.
func (b *bench) checked(ctx context.Context, n *node, id string, rows int64, columns ...string) error {
	url, err := n.resultsURL(ctx, id, columns...)
	if err != nil {
		return err
	}
	_, err = b.checkURL(ctx, n, url, id, rows)
	return err
}

// checkURL downloads a result and checks it. It returns the size of the file.
func (b *bench) checkURL(ctx context.Context, n *node, url, id string, rows int64) (int64, error) {
	out := filepath.Join(b.dir, "result.parquet")
	defer os.Remove(out)
	size, err := n.save(ctx, url, out)
	if err != nil {
		return 0, err
	}
	return size, checkResult(out, id, rows)
}

// measure runs one job on the node and returns the usage of the node's process.
func (n *node) measure(ctx context.Context, s submission) (m measured, err error) {
	peak := n.watchMemory()
	m.usage, err = costOf(n.cpu, func() (err error) {
		if m.id, err = n.submit(ctx, s); err == nil {
			m.record, err = n.wait(ctx, m.id, 100*time.Millisecond)
		}
		return err
	})
	m.peak = peak()
	return m, err
}

// firstRequest returns the time of the null server's first request since the last call,
// in Unix nanoseconds; 0 if there was none.
func firstRequest(ctx context.Context, engine string) (int64, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+engine+"/null/first", nil)
	if err != nil {
		return 0, fmt.Errorf("make request: %w", err)
	}
	data, err := read(http.DefaultClient, request)
	if err != nil {
		return 0, fmt.Errorf("ask for the first request: %w", err)
	}
	at, err := strconv.ParseInt(string(data), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("time of the first request: %w", err)
	}
	return at, nil
}

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"
)

// model is the model of all chat benchmarks.
const model = "llama-3.1-8b"

// A contender is a way to get answers for a file of rows.
type contender struct {
	name string
	run  func(ctx context.Context, in, out string) (usage, error)
	// outputColumn is the column of outputs in the result; empty if the contender has
	// checked the result itself.
	outputColumn string
}

// rowPath configures B1.
type rowPath struct {
	logprobs bool    // ask for log probabilities
	limits   bool    // run only the scanned limit and the service
	beside   string  // another binary of the service; may be empty
	traced   float64 // share of rows that an additional contender traces; 0: no such contender
	bytes    int     // size of a row
	tokens   int     // length of an answer
	delay    time.Duration
	slots    int    // of the server, with delay per answer; 0: no limit
	profiles string // directory for profiles of the service; may be empty
}

// rowPath is B1: processor time per row, from Parquet to Parquet, of the service, of a
// practical lower limit, and of typical programs.
func (b *bench) rowPath(ctx context.Context, rows int64, form rowPath) error {
	in, err := dataset{rows: rows, bytes: form.bytes, seed: 1}.make(b.dir)
	if err != nil {
		return err
	}
	null, address, err := b.startNull(ctx, "-models", model, "-tokens", strconv.Itoa(form.tokens), "-delay", form.delay.String(), "-slots", strconv.Itoa(form.slots))
	if err != nil {
		return err
	}
	defer null.end()
	contenders, err := b.contenders(ctx, address, rows, form)
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

	t := table{head: []string{"contender", "CPU µs/row", "÷ " + limitScan, "rows/s"}}
	if !form.limits {
		t.head = append(t.head, "÷ "+limitStd)
	}
	for _, c := range contenders {
		cells := []string{c.name, cpu[c.name].String(), cpu[c.name].over(cpu[limitScan]).String(), rate[c.name].String()}
		if !form.limits {
			cells = append(cells, cpu[c.name].over(cpu[limitStd]).String())
		}
		t.add(cells...)
	}
	asked := "on"
	if !form.logprobs {
		asked = "off"
	}
	fmt.Printf("\nB1 row path: %d rows, %d bytes in, %d tokens out, log probabilities %s, %d rounds, median (min–max)\n\n",
		rows, form.bytes, form.tokens, asked, b.rounds)
	t.print(os.Stdout)
	return nil
}

// Names of the two limits. Other figures are divided by theirs.
const (
	limitStd  = "limit, encoding/json"
	limitScan = "limit, scanned"
)

// contenders builds the contenders of B1. A round runs them in the order of the list,
// with the service between the two limits.
func (b *bench) contenders(ctx context.Context, address string, rows int64, form rowPath) ([]contender, error) {
	limit, err := b.build(ctx, "limit")
	if err != nil {
		return nil, err
	}
	program := func(name string, args ...string) func(context.Context, string, string) (usage, error) {
		return func(ctx context.Context, in, out string) (usage, error) {
			args := append(args[:len(args):len(args)], "--in", in, "--out", out, "--address", address, "--model", model, "--logprobs="+strconv.FormatBool(form.logprobs))
			used, printed, err := runOnce(ctx, name, args...)
			if err != nil {
				return usage{}, err
			}
			return used, wantRows(printed, rows)
		}
	}
	std := contender{name: limitStd, run: program(limit, "--json", "std"), outputColumn: "output"}
	scan := contender{name: limitScan, run: program(limit, "--json", "scan"), outputColumn: "output"}
	services := []contender{{name: "rowmill", run: b.service(b.rowmill, address, rows, form)}}
	if form.beside != "" {
		services = append(services, contender{name: "rowmill, " + filepath.Base(form.beside), run: b.service(form.beside, address, rows, form)})
	}
	if form.traced > 0 {
		services = append(services, contender{name: fmt.Sprintf("rowmill, traced at %.4g %%", 100*form.traced), run: b.traced(address, rows, form)})
	}
	if form.limits {
		return append(services, scan), nil
	}
	plain, err := b.build(ctx, "plain")
	if err != nil {
		return nil, err
	}
	python, err := b.python(ctx)
	if err != nil {
		return nil, err
	}
	return slices.Concat([]contender{std}, services, []contender{
		scan,
		{name: "Go, net/http", run: program(plain), outputColumn: "output"},
		{name: "Python, asyncio streams", run: program(python, "bench/asyncio_raw.py"), outputColumn: "output"},
	}), nil
}

// traced is service with a node that sends traces to a collector.
func (b *bench) traced(address string, rows int64, form rowPath) func(context.Context, string, string) (usage, error) {
	run := b.service(b.rowmill, address, rows, form,
		"tracing.endpoint="+b.fileBase, "tracing.sample=1", "tracing.rows="+strconv.FormatFloat(form.traced, 'g', -1, 64))
	return func(ctx context.Context, in, out string) (usage, error) {
		before := b.spans.Load()
		used, err := run(ctx, in, out)
		told := b.spans.Load() - before
		if err == nil && told == 0 {
			err = errors.New("no span arrived: nothing was traced")
		}
		b.log.Info("spans were sent", "bytes", told)
		return used, err
	}
}

// service runs the rows through a new node with additional settings, NAME=VALUE.
// Processor time before the submission and after the job's success does not count, nor
// do the download and the check of the result.
func (b *bench) service(binary, address string, rows int64, form rowPath, further ...string) func(context.Context, string, string) (usage, error) {
	return func(ctx context.Context, in, out string) (usage, error) {
		data := filepath.Join(b.dir, "node")
		further := slices.Clone(further)
		admin := ""
		if form.profiles != "" {
			var err error
			if admin, err = freeAddress(ctx); err != nil {
				return usage{}, err
			}
			further = append(further, "http.admin_listen="+admin)
		}
		n, err := startNode(ctx, binary, data, address, further...)
		if err != nil {
			return usage{}, err
		}
		defer n.end()
		s := submission{Inputs: b.fileBase + filepath.Base(in), Model: model, Column: "text", IDColumn: "id", Priority: 1}
		columns := []string{"include_inputs", "include_cumulative_logprobs"}
		if !form.logprobs {
			s.Sampling = map[string]any{"logprobs": false}
			columns = columns[:1]
		}
		profiled := func() error { return nil }
		if form.profiles != "" {
			profiled = n.profile(ctx, admin, filepath.Join(form.profiles, filepath.Base(binary)))
		}
		r, err := n.measure(ctx, s)
		if err != nil {
			return usage{}, err
		}
		if err := profiled(); err != nil {
			return usage{}, err
		}
		if err := n.download(ctx, r.job, out, columns...); err != nil {
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

// profileTime is the length of a processor profile. The node is idle before and after
// the job, so a longer profile costs nothing.
const profileTime = 8 * time.Second

// profile starts a processor profile of the node with an admin listener at an address,
// into path.pprof. The returned function waits for the profile and then writes all
// allocations to path.allocs.
func (n *node) profile(ctx context.Context, admin, path string) (wait func() error) {
	at, done := "http://"+admin+"/debug/pprof/", make(chan error, 1)
	go func() {
		done <- n.save(ctx, at+"profile?seconds="+strconv.Itoa(int(profileTime.Seconds())), path+".pprof")
	}()
	return func() error { return errors.Join(<-done, n.save(ctx, at+"allocs", path+".allocs")) }
}

// sinceLastAnswer returns the time from the inference server's last answer until the
// job had succeeded with a readable result.
func (n *node) sinceLastAnswer(ctx context.Context, engine, id string) (time.Duration, error) {
	last, err := nullTime(ctx, engine, "last")
	if err != nil {
		return 0, err
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

// measured holds the figures of a job.
type measured struct {
	usage
	job  string
	peak int64 // peak of anonymous memory, bytes
}

// measure runs one job on the node and returns the usage of the node's process.
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

// nullTime returns the time of an event at the null server, in Unix nanoseconds.
func nullTime(ctx context.Context, engine, what string) (int64, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+engine+"/null/"+what, nil)
	if err != nil {
		return 0, fmt.Errorf("make request: %w", err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, fmt.Errorf("ask for the %s request: %w", what, err)
	}
	defer response.Body.Close()
	data, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, fmt.Errorf("ask for the %s request: %w", what, err)
	}
	at, err := strconv.ParseInt(string(data), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("time of the %s request: %w", what, err)
	}
	return at, nil
}

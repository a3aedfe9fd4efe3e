package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sync/errgroup"
)

// simulatedGPU is a model on a simulated GPU.
type simulatedGPU struct {
	profile string
	maxSeqs int     // concurrent requests
	rate    float64 // approximate highest rows per second; sets the length of a job
}

// gpus lists the servers of B2. On the last one the KV cache fills before the batch, so
// that it can preempt rows.
var gpus = []simulatedGPU{
	{"llama-3.1-8b/h100", 256, 49},
	{"gpt-oss-20b/h100", 256, 58},
	{"qwen3-235b/h100", 256, 39},
	{"qwen3-235b/h100", 1024, 40},
}

func (g simulatedGPU) String() string {
	return fmt.Sprintf("%s, --max-num-seqs %d", g.profile, g.maxSeqs)
}

// A driver is a way to drive an inference server.
type driver struct {
	name string
	// share is the part of the rows for this driver, the first ones: slow drivers get
	// fewer rows, so that all take about the same time.
	share float64
	bare  bool // a candidate for the best generator
	run   func(ctx context.Context, address, in string, rows int64) error
}

func (d driver) rows(most int64) int64 { return max(int64(d.share*float64(most)), 1) }

// Sizes of B2: prompts of about 300 tokens, lognormal answers.
const (
	promptBytes  = 2400
	answerTokens = 150
)

// sweep lists the numbers of requests in flight for the bare generator; windows lists
// the usual fixed choices of other clients.
var (
	sweep   = []int{64, 128, 192, 256, 288, 384, 512, 1024}
	windows = []int{8, 10}
)

// shareAt returns the share for a driver with a fixed number of requests in flight:
// with half of its batch a server gives more than half of its rate.
func (g simulatedGPU) shareAt(inFlight int) float64 {
	return min(1, 2*float64(inFlight)/float64(g.maxSeqs))
}

// saturation is B2: how much of a server's throughput the service reaches without
// knowing the server's capacity, compared with a generator that knows it. The pace of a
// simulated server does not depend on this machine, so all drivers run at the same
// time, each on its own server.
func (b *bench) saturation(ctx context.Context) error {
	for _, g := range gpus {
		if !strings.Contains(g.String(), b.gpu) {
			continue
		}
		drivers, err := b.drivers(ctx, g)
		if err != nil {
			return err
		}
		data := dataset{rows: int64(g.rate * b.length.Seconds()), bytes: promptBytes, seed: 2, answers: answerTokens}
		all := make([][]figures, len(drivers))
		for round := range b.rounds {
			got, err := b.race(ctx, drivers, data, simGauges, func(log string) (*process, string, error) {
				return b.startSim(log, "--gpu", g.profile, "--max-num-seqs", strconv.Itoa(g.maxSeqs))
			})
			if err != nil {
				return fmt.Errorf("%v: %w", g, err)
			}
			for i, f := range got {
				all[i] = append(all[i], f)
				b.log.Info("measured", "gpu", g, "round", round+1, "contender", drivers[i].name, "figures", f)
			}
		}
		fmt.Printf("\nB2 saturation, %v: %d rows, prompts of about 300 tokens, answers of %d in the mean, %d rounds, median (min–max)\n\n",
			g, data.rows, answerTokens, b.rounds)
		printSaturation(drivers, all, data.rows)
	}
	return nil
}

// drivers builds the drivers of B2 for a simulated server.
func (b *bench) drivers(ctx context.Context, g simulatedGPU) ([]driver, error) {
	generator, err := b.build(ctx, "generator")
	if err != nil {
		return nil, err
	}
	list := []driver{{name: "rowmill", share: 1, run: b.nodeDriver(submission{})}}
	for _, n := range slices.Concat(windows, sweep) {
		list = append(list, driver{
			name: fmt.Sprintf("generator, %d in flight", n), share: g.shareAt(n), bare: slices.Contains(sweep, n),
			run: generatorDriver(generator, n, nil),
		})
	}
	return list, nil
}

// generatorDriver runs the bare generator; fields, a JSON object, override its request
// fields.
func generatorDriver(path string, inFlight int, fields []byte) func(context.Context, string, string, int64) error {
	return func(ctx context.Context, address, in string, rows int64) error {
		args := []string{"-in", in, "-address", address, "-model", model, "-in-flight", strconv.Itoa(inFlight)}
		if fields != nil {
			args = append(args, "-fields", string(fields))
		}
		_, printed, err := runOnce(ctx, path, args...)
		if err != nil {
			return err
		}
		return wantRows(printed, rows)
	}
}

// nodeDriver runs one job on a new node that knows only the server's address; s is the
// form of the submission. The result is checked.
func (b *bench) nodeDriver(s submission) func(context.Context, string, string, int64) error {
	return func(ctx context.Context, address, in string, rows int64) error {
		asked := b.fileOf(in)
		asked.Sampling, asked.Truncate = s.Sampling, s.Truncate
		_, err := b.onNewNode(ctx, b.rowmill, address, rows, asked)
		return err
	}
}

// race runs all drivers at once, each on its own server from start, and returns the
// figures in order.
func (b *bench) race(ctx context.Context, drivers []driver, data dataset, g gauges, start starter) ([]figures, error) {
	inputs := make([]dataset, len(drivers))
	paths := make([]string, len(drivers))
	addresses := make([]string, len(drivers))
	servers := make([]*process, len(drivers))
	for i, d := range drivers {
		inputs[i] = data
		inputs[i].rows = d.rows(data.rows)
		var err error
		if paths[i], err = inputs[i].make(b.dir); err != nil {
			return nil, err
		}
		server, address, err := start(fmt.Sprintf("server-%d.log", i))
		if err != nil {
			return nil, err
		}
		defer server.end()
		servers[i], addresses[i] = server, address
	}
	got := make([]figures, len(drivers))
	group, ctx := errgroup.WithContext(ctx)
	for i, d := range drivers {
		group.Go(func() error {
			course, err := observe(ctx, addresses[i], g, func() error {
				return d.run(ctx, addresses[i], paths[i], inputs[i].rows)
			})
			if err != nil {
				return fmt.Errorf("%s: %w", d.name, err)
			}
			if got[i], err = course.figures(); err != nil {
				return fmt.Errorf("%s: %w", d.name, err)
			}
			if got[i].done != float64(inputs[i].rows) {
				return fmt.Errorf("%s: the server answered %v rows of %d", d.name, got[i].done, inputs[i].rows)
			}
			used, err := servers[i].cpu()
			got[i].cpu = used.Seconds() / got[i].done
			return err
		})
	}
	return got, group.Wait()
}

// observe measures a server while run drives it.
func observe(ctx context.Context, address string, g gauges, run func() error) (course, error) {
	m, err := watch(ctx, address, g)
	if err != nil {
		return nil, err
	}
	err = run()
	c, stopped := m.stop()
	return c, errors.Join(err, stopped)
}

// startSim starts a simulated inference server and returns its address.
func (b *bench) startSim(log string, args ...string) (*process, string, error) {
	args = append([]string{"sim", "--listen", "127.0.0.1:0"}, args...)
	p, err := startProcess(filepath.Join(b.dir, log), os.Environ(), b.rowmill, args...)
	if err != nil {
		return nil, "", err
	}
	line, err := p.firstLine()
	if err != nil {
		p.end()
		return nil, "", err
	}
	_, rest, _ := strings.Cut(line, "http://")
	address, _, found := strings.Cut(rest, ";")
	if !found {
		p.end()
		return nil, "", fmt.Errorf("%s sim printed no address: %q", b.rowmill, line)
	}
	return p, address, nil
}

// printSaturation prints the figures of all rounds, with rates relative to the best
// generator.
func printSaturation(drivers []driver, all [][]figures, most int64) {
	best := bestOf(drivers, all)
	t := table{head: []string{"contender", "rows/s", "÷ best generator", "95 % of its rate after, s", "% of its run", "preempted rows, %"}}
	for i, d := range drivers {
		f := func(value func(figures) float64) spread { return collect(all[i], value) }
		rate := f(rateOf)
		t.add(d.label(i == best), rate.String(), rate.over(collect(all[best], rateOf)).String(),
			f(func(f figures) float64 { return f.reached.Seconds() }).String(),
			f(func(f figures) float64 { return 100 * f.reached.Seconds() / f.length.Seconds() }).String(),
			f(func(f figures) float64 { return 100 * f.preempted / float64(d.rows(most)) }).String())
	}
	t.print(os.Stdout)
}

func (d driver) label(best bool) string {
	if best {
		return d.name + " (best)"
	}
	return d.name
}

func rateOf(f figures) float64 { return f.rate }

// collect returns one figure of all rounds.
func collect[F any](all []F, value func(F) float64) (s spread) {
	for _, f := range all {
		s = append(s, value(f))
	}
	return s
}

// bestOf returns the generator with the highest median rate.
func bestOf(drivers []driver, all [][]figures) int {
	best := -1
	for i, d := range drivers {
		if d.bare && (best < 0 || collect(all[i], rateOf).median() > collect(all[best], rateOf).median()) {
			best = i
		}
	}
	return best
}

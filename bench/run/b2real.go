package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// realTokens is the length of each answer if the server only counts tokens.
const realTokens = 48

// A realKind is a kind of real server with a tiny random model, on this machine's
// processor.
type realKind struct {
	command  []string // command line before the port
	env      []string
	gauges   *gauges // nil: the server has none, so a relay counts
	sweep    []int   // numbers of requests in flight for the generator
	sampling map[string]any
	further  map[string]any // additional sampling parameters for Rowmill
}

var realKinds = map[string]realKind{
	// Each connection uses one of the server's eight HTTP threads, and reading the
	// gauges needs one.
	"llama.cpp": {
		command: []string{"internal/llama/start.sh"}, env: []string{"SLOTS=4"}, gauges: &llamaGauges, sweep: []int{4, 5, 6},
		sampling: map[string]any{"temperature": 0.75, "top_p": 1, "max_tokens": realTokens, "ignore_eos": true},
		further:  map[string]any{"top_k": 0, "min_p": 0, "logprobs": true, "top_logprobs": 1},
	},
	// The model decides where answers end. With one fixed length all answers would
	// start and end together and their prompts would be computed at once, which is not
	// realistic.
	"vllm": {
		command: []string{"internal/realserver/start.sh", "vllm"}, gauges: &simGauges, sweep: []int{64, 128, 160, 256},
		sampling: map[string]any{"temperature": 0.75, "top_p": 1, "max_tokens": 4 * realTokens, "min_tokens": 8},
		further:  map[string]any{"logprobs": true},
	},
	"ollama": {
		command: []string{"internal/realserver/start.sh", "ollama"}, env: []string{"SLOTS=4"}, sweep: []int{4, 6, 8},
		sampling: map[string]any{"temperature": 0.75, "top_p": 1, "max_tokens": realTokens},
		further:  map[string]any{"logprobs": true},
	},
}

// realSaturation is B2 on a real server with a tiny model. The server shares this
// machine's processor with the drivers and with everything else that runs, so the
// drivers take turns, each with rows that are new to the server. Beside the rate it
// reports a figure without this disturbance: rows per second of the server's own
// processor time, which depends on the form of the requests and their number in flight.
func (b *bench) realSaturation(ctx context.Context) error {
	name, rows := strings.Join(b.args, " "), b.rows
	kind, known := realKinds[name]
	if !known {
		return fmt.Errorf("unknown server %q: choose one of %s", name, strings.Join(slices.Sorted(maps.Keys(realKinds)), ", "))
	}
	drivers, err := b.realDrivers(ctx, kind)
	if err != nil {
		return err
	}
	of := newFamily()
	server, address, err := b.startReal(ctx, name, kind, of)
	if err != nil {
		return err
	}
	defer server.end()
	g := relayGauges
	if kind.gauges != nil {
		g = *kind.gauges
	} else {
		r, err := startRelay(address)
		if err != nil {
			return err
		}
		defer r.close()
		address = r.address
	}
	data := dataset{rows: rows, bytes: 200, seed: uint64(time.Now().UnixNano())}
	measure := func(d driver, rows int64) (figures, error) {
		data.rows = rows
		data.seed++
		return b.measureReal(ctx, of, address, g, d, data)
	}
	if _, err := measure(drivers[1], max(rows/10, 50)); err != nil { // warm up the server
		return err
	}
	all := make([][]figures, len(drivers))
	for round := range b.rounds {
		for turn := range drivers { // rotate the first driver: a server may slow down over time
			i := (turn + round) % len(drivers)
			got, err := measure(drivers[i], rows)
			if err != nil {
				return err
			}
			all[i] = append(all[i], got)
			b.log.Info("measured", "server", name, "round", round+1, "contender", drivers[i].name, "figures", got)
		}
	}
	fmt.Printf("\nB2 saturation, a real %s: %d rows, %d rounds, median (min–max)\n\n", name, rows, b.rounds)
	best := bestOf(drivers, all)
	rate := func(i int) spread { return collect(all[i], rateOf) }
	paid := func(i int) spread { return collect(all[i], func(f figures) float64 { return 1 / f.cpu }) }
	t := table{head: []string{"contender", "rows/s", "÷ best generator", "rows per s of the server's processor time", "÷ best generator"}}
	for i, d := range drivers {
		t.add(d.label(i == best), rate(i).String(), rate(i).over(rate(best)).String(),
			paid(i).String(), paid(i).over(paid(best)).String())
	}
	t.print(os.Stdout)
	return nil
}

// realDrivers returns the node, and a generator for each number of requests in flight.
// All send the same requests.
func (b *bench) realDrivers(ctx context.Context, kind realKind) ([]driver, error) {
	generator, err := b.build(ctx, "generator")
	if err != nil {
		return nil, err
	}
	asked := maps.Clone(kind.sampling)
	maps.Copy(asked, kind.further)
	fields, err := json.Marshal(asked)
	if err != nil {
		return nil, fmt.Errorf("encode fields: %w", err)
	}
	list := []driver{{name: "rowmill", share: 1, run: b.nodeDriver(submission{Sampling: kind.sampling})}}
	for _, n := range kind.sweep {
		list = append(list, driver{name: fmt.Sprintf("generator, %d in flight", n), share: 1, bare: true, run: generatorDriver(generator, n, fields)})
	}
	return list, nil
}

// measureReal runs one driver on the rows of data.
func (b *bench) measureReal(ctx context.Context, server *family, address string, g gauges, d driver, data dataset) (figures, error) {
	in, err := data.make(b.dir)
	if err != nil {
		return figures{}, err
	}
	defer os.Remove(in)
	server.inspect()
	before := server.cpu()
	course, err := observe(ctx, address, g, func() error { return d.run(ctx, address, in, data.rows) })
	if err != nil {
		return figures{}, fmt.Errorf("%s: %w", d.name, err)
	}
	server.inspect()
	f, err := course.figures()
	if err != nil {
		return figures{}, fmt.Errorf("%s: %w", d.name, err)
	}
	if f.done != float64(data.rows) {
		return figures{}, fmt.Errorf("%s: the server answered %v rows of %d", d.name, f.done, data.rows)
	}
	f.cpu = (server.cpu() - before).Seconds() / f.done
	return f, nil
}

// startReal starts a server of a kind, as the program of a family, and returns its
// address when it lists its model.
func (b *bench) startReal(ctx context.Context, name string, kind realKind, of *family) (*process, string, error) {
	server, address, err := b.startListed(ctx, filepath.Join(b.dir, "server-"+name+".log"), func(port string) (command, env []string, err error) {
		if b.serverCPUs != "" {
			command = []string{"taskset", "-c", b.serverCPUs}
		}
		return slices.Concat(command, kind.command, []string{port, "chat"}), append(kind.env, "ALIAS="+model, string(of.mark)), nil
	})
	if err != nil {
		return nil, "", fmt.Errorf("start %s, which make engines puts on a machine: %w", name, err)
	}
	return server, address, nil
}

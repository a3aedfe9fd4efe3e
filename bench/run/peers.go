package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Requests in flight of B13 with a slow server, and the number of slots of this server:
// the default of vLLM on a large GPU.
const peerSlots = 256

// A peer is a program that people use in place of a service: a program in bench/peers
// in the usual style of its library.
type peer struct {
	name    string
	python  string // environment with its library, in bin/tools
	library string // library whose version is printed
	program string
	best    int // requests in flight with an immediate server: the best of 16, 64, 128 and 256

	// Shares of the rows for this peer, smaller for slower peers: with the immediate
	// server, and with the slow server.
	fast, slow int64
}

func peers() []peer {
	return []peer{
		{"asyncio and aiohttp", "peers", "aiohttp", "aiohttp_script.py", 64, 1, 1},
		{"openai", "venv", "openai", "openai_client.py", 16, 20, 20},
		{"LiteLLM batch_completion", "peers-litellm", "litellm", "litellm_batch.py", 64, 20, 20},
		{"Ray Data, HTTP processor", "peers", "ray", "ray_data.py", 64, 5, 50},
	}
}

// peerFigures holds the figures of a contender on one load.
type peerFigures struct {
	rows              int64
	rate, cpu, memory spread // rows per second, µs per row, MiB
}

// alternatives is B13: the service compared with common alternatives, on a server that
// answers at once and on a server with 100 ms per answer and peerSlots slots. The wall
// time of a program includes its start, as for a user. The time of the service is from
// the submission to a readable result, on a node that has just started.
func (b *bench) alternatives(ctx context.Context) error {
	for _, delay := range []string{"0s", "100ms"} {
		args := []string{"-models", model, "-delay", delay}
		ideal := ""
		if delay != "0s" {
			args = append(args, "-slots", strconv.Itoa(peerSlots))
			ideal = fmt.Sprintf(", %d slots: at most %d rows/s", peerSlots, peerSlots*10)
		}
		null, address, err := b.startNull(ctx, args...)
		if err != nil {
			return err
		}
		err = b.alternativesOn(ctx, address, delay != "0s", fmt.Sprintf("answers after %s%s", delay, ideal))
		null.end()
		if err != nil {
			return err
		}
	}
	return nil
}

// alternativesOn measures all contenders on one server.
func (b *bench) alternativesOn(ctx context.Context, address string, slow bool, load string) error {
	rows := b.rows
	data := dataset{rows: rows, bytes: 300, seed: 13}
	in, err := data.make(b.dir)
	if err != nil {
		return err
	}
	out := filepath.Join(b.dir, "result.parquet")
	defer os.Remove(out)
	list := peers()
	service := peerFigures{rows: rows}
	found := make([]peerFigures, len(list))
	versions := make([]string, len(list))
	for round := range b.rounds {
		s := b.fileOf(in)
		s.Sampling = map[string]any{"max_tokens": 256, "logprobs": false}
		m, err := b.onNewNode(ctx, b.rowmill, address, rows, s)
		if err != nil {
			return fmt.Errorf("rowmill: %w", err)
		}
		service.add(m.usage, m.peak)
		for i, p := range list {
			python := filepath.Join("bin/tools", p.python, "bin/python3")
			if versions[i], err = libraryVersion(ctx, python, p.library); err != nil {
				return fmt.Errorf("%w; run .ci/tools peers", err)
			}
			inFlight, n := p.best, rows/p.fast
			if slow {
				inFlight, n = peerSlots, rows/p.slow
			}
			found[i].rows = n
			if err := found[i].run(ctx, out, python, filepath.Join("bench/peers", p.program),
				"--in", in, "--out", out, "--address", address, "--model", model, "--rows", strconv.FormatInt(n, 10), "--in-flight", strconv.Itoa(inFlight)); err != nil {
				return fmt.Errorf("%s: %w", p.name, err)
			}
			b.log.Info("measured", "round", round+1, "load", load, "contender", p.name, "rows_per_s", short(found[i].rate[round]))
		}
	}
	t := table{head: []string{"contender", "rows", "rows/s", "Rowmill is faster by", "CPU µs/row", "÷ Rowmill", "peak memory, MiB"}}
	service.print(&t, "Rowmill", service)
	for i, p := range list {
		found[i].print(&t, p.name+" "+versions[i], service)
	}
	t.report("B13 alternatives: %s; 300 B in, 0.5 KB out, no log probabilities, %d rounds, median (min–max)", load, b.rounds)
	return nil
}

// run measures a program that runs f.rows rows, and checks its result, the file out.
func (f *peerFigures) run(ctx context.Context, out, program string, args ...string) error {
	used, peak, printed, err := runFamily(ctx, []string{"LITELLM_LOCAL_MODEL_COST_MAP=True"}, program, args...)
	if err == nil {
		err = wantRows(printed, f.rows)
	}
	if err == nil {
		err = checkResult(out, "output", f.rows)
	}
	if err != nil {
		return err
	}
	f.add(used, peak)
	return nil
}

func (f *peerFigures) add(u usage, peak int64) {
	f.rate = append(f.rate, float64(f.rows)/u.wall.Seconds())
	f.cpu = append(f.cpu, u.cpu.Seconds()*1e6/float64(f.rows))
	f.memory = append(f.memory, float64(peak)/(1<<20))
}

func (f *peerFigures) print(t *table, name string, service peerFigures) {
	t.add(name, strconv.FormatInt(f.rows, 10), f.rate.String(), service.rate.over(f.rate).String(),
		f.cpu.String(), f.cpu.over(service.cpu).String(), f.memory.String())
}

// libraryVersion returns the version of a Python library in an environment.
func libraryVersion(ctx context.Context, python, library string) (string, error) {
	_, printed, err := runOnce(ctx, python, "-c", "import importlib.metadata as m; print(m.version('"+library+"'))")
	return strings.TrimSpace(printed), err
}

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// llamaSlots is how many rows the real server runs at once.
const llamaSlots = 4

// llamaSweep are the generator's numbers of requests in flight on it. Each
// connection holds one of its eight HTTP threads, and the gauges need one.
var llamaSweep = []int{4, 5, 6}

// llamaTokens is the length of every answer, so that the tokens the server
// counts are rows.
const llamaTokens = 48

// realSaturation is B2 on a real llama-server with a tiny model. It computes on
// this machine's processor, which it shares with the drivers and with whatever
// else runs, so the drivers take turns. Beside the rate, two figures that others
// do not disturb: how many slots were busy, which is what a driver decides, and
// how many rows the server answers per second of its own processor time, which
// is what the form of the requests decides. The generator is tried with requests
// for whole answers and with the service's, which are for streams.
func (b *bench) realSaturation(ctx context.Context, rows int64) error {
	generator, err := b.build(ctx, "generator")
	if err != nil {
		return err
	}
	drivers := []driver{{name: "rowmill", share: 1, run: b.nodeDriver(map[string]any{"max_tokens": llamaTokens, "ignore_eos": true})}}
	for _, stream := range []bool{false, true} {
		fields, err := json.Marshal(map[string]any{
			"temperature": 0.75, "top_p": 1.0, "repeat_penalty": 1.0, "top_k": 0, "min_p": 0,
			"max_tokens": llamaTokens, "ignore_eos": true, "logprobs": true, "top_logprobs": 1, "stream": stream,
		})
		if err != nil {
			return fmt.Errorf("encode fields: %w", err)
		}
		for _, n := range llamaSweep {
			name := fmt.Sprintf("generator, %d in flight", n)
			if stream {
				name += ", streams"
			}
			drivers = append(drivers, driver{name: name, share: 1, bare: true, run: generatorDriver(generator, n, fields)})
		}
	}
	data := dataset{rows: rows, bytes: 200, seed: 3}
	all := make([][]figures, len(drivers))
	for round := range b.rounds {
		for i, d := range drivers {
			got, err := b.race(ctx, drivers[i:i+1], data, llamaGauges, func(log string) (*process, string, error) { return b.startLlama(ctx, log) })
			if err != nil {
				return err
			}
			all[i] = append(all[i], got...)
			b.log.Info("measured", "server", "llama-server", "round", round+1, "contender", d.name, "figures", got[0])
		}
	}
	fmt.Printf("\nB2 saturation, a real llama-server with %d slots: %d rows, answers of %d tokens, %d rounds, median (min–max)\n\n",
		llamaSlots, rows, llamaTokens, b.rounds)
	first := len(drivers) - len(llamaSweep) // of those with streams
	whole := bestOf(drivers[:first], all[:first])
	streams := first + bestOf(drivers[first:], all[first:])
	rate := func(i int) spread { return collect(all[i], rateOf) }
	paid := func(i int) spread { return collect(all[i], func(f figures) float64 { return 1 / f.cpu }) }
	t := table{head: []string{
		"contender", "rows/s", "÷ best generator, whole answers", "÷ best generator, streams", "slots busy",
		"rows per s of the server's processor time", "÷ best generator, whole answers", "÷ best generator, streams",
	}}
	for i, d := range drivers {
		t.add(d.label(i == whole || i == streams), rate(i).String(), rate(i).over(rate(whole)).String(), rate(i).over(rate(streams)).String(),
			collect(all[i], func(f figures) float64 { return f.batch }).String(),
			paid(i).String(), paid(i).over(paid(whole)).String(), paid(i).over(paid(streams)).String())
	}
	t.print(os.Stdout)
	return nil
}

// startLlama starts a llama-server and returns its address.
func (b *bench) startLlama(ctx context.Context, log string) (*process, string, error) {
	address, err := freeAddress(ctx)
	if err != nil {
		return nil, "", err
	}
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, "", fmt.Errorf("free port: %w", err)
	}
	env := append(os.Environ(), "ALIAS="+model, "SLOTS="+strconv.Itoa(llamaSlots))
	server, err := startProcess(filepath.Join(b.dir, log), env, "internal/llama/start.sh", port, "chat")
	if err != nil {
		return nil, "", err
	}
	if err := healthy(ctx, address); err != nil {
		server.end()
		return nil, "", fmt.Errorf("start llama-server, which internal/llama/get.sh puts on a machine: %w (log: %s)", err, server.log)
	}
	return server, address, nil
}

// healthy waits until a server says that it is.
func healthy(ctx context.Context, address string) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/health", nil)
		if err != nil {
			return fmt.Errorf("make request: %w", err)
		}
		if err := exchange(client, request); err == nil {
			return nil
		} else if ctx.Err() != nil {
			return err
		}
		time.Sleep(50 * time.Millisecond)
	}
}

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"
)

// The server of B6 and B9 has a fixed pace, slow enough that sixteen servers with their
// nodes do not fill the two cores of a small machine.
const (
	slowSlots  = 16
	slowAnswer = 640 * time.Millisecond
	slowBytes  = 400 // length of a row's text
)

// slowRate is the rate of such a server in rows per second.
func slowRate(answer time.Duration) float64 { return slowSlots / answer.Seconds() }

// slowSweep lists the numbers of requests in flight for the generator: the server's
// slots, and more.
var slowSweep = []int{slowSlots, 3 * slowSlots / 2, 2 * slowSlots}

// slowGauges are read less often, because there are many servers.
func slowGauges() gauges {
	g := simGauges
	g.every = 250 * time.Millisecond
	return g
}

// starter starts an inference server with a log file and returns its address.
type starter func(log string) (*process, string, error)

// slow starts servers with a fixed time per row.
func (b *bench) slow(answer time.Duration) starter { return b.paced(slowSlots, answer) }

// pacedCatalog is the catalog for servers with a fixed pace: like most servers they
// have one model.
const pacedCatalog = "models: [{id: " + model + ", kind: generation, context_length: 131072}]\n"

// paced starts servers with a number of slots and a fixed time per row.
func (b *bench) paced(slots int, answer time.Duration) starter {
	return func(log string) (*process, string, error) {
		catalog := filepath.Join(b.dir, "paced-catalog.yaml")
		if err := os.WriteFile(catalog, []byte(pacedCatalog), 0o600); err != nil {
			return nil, "", fmt.Errorf("write catalog: %w", err)
		}
		return b.startSim(log, "--catalog", catalog, "--slots", strconv.Itoa(slots), "--ttft", answer.String(), "--per-token", "0s")
	}
}

// scaled holds the figures of a job on several nodes.
type scaled struct {
	rate float64 // rows per second, from the submission to the commit of the last row
	cpu  float64 // processor time of all nodes from the submission to the readable result, seconds per row
	idle float64 // processor time of an idle node, seconds per second
	bare float64 // rows per second of the best generator at the same time on one server; 0: no generator ran
}

// scaleOut is B6: the rate of a job on n servers with a node each, compared with n
// times a generator's rate on one server, for n = 1, 2, 4, up to a largest number. The
// job grows with n.
func (b *bench) scaleOut(ctx context.Context) error {
	generator, err := b.build(ctx, "generator")
	if err != nil {
		return err
	}
	each := int64(slowRate(b.answer) * b.length.Seconds())
	bare := dataset{rows: each, bytes: slowBytes, seed: 6}
	drivers := make([]driver, len(slowSweep))
	for i, n := range slowSweep {
		drivers[i] = driver{name: fmt.Sprintf("generator, %d in flight", n), share: 1, run: generatorDriver(generator, n, nil)}
	}
	generate := func(ctx context.Context) (best float64, err error) {
		got, err := b.race(ctx, drivers, bare, slowGauges(), b.slow(b.answer))
		for _, f := range got {
			best = max(best, f.done/f.length.Seconds())
		}
		return best, err
	}
	title := fmt.Sprintf("%d rows per node, each with a server of %d slots that answers within %v (%.0f rows/s)", each, slowSlots, b.answer, slowRate(b.answer))
	return b.scaling(title, func(n int) (scaled, error) {
		if _, err := bare.make(b.dir); err != nil { // before the job's file, which may be the same
			return scaled{}, err
		}
		return b.scale(ctx, n, int64(n)*each, b.slow(b.answer), generate)
	})
}

// Sizes of b6/cpu. One node takes half a minute for the job, so that its shards have
// several parts and are merged, as with several nodes.
const (
	hurriedRows   = 200_000
	hurriedSlots  = 64
	hurriedAnswer = time.Millisecond
)

// scaleCPU is the second half of B6: the processor time of the same job on n nodes. The
// servers are faster than the nodes, so that the periodic work of nodes has a small
// share.
func (b *bench) scaleCPU(ctx context.Context) error {
	return b.scaling(fmt.Sprintf("%d rows as fast as all nodes can on this one machine", hurriedRows), func(n int) (scaled, error) {
		return b.scale(ctx, n, hurriedRows, b.paced(hurriedSlots, hurriedAnswer), nil)
	})
}

// scaling measures for n = 1, 2, 4, up to the largest number of nodes, and prints a
// table.
func (b *bench) scaling(title string, measure func(n int) (scaled, error)) error {
	all := make(map[int][]scaled)
	for round := range b.rounds {
		for n := 1; n <= b.nodes; n *= 2 {
			s, err := measure(n)
			if err != nil {
				return fmt.Errorf("%d nodes: %w", n, err)
			}
			all[n] = append(all[n], s)
			b.log.Info("measured", "round", round+1, "nodes", n, "rows_per_s", s.rate, "bare", s.bare, "cpu_us_per_row", 1e6*s.cpu, "idle", s.idle)
		}
	}
	fmt.Printf("\nB6 scale-out: %s, %d rounds, median (min–max)\n\n", title, b.rounds)
	t := table{head: []string{"nodes", "rows/s", "÷ generator × nodes", "CPU µs/row", "÷ one node's", "an idle node, CPU ms/s"}}
	cpu := func(s scaled) float64 { return 1e6 * s.cpu }
	for n := 1; n <= b.nodes; n *= 2 {
		driven := slices.DeleteFunc(slices.Clone(all[n]), func(s scaled) bool { return s.bare == 0 })
		t.add(strconv.Itoa(n), collect(all[n], func(s scaled) float64 { return s.rate }).String(),
			collect(driven, func(s scaled) float64 { return s.rate / (float64(n) * s.bare) }).precise(),
			collect(all[n], cpu).String(), collect(all[n], cpu).over(collect(all[1], cpu)).String(),
			collect(driven, func(s scaled) float64 { return 1000 * s.idle }).String())
	}
	t.print(os.Stdout)
	return nil
}

// scale runs a job on n new nodes. With generate, which returns the rate of the best
// generator on one server, it runs that at the same time and measures the idle nodes
// before.
func (b *bench) scale(ctx context.Context, n int, rows int64, start starter, generate func(context.Context) (float64, error)) (s scaled, err error) {
	in, err := dataset{rows: rows, bytes: slowBytes, seed: 6}.make(b.dir)
	if err != nil {
		return s, err
	}
	l, err := b.startLab(ctx, both(n), start)
	if err != nil {
		return s, err
	}
	defer l.end()
	if err := l.warm(ctx, b); err != nil {
		return s, fmt.Errorf("first job: %w", err)
	}
	group, groupCtx := errgroup.WithContext(ctx)
	if generate != nil {
		if s.idle, err = l.idle(); err != nil {
			return s, err
		}
		group.Go(func() (err error) {
			s.bare, err = generate(groupCtx)
			return err
		})
	}
	var j labJob
	group.Go(func() (err error) {
		j, err = l.job(groupCtx, b, in)
		return err
	})
	if err := group.Wait(); err != nil {
		return s, err
	}
	s.cpu = j.cpu.Seconds() / float64(rows)
	s.rate = float64(rows) / committed(j.course).Sub(j.submitted).Seconds()
	if err := b.checked(ctx, l.nodes[n-1], j.id, rows); err != nil {
		return s, err
	}
	return s, l.stop()
}

// watch starts meters for all servers.
func (l *lab) watch(ctx context.Context) (meters []*meter, err error) {
	meters = make([]*meter, len(l.engines))
	for i, engine := range l.engines {
		if meters[i], err = watch(ctx, engine, slowGauges()); err != nil {
			return nil, err
		}
	}
	return meters, nil
}

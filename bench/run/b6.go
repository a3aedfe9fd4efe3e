package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"
)

// The server of B6 and B9 has a fixed pace, slow enough that sixteen servers with their
// nodes do not fill the two cores of a small machine.
const (
	slowSlots  = 16
	slowAnswer = 640 * time.Millisecond
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

// slow returns a function that starts servers with a fixed time per row.
func (b *bench) slow(answer time.Duration) func(log string) (*process, string, error) {
	return func(log string) (*process, string, error) { return b.startPaced(log, slowSlots, answer) }
}

// pacedCatalog is the catalog for servers with a fixed pace: like most servers they
// have one model.
const pacedCatalog = "models: [{id: " + model + ", kind: generation, context_length: 131072}]\n"

// startPaced starts a server with a fixed time per row.
func (b *bench) startPaced(log string, slots int, answer time.Duration) (*process, string, error) {
	catalog := filepath.Join(b.dir, "paced-catalog.yaml")
	if err := os.WriteFile(catalog, []byte(pacedCatalog), 0o600); err != nil {
		return nil, "", fmt.Errorf("write catalog: %w", err)
	}
	return b.startSim(log, "--catalog", catalog, "--slots", strconv.Itoa(slots), "--ttft", answer.String(), "--per-token", "0s")
}

// scaled holds the figures of a job on several nodes, and of a generator that runs at
// the same time.
type scaled struct {
	rate   float64 // rows per second, from the submission to the commit of the last row
	steady float64 // rows per second of all servers, from 20 % to 80 % of their rows
	busy   float64 // share of used slots, from the first request to the last answer
	cpu    float64 // processor time of all nodes from the submission to the readable result, seconds per row
	rest   float64 // processor time of an idle node, seconds per second

	first time.Duration // from the submission to the first request
	last  time.Duration // from the last answer to the commit of the last row

	bare       float64 // rows per second of the best generator on one server, from its first request to the last answer
	bareSteady float64 // the same, between 20 % and 80 % of its rows
}

// efficiency returns the rate per node relative to the generator's.
func (s scaled) efficiency(nodes int) float64 { return s.rate / (float64(nodes) * s.bare) }

// scaleOut is B6: the rate of a job on n servers with a node each, compared with n
// times a generator's rate on one server, for n = 1, 2, 4, up to most. The job grows
// with n.
func (b *bench) scaleOut(ctx context.Context, most int, answer, length time.Duration) error {
	generator, err := b.build(ctx, "generator")
	if err != nil {
		return err
	}
	each := int64(slowRate(answer) * length.Seconds())
	all := make(map[int][]scaled)
	for round := range b.rounds {
		for n := 1; n <= most; n *= 2 {
			s, err := b.scale(ctx, generator, n, each, answer)
			if err != nil {
				return fmt.Errorf("%d nodes: %w", n, err)
			}
			all[n] = append(all[n], s)
			b.log.Info("measured", "round", round+1, "nodes", n, "rows_per_s", s.rate, "efficiency", s.efficiency(n),
				"steady", s.steady/(float64(n)*s.bareSteady), "busy", s.busy, "cpu_us_per_row", 1e6*s.cpu,
				"first", s.first, "last", s.last, "bare", s.bare, "rest", s.rest)
		}
	}
	fmt.Printf("\nB6 scale-out: %d rows per node, each with a server of %d slots that answers within %v (%.0f rows/s), %d rounds, median (min–max)\n\n",
		each, slowSlots, answer, slowRate(answer), b.rounds)
	t := table{head: []string{
		"nodes", "rows/s", "÷ generator × nodes", "steady, ÷ generator × nodes", "slots full, %",
		"CPU µs/row", "÷ one node's", "an idle node, CPU ms/s", "submission to first request, s", "last answer to last commit, s",
	}}
	for n := 1; n <= most; n *= 2 {
		f := func(value func(scaled) float64) spread { return collect(all[n], value) }
		cpu := func(s scaled) float64 { return 1e6 * s.cpu }
		t.add(strconv.Itoa(n), f(func(s scaled) float64 { return s.rate }).String(),
			f(func(s scaled) float64 { return s.efficiency(n) }).precise(),
			f(func(s scaled) float64 { return s.steady / (float64(n) * s.bareSteady) }).precise(),
			f(func(s scaled) float64 { return 100 * s.busy }).String(),
			f(cpu).String(), f(cpu).over(collect(all[1], cpu)).String(),
			f(func(s scaled) float64 { return 1000 * s.rest }).String(),
			f(func(s scaled) float64 { return s.first.Seconds() }).String(),
			f(func(s scaled) float64 { return s.last.Seconds() }).String())
	}
	t.print(os.Stdout)
	return nil
}

// scale runs a job on n new nodes, and the generators at the same time, each on its own
// server.
func (b *bench) scale(ctx context.Context, generator string, n int, each int64, answer time.Duration) (scaled, error) {
	bare := dataset{rows: each, bytes: slowBytes, seed: 6}
	whole := bare
	whole.rows *= int64(n)
	for _, data := range []dataset{bare, whole} { // one after the other: they may be the same file
		if _, err := data.make(b.dir); err != nil {
			return scaled{}, err
		}
	}
	l, err := b.startLab(ctx, n, b.slow(answer))
	if err != nil {
		return scaled{}, err
	}
	defer l.end()
	if err := l.warm(ctx, b); err != nil {
		return scaled{}, fmt.Errorf("first job: %w", err)
	}
	var s scaled
	if s.rest, err = l.idle(); err != nil {
		return scaled{}, err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() (err error) {
		drivers := make([]driver, len(slowSweep))
		for i, in := range slowSweep {
			drivers[i] = driver{name: fmt.Sprintf("generator, %d in flight", in), share: 1, run: generatorDriver(generator, in, nil)}
		}
		got, err := b.race(ctx, drivers, bare, slowGauges(), b.slow(answer))
		for _, f := range got {
			s.bare = max(s.bare, f.done/f.length.Seconds())
			s.bareSteady = max(s.bareSteady, f.rate)
		}
		return err
	})
	var job scaled
	group.Go(func() (err error) {
		job, err = l.scaled(ctx, b, whole)
		return err
	})
	if err := group.Wait(); err != nil {
		return scaled{}, err
	}
	job.bare, job.bareSteady, job.rest = s.bare, s.bareSteady, s.rest
	return job, l.stop()
}

// slowBytes is the length of a row's text.
const slowBytes = 400

// scaled runs a job and returns its figures.
func (l *lab) scaled(ctx context.Context, b *bench, data dataset) (s scaled, err error) {
	in, err := data.make(b.dir)
	if err != nil {
		return s, err
	}
	meters, err := l.watch(ctx)
	if err != nil {
		return s, err
	}
	j, err := l.job(ctx, b, in)
	if err != nil {
		return s, err
	}
	s.cpu = j.cpu.Seconds() / float64(data.rows)
	s.rate = float64(data.rows) / committed(j.course).Sub(j.submitted).Seconds()
	if err := l.meter(b, meters, &s, j.submitted, committed(j.course)); err != nil {
		return s, err
	}
	return s, b.checked(ctx, l.nodes[len(l.nodes)-1], j.id, data.rows)
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

// courseOf returns the path for the readings of a node's server.
func (b *bench) courseOf(i int) string {
	return filepath.Join(b.dir, "course-node-"+strconv.Itoa(i)+".csv")
}

// meter stops the meters and evaluates their readings.
func (l *lab) meter(b *bench, meters []*meter, s *scaled, submitted, committed time.Time) error {
	var first, last time.Time
	courses := make([]course, len(meters))
	for i, m := range meters {
		var err error
		if courses[i], err = m.stop(); err != nil {
			return err
		}
		if err := courses[i].write(b.courseOf(i)); err != nil {
			return err
		}
		f, err := courses[i].figures()
		if err != nil {
			return fmt.Errorf("server %d: %w", i, err)
		}
		s.steady += f.rate
		begun, over := courses[i].busy()
		if at := courses[i][begun].at; first.IsZero() || at.Before(first) {
			first = at
		}
		if at := courses[i][over].at; at.After(last) {
			last = at
		}
	}
	readings := 0.0
	for _, c := range courses {
		for _, r := range c {
			if !r.at.Before(first) && r.at.Before(last) {
				s.busy += min(r.running, slowSlots) / slowSlots
				readings++
			}
		}
	}
	s.busy /= readings
	s.first, s.last = first.Sub(submitted), committed.Sub(last)
	return nil
}

package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	// unserved is a catalog model that the inference server does not have. A job for it
	// is stored and waits, which is enough to fill a store.
	unserved = "qwen-3-32b-thinking"
	samples  = 300 // per round
	// activeJobs is how many jobs an account runs at once by default: jobs.max_active
	// and one reserved slot.
	activeJobs = 64 + 1
	// settle is the pause for the node to finish the work of a phase.
	settle = 2 * time.Second
	// listJobs is the length of a list: the largest page.
	listJobs = 100
)

// controlPlane is B11: how long clients wait for answers about jobs with many stored
// jobs, compared with the time of a flush to the same disk.
func (b *bench) controlPlane(ctx context.Context) error {
	n, address, end, err := b.onNull(ctx, "-models", model)
	if err != nil {
		return err
	}
	defer end()

	begun := time.Now()
	jobs, err := n.fill(ctx, b.stored)
	if err != nil {
		return fmt.Errorf("store %d jobs: %w", b.stored, err)
	}
	b.log.Info("stored jobs", "jobs", len(jobs), "took", time.Since(begun))

	figures := newControlFigures()
	for range b.rounds {
		flush, err := b.submissions(ctx, n, figures)
		if err != nil {
			return err
		}
		if err := n.oneRow(ctx, address, flush, figures); err != nil {
			return err
		}
		if err := n.statuses(ctx, jobs, figures); err != nil {
			return err
		}
		if err := n.lists(ctx, figures); err != nil {
			return err
		}
		b.log.Info("measured a round", "load", loadAverage())
	}
	fmt.Printf("\nB11 control plane: %d jobs stored, %d rounds of %d samples each, median (min–max) of the rounds\n\n", b.stored, b.rounds, samples)
	figures.table().print(os.Stdout)
	fmt.Printf("\nAt most %s requests for a status in a second.\n", figures.rates)
	return n.stop()
}

// controlFigures holds the figures of B11 per round, in order of the first measurement.
type controlFigures struct {
	names []string
	rates spread // highest rate of status requests per second
	of    map[string]*controlFigure
}

// controlFigure holds one measure of all rounds: times in seconds, and as multiples of
// a flush.
type controlFigure struct{ p50, p99, perFlush50, perFlush99, cpu spread }

func newControlFigures() *controlFigures { return &controlFigures{of: map[string]*controlFigure{}} }

func (f *controlFigures) figure(name string) *controlFigure {
	if f.of[name] == nil {
		f.names, f.of[name] = append(f.names, name), new(controlFigure)
	}
	return f.of[name]
}

// latency adds a round of a measure, with its flushes if there are any.
func (f *controlFigures) latency(name string, took, flush []time.Duration) {
	m, p50, p99 := f.figure(name), percentile(took, 0.5).Seconds(), percentile(took, 0.99).Seconds()
	m.p50, m.p99 = append(m.p50, p50), append(m.p99, p99)
	if flush != nil {
		m.perFlush50 = append(m.perFlush50, p50/percentile(flush, 0.5).Seconds())
		m.perFlush99 = append(m.perFlush99, p99/percentile(flush, 0.99).Seconds())
	}
}

func (f *controlFigures) table() *table {
	t := &table{head: []string{"measure", "p50, ms", "p99, ms", "÷ fsync p50", "÷ fsync p99", "node's CPU, ms"}}
	millis := func(s spread) string { return s.print(func(x float64) string { return short(x * 1e3) }) }
	for _, name := range f.names {
		m := f.of[name]
		t.add(name, millis(m.p50), millis(m.p99), m.perFlush50.String(), m.perFlush99.String(), millis(m.cpu))
	}
	return t
}

// loadAverage returns the load average of the last minute.
func loadAverage() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return err.Error()
	}
	first, _, _ := strings.Cut(string(text), " ")
	return first
}

// lists measures requests for lists of listJobs jobs, one after the other.
func (n *node) lists(ctx context.Context, figures *controlFigures) error {
	return n.latencies(figures, fmt.Sprintf("list of %d", listJobs), func() (took []time.Duration, err error) {
		for range samples {
			begun := time.Now()
			if err := n.get(ctx, fmt.Sprintf("/v1/list-jobs?limit=%d", listJobs)); err != nil {
				return nil, err
			}
			took = append(took, time.Since(begun))
		}
		return took, nil
	})
}

// latencies adds the times of requests and the node's processor time for each.
func (n *node) latencies(figures *controlFigures, name string, ask func() ([]time.Duration, error)) error {
	var took []time.Duration
	used, err := costOf(n.cpu, func() (err error) {
		took, err = ask()
		return err
	})
	if err != nil {
		return err
	}
	figures.latency(name, took, nil)
	m := figures.figure(name)
	m.cpu = append(m.cpu, used.cpu.Seconds()/float64(len(took)))
	return nil
}

// fill stores jobs: it submits each for a model without a server, and cancels it.
func (n *node) fill(ctx context.Context, count int) ([]string, error) {
	const clients = 128
	jobs := make([]string, count)
	group, ctx := errgroup.WithContext(ctx)
	for c := range clients {
		group.Go(func() error {
			for i := c; i < count; i += clients {
				id, err := n.submit(ctx, submission{Inputs: []string{"one row"}, Model: unserved})
				if err != nil {
					return err
				}
				if err := n.cancel(ctx, id); err != nil {
					return err
				}
				jobs[i] = id
			}
			return nil
		})
	}
	return jobs, group.Wait()
}

// submissions measures submissions of several sizes, with a flush to disk before each,
// and returns the flushes.
func (b *bench) submissions(ctx context.Context, n *node, figures *controlFigures) ([]time.Duration, error) {
	file, err := os.Create(filepath.Join(b.dir, "flush"))
	if err != nil {
		return nil, fmt.Errorf("create file to flush: %w", err)
	}
	defer os.Remove(file.Name())
	defer file.Close()

	sizes := []struct {
		name string
		row  string
	}{
		{"submit, 1 KB inline", strings.Repeat("x", 1<<10)},
		{"submit, 60 KB inline", strings.Repeat("x", 60<<10)},
		{"submit, 1 MB inline", strings.Repeat("x", 1<<20)},
	}
	// Fill the node's active slots with waiting jobs first. Later submissions then stay
	// pending, so that only the submission is measured.
	var waiting []string
	for range activeJobs {
		id, err := n.submit(ctx, submission{Inputs: []string{"one row"}, Model: unserved})
		if err != nil {
			return nil, err
		}
		waiting = append(waiting, id)
	}
	time.Sleep(settle)

	took := make([][]time.Duration, len(sizes))
	var flush []time.Duration
	for range samples {
		for i, size := range sizes {
			d, err := flushOnce(file)
			if err != nil {
				return nil, err
			}
			flush = append(flush, d)
			begun := time.Now()
			id, err := n.submit(ctx, submission{Inputs: []string{size.row}, Model: unserved})
			if err != nil {
				return nil, err
			}
			took[i] = append(took[i], time.Since(begun))
			waiting = append(waiting, id)
		}
	}
	for _, id := range waiting {
		if err := n.cancel(ctx, id); err != nil {
			return nil, err
		}
	}
	time.Sleep(settle)
	figures.latency("fsync of 4 KB", flush, flush)
	for i, size := range sizes {
		figures.latency(size.name, took[i], flush)
	}
	return flush, nil
}

// flushOnce appends 4 KB to a file and flushes it.
func flushOnce(file *os.File) (time.Duration, error) {
	begun := time.Now()
	if _, err := file.Write(make([]byte, 4096)); err != nil {
		return 0, fmt.Errorf("write: %w", err)
	}
	if err := file.Sync(); err != nil {
		return 0, fmt.Errorf("flush: %w", err)
	}
	return time.Since(begun), nil
}

// oneRow measures one-row jobs, from the submission until the status shows success,
// compared with the same request directly to the inference server.
func (n *node) oneRow(ctx context.Context, engine string, flush []time.Duration, figures *controlFigures) error {
	var whole, direct []time.Duration
	for range samples {
		begun := time.Now()
		if err := post(ctx, n.client, "http://"+engine+"/v1/chat/completions"); err != nil {
			return fmt.Errorf("ask the inference server: %w", err)
		}
		direct = append(direct, time.Since(begun))

		begun = time.Now()
		id, err := n.submit(ctx, submission{Inputs: []string{"one row"}, Model: model})
		if err != nil {
			return err
		}
		if _, err := n.wait(ctx, id, time.Millisecond); err != nil {
			return err
		}
		whole = append(whole, time.Since(begun))
	}
	figures.latency("the engine alone, 1 row", direct, flush)
	figures.latency("job of 1 row", whole, flush)
	bound := figures.figure("bound of a job of 1 row: engine + 10 ms + 12 fsyncs")
	bound.p50 = append(bound.p50, (percentile(direct, 0.5) + 10*time.Millisecond + 12*percentile(flush, 0.5)).Seconds())
	return nil
}

func post(ctx context.Context, client *http.Client, url string) error {
	body := strings.NewReader(`{"model":"` + model + `","messages":[{"role":"user","content":"one row"}],"logprobs":true}`)
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, body)
	if err != nil {
		return fmt.Errorf("make request: %w", err)
	}
	return exchange(client, request)
}

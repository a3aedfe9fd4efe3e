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
	storedJobs = 100_000
	// unserved is a catalog model that the inference server does not have: a
	// job for it is stored and waits, which is all that filling a store needs.
	unserved = "qwen-3-32b-thinking"
	samples  = 300
	// activeJobs is how many an account runs at once by default: jobs.max_active, and one kept place.
	activeJobs = 64 + 1
	// settle is how long the node gets to finish what a phase left behind.
	settle = 2 * time.Second
)

// controlPlane is B11: how long clients wait for answers about jobs when many
// are stored, beside what one flush to the same disk takes.
func (b *bench) controlPlane(ctx context.Context) error {
	null, address, err := b.startNull(ctx, "-models", model)
	if err != nil {
		return err
	}
	defer null.end()
	data := filepath.Join(b.dir, "node-b11")
	if err := os.RemoveAll(data); err != nil {
		return fmt.Errorf("remove old data: %w", err)
	}
	n, err := startNode(ctx, b.rowmill, data, address)
	if err != nil {
		return err
	}
	defer n.end()

	begun := time.Now()
	jobs, err := n.fill(ctx, storedJobs)
	if err != nil {
		return fmt.Errorf("store %d jobs: %w", storedJobs, err)
	}
	b.log.Info("stored jobs", "jobs", len(jobs), "took", time.Since(begun))

	t := table{head: []string{"measure", "p50", "p99", "÷ fsync p50", "÷ fsync p99"}}
	flush, err := b.submissions(ctx, n, &t)
	if err != nil {
		return err
	}
	if err := n.oneRow(ctx, address, flush, &t); err != nil {
		return err
	}
	if err := n.statuses(ctx, jobs, &t); err != nil {
		return err
	}
	fmt.Printf("\nB11 control plane: %d jobs stored, %d samples each\n\n", storedJobs, samples)
	t.print(os.Stdout)
	return n.stop()
}

// fill stores jobs: each is submitted for a model nobody serves and cancelled.
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
				if err := n.call(ctx, http.MethodGet, "/v1/job-cancel/"+id, nil, nil); err != nil {
					return err
				}
				jobs[i] = id
			}
			return nil
		})
	}
	return jobs, group.Wait()
}

// submissions measures submissions of several sizes, a flush to disk before
// each, and returns the flushes.
func (b *bench) submissions(ctx context.Context, n *node, t *table) ([]time.Duration, error) {
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
	// The node's active places are taken by waiting jobs first: what follows is
	// stored and stays pending, so that a submission is measured and not what
	// the node does with the one before.
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
		if err := n.call(ctx, http.MethodGet, "/v1/job-cancel/"+id, nil, nil); err != nil {
			return nil, err
		}
	}
	time.Sleep(settle)
	t.latency("fsync of 4 KB", flush, flush)
	for i, size := range sizes {
		t.latency(size.name, took[i], flush)
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

// oneRow measures jobs of one row, from the submission to the status that
// says so, beside the same request sent straight to the inference server.
func (n *node) oneRow(ctx context.Context, engine string, flush []time.Duration, t *table) error {
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
	t.latency("the engine alone, 1 row", direct, flush)
	t.latency("job of 1 row", whole, flush)
	bound := percentile(direct, 0.5) + 10*time.Millisecond + 12*percentile(flush, 0.5)
	t.add("bound of a 1-row job: engine + 10 ms + 12 fsyncs", ms(bound), "", "", "")
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

// latency adds the percentiles of a measure.
func (t *table) latency(name string, took, flush []time.Duration) {
	p50, p99 := percentile(took, 0.5), percentile(took, 0.99)
	t.add(name, ms(p50), ms(p99),
		short(p50.Seconds()/percentile(flush, 0.5).Seconds()), short(p99.Seconds()/percentile(flush, 0.99).Seconds()))
}

func ms(d time.Duration) string { return short(d.Seconds()*1e3) + " ms" }

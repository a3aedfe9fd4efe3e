package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// openPages is the largest number of open pages, and openTime how long the node is
// measured: three periods of the slowest timer. Every smallEvery a job of a few rows
// arrives, after which pages reload their lists.
const (
	openPages  = 50
	openTime   = 45 * time.Second
	smallEvery = 5 * time.Second
)

// A glance is the usage of a node while pages are open.
type glance struct {
	cpu   spread // in percent of a core
	store spread // requests to Redis per second
}

// console is B14: the processor time and Redis requests of a node with no page, one
// page and openPages pages open in real browsers, each with an event stream. A job with
// 100 ms answers runs, and small jobs come and go.
func (b *bench) console(ctx context.Context) error {
	l, err := b.startLab(ctx, both(1), func(string) (*process, string, error) {
		return b.startNull(ctx, "-models", model, "-delay", "100ms", "-slots", "4")
	})
	if err != nil {
		return err
	}
	defer l.end()
	in, err := dataset{rows: 1_000_000, bytes: 100, seed: 14}.make(b.dir)
	if err != nil {
		return err
	}
	n := l.nodes[0]
	id, err := n.submit(ctx, submission{Inputs: b.fileBase + filepath.Base(in), Model: model, Column: "text", Priority: 1})
	if err != nil {
		return err
	}
	for running := false; !running; time.Sleep(time.Second) {
		job, err := n.job(ctx, id)
		if err != nil {
			return err
		}
		running = job.Status == "running"
	}
	t := table{head: []string{"page", "open", "% of a core", "requests to Redis a second"}}
	for _, view := range []struct{ name, path string }{{"overview", ""}, {"the job", "jobs/" + id}, {"its rows", "jobs/" + id + "/rows"}} {
		counts := []int{0, 1, openPages}
		seen := make(map[int]*glance)
		for range b.rounds {
			for _, pages := range counts {
				used, asked, err := b.pageUsage(ctx, l, view.path, pages)
				if err != nil {
					return err
				}
				if seen[pages] == nil {
					seen[pages] = new(glance)
				}
				seen[pages].cpu, seen[pages].store = append(seen[pages].cpu, used), append(seen[pages].store, asked)
				b.log.Info("measured", "page", view.name, "open", pages, "percent_of_a_core", short(used), "redis_requests_a_second", short(asked))
			}
		}
		for _, pages := range counts {
			t.add(view.name, strconv.Itoa(pages), seen[pages].cpu.String(), seen[pages].store.String())
		}
	}
	t.report("B14 console: pages in %d browsers, a job of 40 rows/s running and a small one every %s, %s each, %d rounds, median (min–max)",
		openPages, smallEvery, openTime, b.rounds)
	return nil
}

// pageUsage returns a node's processor time in percent of a core, and its Redis requests
// per second, while a number of pages are open.
func (b *bench) pageUsage(ctx context.Context, l *lab, path string, pages int) (cpu, asked float64, err error) {
	n := l.nodes[0]
	if pages > 0 {
		closePages, err := b.openPages(ctx, n, path, pages)
		if err != nil {
			return 0, 0, fmt.Errorf("open pages: %w", err)
		}
		defer closePages()
	}
	used, err := n.cpu()
	if err != nil {
		return 0, 0, err
	}
	before, err := l.tallyNodes(ctx)
	if err != nil {
		return 0, 0, err
	}
	begun := time.Now()
	small := time.NewTicker(smallEvery)
	defer small.Stop()
	for time.Since(begun) < openTime {
		select {
		case <-ctx.Done():
			return 0, 0, ctx.Err()
		case <-small.C:
			if _, err := n.submit(ctx, submission{Inputs: []string{"a", "b", "c"}, Model: model}); err != nil {
				return 0, 0, err
			}
		}
	}
	took := time.Since(begun).Seconds()
	after, err := l.tallyNodes(ctx)
	if err != nil {
		return 0, 0, err
	}
	now, err := n.cpu()
	return 100 * (now - used).Seconds() / took, after.minus(before)["Redis: requests"] / took, err
}

// openPages opens pages of a node in a browser. After an error no page is open.
func (b *bench) openPages(ctx context.Context, n *node, path string, pages int) (closePages func(), err error) {
	command := exec.CommandContext(ctx, "node", "console/web/test/open.mjs", n.base, apiKey, b.dir, strconv.Itoa(pages), path)
	command.Stderr = os.Stderr
	in, err := command.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := command.Start(); err != nil {
		return nil, err
	}
	closePages = func() {
		_ = in.Close()
		_ = command.Wait() // errors were reported before
	}
	said, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || strings.TrimSpace(said) != "open" {
		closePages()
		return nil, fmt.Errorf("it says %q: %w", said, err)
	}
	return closePages, nil
}

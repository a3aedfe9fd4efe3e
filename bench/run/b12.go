package main

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"
)

// modestJobs is the number of jobs measured per round, while another account has far
// more work than the servers can do, all with priority 0.
const modestJobs = 20

// byURL is the number of rows from which a job of the other account is a file.
const byURL = 100_000

// fairness is B12: how soon a one-row job of priority 0 starts and ends while another
// account has submitted much work, on one node, on three nodes that do everything, and
// on two nodes that own jobs and one with a server.
func (b *bench) fairness(ctx context.Context) error {
	t := table{head: []string{"nodes", "starts after, p50", "starts after, most", "ends after, p50", "ends after, most"}}
	var inputs any
	if b.greedy >= byURL {
		path, err := dataset{rows: b.greedy, bytes: 16, seed: 12}.make(b.dir)
		if err != nil {
			return err
		}
		inputs = b.fileBase + filepath.Base(path)
	} else {
		rows := make([]string, b.greedy)
		for i := range rows {
			rows[i] = fmt.Sprint("row ", i)
		}
		inputs = rows
	}
	for _, shape := range []struct {
		name  string
		roles []string
	}{{"1", both(1)}, {"3", both(3)}, {"2 that own, 1 with a server", []string{"api", "api", "engines"}}} {
		if len(shape.roles) > b.nodes {
			break
		}
		var began, ended []time.Duration
		for range b.rounds {
			if err := b.measureFairness(ctx, inputs, shape.roles, &began, &ended); err != nil {
				return fmt.Errorf("%s nodes: %w", shape.name, err)
			}
		}
		t.add(shape.name, percentile(began, 0.5).String(), percentile(began, 1).String(), percentile(ended, 0.5).String(), percentile(ended, 1).String())
	}
	t.report("B12 fairness: jobs of one row of priority 0, which takes %v at the server, beside %d jobs of %d rows of priority 0 of another account, %d rounds of %d",
		b.answer, b.jobs, b.greedy, b.rounds, modestJobs)
	return nil
}

// measureFairness measures a round on new nodes.
func (b *bench) measureFairness(ctx context.Context, inputs any, roles []string, began, ended *[]time.Duration) error {
	l, err := b.startFair(ctx, roles)
	if err != nil {
		return err
	}
	defer l.end()
	first, err := l.nodes[0].submit(ctx, submission{Inputs: []string{"one row"}, Model: model})
	if err != nil {
		return err
	}
	if _, err := l.nodes[0].wait(ctx, first, progressInterval); err != nil {
		return fmt.Errorf("first job: %w", err)
	}
	var made struct {
		Key string `json:"key"`
	}
	if err := l.nodes[0].call(ctx, http.MethodPost, "/v1/keys", map[string]string{"account": "modest"}, &made); err != nil {
		return err
	}
	if err := l.submitMany(ctx, inputs, b.jobs); err != nil {
		return err
	}
	for i := range modestJobs {
		modest := *l.nodes[i%l.owners()]
		modest.key = made.Key
		submitted := time.Now()
		id, err := modest.submit(ctx, submission{Inputs: []string{"one row"}, Model: model})
		if err != nil {
			return err
		}
		start, end, err := modest.times(ctx, id, submitted)
		if err != nil {
			return err
		}
		b.log.Info("measured", "nodes", len(roles), "starts", start, "ends", end)
		*began, *ended = append(*began, start), append(*ended, end)
	}
	return nil
}

// startFair starts a cluster, or a single node.
func (b *bench) startFair(ctx context.Context, roles []string) (*lab, error) {
	if len(roles) > 1 {
		return b.startLab(ctx, roles, b.slow(b.answer))
	}
	data := filepath.Join(b.dir, "node-b12")
	server, engine, err := b.slow(b.answer)("node-b12-server.log")
	if err != nil {
		return nil, err
	}
	l := &lab{servers: []*process{server}, roles: roles}
	n, err := startNode(ctx, b.rowmill, data, engine)
	if err != nil {
		l.end()
		return nil, err
	}
	l.nodes = []*node{n}
	return l, nil
}

// submitMany submits the work of the other account.
func (l *lab) submitMany(ctx context.Context, inputs any, jobs int) error {
	column := ""
	if _, url := inputs.(string); url {
		column = "text"
	}
	const clients = 32
	group, ctx := errgroup.WithContext(ctx)
	for c := range clients {
		group.Go(func() error {
			for i := c; i < jobs; i += clients {
				if _, err := l.nodes[i%l.owners()].submit(ctx, submission{Inputs: inputs, Model: model, Column: column}); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return group.Wait()
}

// times holds the times from a job's submission to its start and to its end.
func (n *node) times(ctx context.Context, id string, submitted time.Time) (start, end time.Duration, err error) {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		r, err := n.job(ctx, id)
		if err != nil {
			return 0, 0, fmt.Errorf("look at job %s: %w", id, err)
		}
		if start == 0 && r.Started != nil {
			start = time.Since(submitted)
		}
		switch r.Status {
		case "succeeded":
			return start, time.Since(submitted), nil
		case "failed", "cancelled":
			return 0, 0, fmt.Errorf("job %s %s: %s", id, r.Status, r.FailureReason)
		}
		select {
		case <-ctx.Done():
			return 0, 0, ctx.Err()
		case <-tick.C:
		}
	}
}

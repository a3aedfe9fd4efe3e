package cluster

import (
	"context"
	"fmt"
	"time"
)

// A neighbour is another account that uses the service during a trial: it submits jobs of a
// few rows and priority 0, one after the other.
type neighbour struct {
	*Crowd
	jobs int // so far, in all trials
}

const (
	neighbourTexts = 200
	neighbourRows  = 3
	neighbourRests = 300 * time.Millisecond // between jobs: the neighbour must not be a load
)

// neighbours is the outcome of a neighbour's jobs beside one trial.
type neighbours struct {
	jobs    int
	slowest time.Duration
	wrongs  []string
}

// besides makes the neighbour submit jobs until the returned function is called, which waits
// for the last job.
func (c *Cluster) besides(ctx context.Context, seed uint64) (end func() neighbours, err error) {
	if c.neighbour == nil {
		crowd, err := c.newCrowd(ctx, seed, neighbourTexts, 1)
		if err != nil {
			return nil, err
		}
		c.neighbour = &neighbour{Crowd: crowd}
	}
	stop, done := make(chan struct{}), make(chan neighbours, 1)
	go func() { done <- c.neighbour.until(ctx, stop) }()
	return func() neighbours { close(stop); return <-done }, nil
}

func (n *neighbour) until(ctx context.Context, stop <-chan struct{}) (all neighbours) {
	account := n.accounts[0]
	for {
		select {
		case <-stop:
			return all
		case <-time.After(neighbourRests):
		}
		rows := make([]int, 1+n.random.IntN(neighbourRows))
		for i := range rows {
			rows[i] = n.random.IntN(len(n.texts))
		}
		began := time.Now()
		if err := n.job(ctx, account, 2*n.jobs, rows); err != nil {
			all.wrongs = append(all.wrongs, fmt.Sprintf("job %d of the account beside it: %v", n.jobs, err))
		}
		all.slowest = max(all.slowest, time.Since(began))
		n.jobs++
		all.jobs++
	}
}

// judge compares the ledger of the neighbour with its rows.
func (n *neighbour) judge(ctx context.Context) ([]string, error) {
	charged, err := n.charged(ctx, n.accounts[0])
	if err != nil {
		return nil, err
	}
	var wrongs []string
	for _, wrong := range JudgeLedger(charged, n.accounts[0].used) {
		wrongs = append(wrongs, "the account beside it: "+wrong)
	}
	n.accounts[0].used = charged // report a difference once
	return wrongs, nil
}

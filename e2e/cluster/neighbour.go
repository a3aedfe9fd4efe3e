package cluster

import (
	"context"
	"errors"
	"fmt"
)

const (
	neighbourTexts = 200
	busyClients    = 3 // jobs at a time of withClients
)

// besides makes a neighbour submit jobs until the returned function is called, which returns
// the number of jobs. A neighbour is another account that uses the service during a trial: it
// submits jobs of a few rows and priority 0, one after the other.
func (c *Cluster) besides(ctx context.Context, seed uint64) (end func() int, err error) {
	if c.neighbour == nil {
		if c.neighbour, err = c.newCrowd(ctx, "neighbour", seed, neighbourTexts, 1); err != nil {
			return nil, err
		}
		c.neighbour.small = true
	}
	before := c.neighbour.number
	stop := c.neighbour.start(ctx, 1)
	return func() int {
		stop()
		return c.neighbour.number - before
	}, nil
}

// withClients does something while clients of an account of their own submit jobs, and checks
// their jobs. Their requests are judged with all others of the trial.
func (t *Trial) withClients(ctx context.Context, do func() error) error {
	clients, err := t.newCrowd(ctx, fmt.Sprintf("clients%d-", t.Seed), t.Seed, neighbourTexts, 1)
	if err != nil {
		return err
	}
	clients.small = true
	end := clients.start(ctx, busyClients)
	err = do()
	end()
	wrongs, judged := clients.judge(ctx, t.patience())
	for _, wrong := range wrongs {
		judged = errors.Join(judged, errors.New(wrong))
	}
	return errors.Join(err, judged)
}

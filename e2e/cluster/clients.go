package cluster

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// Clients submit many small jobs during a fault.
const (
	clientCount = 3
	clientRows  = 5
	clientPause = 200 * time.Millisecond // between a client's jobs
)

// clients submit jobs to any node that is up. No request may fail, and every accepted job must
// succeed.
type clients struct {
	trial  *Trial
	cancel context.CancelFunc
	wait   sync.WaitGroup

	mu       sync.Mutex
	jobs     map[string][]string // rows by job
	failures []error
}

func (t *Trial) startClients(ctx context.Context) *clients {
	ctx, cancel := context.WithCancel(ctx)
	c := &clients{trial: t, cancel: cancel, jobs: map[string][]string{}}
	for number := range clientCount {
		c.wait.Go(func() { c.run(ctx, number) })
	}
	return c
}

func (c *clients) run(ctx context.Context, number int) {
	pause := time.NewTicker(clientPause)
	defer pause.Stop()
	for job := 0; ; job++ {
		select {
		case <-ctx.Done():
			return
		case <-pause.C:
		}
		key := fmt.Sprintf("client %d of trial %d, job %d", number, c.trial.Seed, job)
		rows := make([]string, clientRows)
		for i := range rows {
			rows[i] = fmt.Sprintf("%s, row %d", key, i)
		}
		id, err := c.trial.submit(context.WithoutCancel(ctx), key, rows)
		c.mu.Lock()
		if err != nil {
			c.failures = append(c.failures, err)
		} else {
			c.jobs[id] = rows
		}
		c.mu.Unlock()
	}
}

// stop ends the clients, waits for their jobs and checks the results.
func (c *clients) stop(ctx context.Context) error {
	c.cancel()
	c.wait.Wait()
	if len(c.failures) > 0 {
		return fmt.Errorf("%d of %d requests of clients failed, the first: %w", len(c.failures), len(c.failures)+len(c.jobs), c.failures[0])
	}
	for id, rows := range c.jobs {
		if err := c.check(ctx, id, rows); err != nil {
			return fmt.Errorf("job %s of a client: %w", id, err)
		}
	}
	return nil
}

func (c *clients) check(ctx context.Context, id string, rows []string) error {
	var r Record
	err := await(ctx, "its end", jobWithin, func(ctx context.Context) (err error) {
		if r, err = c.trial.record(ctx, id); err == nil && !r.over() {
			err = fmt.Errorf("it is %s", r.Status)
		}
		return err
	})
	if err != nil {
		return err
	}
	e := Evidence{Inputs: rows, Record: r, Later: r}
	if e.Want, err = c.trial.answers(ctx, rows); err != nil {
		return err
	}
	if e.Results, err = c.trial.results(ctx, id); err != nil {
		return err
	}
	c.trial.account.charge(e.Want)
	var v Verdict
	v.judgeRecord(e)
	v.judgeResults(e)
	if len(v.Wrongs) > 0 {
		return fmt.Errorf("%q", v.Wrongs)
	}
	return nil
}

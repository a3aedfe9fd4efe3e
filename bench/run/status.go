package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	statusClients = 16
	statusTime    = 5 * time.Second // length of each phase
)

// statuses measures the status endpoint: first the highest rate of requests, then the
// latency at half of this rate, compared with the latency of an answer that reads
// nothing. Requests start at fixed times and are measured from these times, so that a
// slow answer does not hide the delay of later ones.
func (n *node) statuses(ctx context.Context, jobs []string, figures *controlFigures) error {
	status := func() string { return "/v1/job-status/" + jobs[rand.IntN(len(jobs))] }
	most, err := n.fullSpeed(ctx, status)
	if err != nil {
		return err
	}
	figures.rates = append(figures.rates, most)
	for _, m := range []struct {
		name string
		path func() string
	}{
		{"status, at half of that rate", status},
		{"/livez, at the same", func() string { return "/livez" }},
	} {
		err := n.latencies(figures, m.name, func() ([]time.Duration, error) { return n.atRate(ctx, m.path, most/2) })
		if err != nil {
			return err
		}
	}
	return nil
}

// fullSpeed returns the requests per second of clients without pauses.
func (n *node) fullSpeed(ctx context.Context, path func() string) (float64, error) {
	limited, cancel := context.WithTimeout(ctx, statusTime)
	defer cancel()
	var count atomic.Int64
	group := new(errgroup.Group)
	begun := time.Now()
	for range statusClients {
		group.Go(func() error {
			for limited.Err() == nil {
				if err := n.get(ctx, path()); err != nil {
					return err
				}
				count.Add(1)
			}
			return nil
		})
	}
	err := group.Wait()
	return float64(count.Load()) / time.Since(begun).Seconds(), err
}

// atRate sends requests at a fixed rate and returns the time from each request's due
// time to its answer.
func (n *node) atRate(ctx context.Context, path func() string, rate float64) ([]time.Duration, error) {
	var (
		next  atomic.Int64
		lock  sync.Mutex
		all   []time.Duration
		begun = time.Now()
		total = int64(rate * statusTime.Seconds())
	)
	group, ctx := errgroup.WithContext(ctx)
	for range 4 * statusClients {
		group.Go(func() error {
			var took []time.Duration
			for {
				i := next.Add(1) - 1
				if i >= total {
					break
				}
				due := begun.Add(time.Duration(float64(i) / rate * float64(time.Second)))
				time.Sleep(time.Until(due))
				if err := n.get(ctx, path()); err != nil {
					return err
				}
				took = append(took, time.Since(due))
			}
			lock.Lock()
			defer lock.Unlock()
			all = append(all, took...)
			return nil
		})
	}
	err := group.Wait()
	return all, err
}

// get requests a path and reads the whole answer.
func (n *node) get(ctx context.Context, path string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, n.base+path, nil)
	if err != nil {
		return fmt.Errorf("make request: %w", err)
	}
	request.Header.Set("Authorization", "Key "+apiKey)
	return exchange(n.client, request)
}

// exchange sends a request and reads the whole answer.
func exchange(client *http.Client, request *http.Request) error {
	_, err := read(client, request)
	return err
}

// read sends a request and returns the answer.
func read(client *http.Client, request *http.Request) ([]byte, error) {
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, fmt.Errorf("read answer: %w", err)
	}
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s answers %s", request.URL.Path, response.Status)
	}
	return body, nil
}

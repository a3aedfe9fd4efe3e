package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"
)

// A failure is a client's request without an answer, or with an answer that blames the
// server.
type failure struct {
	node     *Node
	from, to time.Time
	err      error
}

func (f *failure) Error() string { return f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

// atKilled reports whether the node was killed during the request.
func (f *failure) atKilled() bool { return f.node.killedWithin(f.from, f.to) }

// failed reports whether an error is a failure. These errors are not failures: an
// answer that blames the request, an answer after which clients try another node, and a
// cancel by the test.
func failed(err error) bool {
	var r *refusal
	switch {
	case err == nil, elsewhere(err), errors.Is(err, context.Canceled):
		return false
	case errors.As(err, &r):
		return r.status >= http.StatusInternalServerError || r.status == http.StatusTooManyRequests
	}
	return true
}

// requests counts the requests of clients since the last take.
type requests struct {
	mu       sync.Mutex
	asked    int
	failures []*failure
}

// note counts a request and returns its error, as a *failure if it failed.
func (r *requests) note(n *Node, from time.Time, err error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked++
	if !failed(err) {
		return err
	}
	f := &failure{n, from, time.Now(), err}
	r.failures = append(r.failures, f)
	return f
}

func (r *requests) take() (asked int, failures []*failure) {
	r.mu.Lock()
	defer r.mu.Unlock()
	asked, failures = r.asked, r.failures
	r.asked, r.failures = 0, nil
	return asked, failures
}

// lookEvery is the time between two requests of a client for its job.
const lookEvery = 100 * time.Millisecond

// onlook makes a client poll the job of the trial at any node that is up, until the
// returned function is called. Failures count like other clients' failures.
func (t *Trial) onlook(ctx context.Context) (end func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for tick := time.NewTicker(lookEvery); ; {
			select {
			case <-ctx.Done():
				tick.Stop()
				return
			case <-tick.C:
				_, _ = t.record(ctx, t.Job) // note keeps the failure
			}
		}
	}()
	return func() { cancel(); <-done }
}

// Requests counts the requests of clients during a trial, by outcome.
type Requests struct {
	Asked  int
	Killed int // failed at a killed node
	Away   int // failed while a fault made something unavailable that requests need
}

// A stretch is a period in which requests may fail; the zero value is empty.
type stretch struct{ from, to time.Time }

// has reports whether a request was in the period.
func (s stretch) has(from, to time.Time) bool {
	return !s.from.IsZero() && !to.Before(s.from) && !from.After(s.to)
}

// judgeRequests counts failures by their excuse, and returns those without one.
func judgeRequests(asked int, failures []*failure, away stretch) (r Requests, wrongs []string) {
	r.Asked = asked
	const shown = 3
	bad := 0
	for _, f := range failures {
		switch {
		case f.atKilled():
			r.Killed++
		case away.has(f.from, f.to):
			r.Away++
		default:
			if bad++; bad <= shown {
				wrongs = append(wrongs, fmt.Sprintf("a request failed at %s, which was not killed, after %v: %v", f.node.name, f.to.Sub(f.from).Round(time.Millisecond), f.err))
			}
		}
	}
	if bad > shown {
		wrongs = append(wrongs, fmt.Sprintf("%d requests failed at nodes that were not killed", bad))
	}
	return r, wrongs
}

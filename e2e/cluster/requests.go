package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"
)

// A failure is a request of a client that got no answer, or one that says that the
// server is at fault.
type failure struct {
	node     *Node
	from, to time.Time
	err      error
}

func (f *failure) Error() string { return f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

// atKilled reports whether its node was being killed meanwhile.
func (f *failure) atKilled() bool { return f.node.killedWithin(f.from, f.to) }

// failed reports whether an error is a failure: not an answer that says what is
// wrong with the request, nor one for which clients go to another node, nor an end
// that the harness itself has made.
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

// requests are those of clients since they were last taken.
type requests struct {
	mu       sync.Mutex
	asked    int
	failures []*failure
}

// note counts a request and returns its error, a *failure where it is one.
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

// lookEvery is the time between looks of a client at its job.
const lookEvery = 100 * time.Millisecond

// onlook has a client look at the trial's job, behind whatever node is up, until the
// function is called that it returns. What fails is noted as of any client.
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
				_, _ = t.record(ctx, t.Job) // is judged by what is noted
			}
		}
	}()
	return func() { cancel(); <-done }
}

// Requests is what became of the requests of clients during a trial.
type Requests struct {
	Asked  int
	Killed int // failed at a node that was being killed
	Away   int // failed while a fault took from nodes what requests need
}

// A stretch is a time in which requests may fail; the zero value is none.
type stretch struct{ from, to time.Time }

// has reports whether a request of that time fell into it.
func (s stretch) has(from, to time.Time) bool {
	return !s.from.IsZero() && !to.Before(s.from) && !from.After(s.to)
}

// judgeRequests sorts failures by what excuses them, and names those that nothing does.
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
				wrongs = append(wrongs, fmt.Sprintf("a request failed at %s, which nobody killed, after %v: %v", f.node.name, f.to.Sub(f.from).Round(time.Millisecond), f.err))
			}
		}
	}
	if bad > shown {
		wrongs = append(wrongs, fmt.Sprintf("%d requests failed at nodes that nobody killed", bad))
	}
	return r, wrongs
}

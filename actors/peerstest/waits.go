package peerstest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rowmill/rowmill/cluster/peer"
)

// A stuck handler answers no request until release is closed.
type stuck struct {
	inside  chan struct{} // gets a token for each request that has arrived
	ended   chan struct{} // gets a token for each request whose context has ended
	release chan struct{} // closed to let the handler answer
}

func newStuck() *stuck {
	const most = 10_000
	return &stuck{inside: make(chan struct{}, most), ended: make(chan struct{}, most), release: make(chan struct{})}
}

func (h *stuck) handle(ctx context.Context, _ string) (string, error) {
	h.inside <- struct{}{}
	select {
	case <-ctx.Done():
		h.ended <- struct{}{}
		return "", ctx.Err()
	case <-h.release:
		return "released", nil
	}
}

// testCancelledBefore verifies that a request is not sent if its context has already
// ended.
func testCancelledBefore(s *suite) {
	handled := 0
	one, two := s.Start(s.T, 0), s.startServing(1, func(context.Context, string) (string, error) { handled++; return "", nil })
	ctx, cancel := context.WithCancel(s.Context())
	cancel()
	for range 10 {
		if err := hello(ctx, one, two.Self().Peer); !errors.Is(err, context.Canceled) || errors.Is(err, peer.ErrUnreachable) {
			s.Errorf("error %v, want the error of the caller's context", err)
		}
	}
	if err := s.askHello(one, two.Self().Peer); err != nil || handled != 1 {
		s.Errorf("%d requests were handled (error: %v), want only the request that was not cancelled", handled, err)
	}
}

// testCancelled verifies that a cancelled request ends at once, for the caller and for
// the handler.
func testCancelled(s *suite) {
	h := newStuck()
	one, two := s.Start(s.T, 0), s.startServing(1, h.handle)
	ctx, cancel := context.WithCancel(s.Context())
	defer cancel()
	failed := make(chan error, 1)
	go func() { failed <- hello(ctx, one, two.Self().Peer) }()
	s.waitForToken(h.inside, "the request arrives")
	cancel()
	if err := <-failed; !errors.Is(err, context.Canceled) || errors.Is(err, peer.ErrUnreachable) {
		s.Errorf("error %v, want the error of the caller's context", err)
	}
	s.waitForToken(h.ended, "the handler learns that its caller has gone")
}

// testDeadline verifies that a request whose deadline passes is ErrUnreachable, and
// that its handler is cancelled.
func testDeadline(s *suite) {
	h := newStuck()
	one, two := s.Start(s.T, 0), s.startServing(1, h.handle)
	for limit := 100 * time.Millisecond; len(h.inside) == 0; limit *= 2 { // a deadline may pass before arrival
		ctx, cancel := context.WithTimeout(s.Context(), limit)
		err := hello(ctx, one, two.Self().Peer)
		cancel()
		s.wantUnreachable(err)
		if !errors.Is(err, context.DeadlineExceeded) {
			s.Fatalf("error %v, want context.DeadlineExceeded", err)
		}
	}
	s.waitForToken(h.ended, "the handler learns that its caller has gone")
}

// testHandleTimeout verifies that a caller without a deadline, and its handler, wait
// only for a limited time.
func testHandleTimeout(s *suite) {
	bounded := make(chan bool, 1)
	h := newStuck()
	one, two := s.Start(s.T, 0), s.startServing(1, func(ctx context.Context, said string) (string, error) {
		deadline, ok := ctx.Deadline()
		bounded <- ok && time.Until(deadline) <= s.limit
		return h.handle(ctx, said)
	})
	began := time.Now()
	if err := hello(s.Context(), one, two.Self().Peer); err == nil {
		s.Error("a request to a handler that never answers succeeds, want an error")
	}
	if took := time.Since(began); took < s.limit/2 || took > s.limit+patience {
		s.Errorf("the caller waited for %v, want about %v", took, s.limit)
	}
	if !<-bounded {
		s.Errorf("the handler's context has no deadline, want one within %v", s.limit)
	}
	s.waitForToken(h.ended, "the handler's time is over")
}

// testConcurrency verifies that each of many requests is handled once and gets its own
// answer.
func testConcurrency(s *suite) {
	const each = 20
	var handled [3]atomic.Int64
	var processes [3]Process
	for i := range processes {
		processes[i] = s.startServing(i, func(_ context.Context, said string) (string, error) {
			handled[i].Add(1)
			return fmt.Sprintf("%d answers %s", i, said), nil
		})
	}
	var asking sync.WaitGroup
	for from, p := range processes {
		for to, o := range processes {
			for n := range each {
				asking.Go(func() {
					text := fmt.Sprintf("%d%d%02d", from+1, to, n)
					if reply, err := s.ask(p, o.Self().Peer, text); err != nil || reply != fmt.Sprintf("%d answers %s", to, text) {
						s.Errorf("process %d asks process %d %s: %q, %v, want the answer to this question", from, to, text, reply, err)
					}
				})
			}
		}
	}
	asking.Wait()
	for i := range handled {
		if n := handled[i].Load(); n != 3*each {
			s.Errorf("process %d has handled %d requests, want %d", i, n, 3*each)
		}
	}
}

// maxConns is the maximum number of connections to a process: the default of
// peer.Config.
const maxConns = 4

// testStuckPeer verifies that a process that does not answer delays only requests to
// itself, and that the queue of these requests has a limit.
func testStuckPeer(s *suite) {
	h := newStuck()
	one, two, three := s.Start(s.T, 0), s.startServing(1, h.handle), s.startServing(2, echo)
	const over = 5
	answers, busy := make(chan error, maxConns+s.MaxWaiting), make(chan struct{}, over)
	for range maxConns + s.MaxWaiting + over {
		go func() {
			// The goroutine ends with the test if the test fails.
			err := hello(s.Context(), one, two.Self().Peer)
			if errors.Is(err, peer.ErrBusy) && errors.Is(err, peer.ErrUnreachable) {
				busy <- struct{}{}
				return
			}
			answers <- err
		}()
	}
	for range over {
		s.waitForToken(busy, "requests that are too many fail at once")
	}
	for range maxConns {
		s.waitForToken(h.inside, "the first requests arrive")
	}
	if err := s.askHello(one, three.Self().Peer); err != nil {
		s.Errorf("ask another process while all connections to the first are in use: %v, want an answer", err)
	}
	if more := len(h.inside); more > 0 {
		s.Errorf("%d requests are under way, want %d", maxConns+more, maxConns)
	}
	close(h.release)
	for range maxConns + s.MaxWaiting {
		if err := <-answers; err != nil {
			s.Errorf("a request that waited for a connection: %v, want an answer", err)
		}
	}
}

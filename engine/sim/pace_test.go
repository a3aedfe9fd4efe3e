package sim

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rowmill/rowmill/internal/must"
)

func TestFixedPaceTimes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFixed(LatencyProfile{TimeToFirstToken: 100 * time.Millisecond, TimePerToken: 10 * time.Millisecond, Slots: 1}, 100)
		began := time.Now()
		elapsed := func(want time.Duration) {
			t.Helper()
			if got := time.Since(began); got != want {
				t.Errorf("after %v, want %v", got, want)
			}
		}
		a := must.Get(f.Start(EngineRequest{PromptTokens: 10, OutputTokens: 11}))(t)
		b := must.Get(f.Start(EngineRequest{PromptTokens: 5}))(t)
		if l := f.Load(); l.Running != 1 || l.Waiting != 1 || l.KVUse != 0.21 || l.KVBlocks != 6 || l.Slots != 1 {
			t.Errorf("load %+v", l)
		}
		ready, err := a.Wait(t.Context(), 1)
		if ready != 1 || err != nil {
			t.Errorf("%d, %v", ready, err)
		}
		elapsed(100 * time.Millisecond)
		ready, err = a.Wait(t.Context(), 11)
		if ready != 11 || err != nil {
			t.Errorf("%d, %v", ready, err)
		}
		elapsed(200 * time.Millisecond)
		a.End()
		a.End()
		if _, err := b.Wait(t.Context(), 0); err != nil {
			t.Error(err)
		}
		elapsed(300 * time.Millisecond)
		b.End()
		if l := f.Load(); l.Running != 0 || l.Waiting != 0 || l.KVUse != 0 {
			t.Errorf("load %+v", l)
		}
	})
}

func TestFixedPaceCancelled(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFixed(LatencyProfile{TimeToFirstToken: time.Second, TimePerToken: time.Second, Slots: 1}, 100)
		runs := must.Get(f.Start(EngineRequest{OutputTokens: 100}))(t)
		waits := must.Get(f.Start(EngineRequest{OutputTokens: 100}))(t)
		ctx, cancel := context.WithTimeout(t.Context(), 5500*time.Millisecond)
		defer cancel()
		queued := make(chan error)
		go func() {
			_, err := waits.Wait(ctx, 1)
			waits.End()
			queued <- err
		}()
		ready, err := runs.Wait(ctx, 100)
		if ready != 5 || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%d tokens, %v", ready, err)
		}
		if err := <-queued; !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		runs.End()
		if l := f.Load(); l.Running != 0 || l.Waiting != 0 {
			t.Errorf("load %+v", l)
		}
	})
}

func TestFixedPaceQueueIsFair(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFixed(LatencyProfile{TimeToFirstToken: time.Second, Slots: 2, QueueLimit: 6}, 100)
		order := make(chan int, 8)
		for i := range 8 {
			run := must.Get(f.Start(EngineRequest{}))(t)
			go func() {
				defer run.End()
				_, _ = run.Wait(t.Context(), 0)
				order <- i / 2
			}()
			synctest.Wait()
		}
		if _, err := f.Start(EngineRequest{}); !errors.Is(err, ErrQueueFull) {
			t.Errorf("a full queue: %v", err)
		}
		for i := range 8 {
			if got := <-order; got != i/2 {
				t.Errorf("place %d went to wave %d", i, got)
			}
		}
	})
}

// steps is a LatencyModel of another kind, which remembers its calls.
type steps struct {
	mu      sync.Mutex
	started []EngineRequest
	prompt  string
}

func (s *steps) Start(w EngineRequest) (EngineRun, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.prompt = string(w.Prompt)
	s.started = append(s.started, w)
	return s, nil
}

func (s *steps) Load() EngineLoad {
	return EngineLoad{Running: 3, KVBlocks: 9, KVUse: 0.5, Preemptions: 2, Slots: 4}
}

func (s *steps) Wait(_ context.Context, n int) (int, error) { return n, nil }

func (s *steps) Usage() RunUsage { return RunUsage{CachedTokens: 5, Preempted: 1} }

func (s *steps) End() {}

func TestPaceGetsTheWork(t *testing.T) {
	t.Parallel()
	pace := &steps{}
	c := start(t, Config{})
	c.sim.pace = pace
	got := c.complete(body("plain", "hello"))
	if w := pace.started[0]; w.PromptTokens != got.Usage.Prompt || w.OutputTokens != got.Usage.Completion || pace.prompt != "user\x00hello\x00" {
		t.Errorf("work %+v of %q", w, pace.prompt)
	}
	if l := c.sim.Load(); l.Preemptions != 2 || l.Slots != 4 {
		t.Errorf("load %+v", l)
	}
}

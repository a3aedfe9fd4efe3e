package sim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rowmill/rowmill/engine/sim/batching"
)

// BatchingEngine is the LatencyModel of a continuously batching engine on a simulated GPU.
// Steps follow each other on the clock of package time without drift: a timer that is late
// delays answers but not the next step. Its only goroutine runs only while there are
// requests, so that an idle engine costs nothing, and inside a testing/synctest bubble
// everything happens in virtual time.
type BatchingEngine struct {
	origin time.Time
	stop   chan struct{} // closed by Close
	loops  sync.WaitGroup

	mu      sync.Mutex
	engine  *batching.Engine
	running bool // the goroutine runs
	closed  bool
	streams []*batchRun // the runs that wait for tokens one by one
}

var _ LatencyModel = (*BatchingEngine)(nil)

// NewBatchingEngine makes an idle engine.
func NewBatchingEngine(c batching.Config) (*BatchingEngine, error) {
	engine, err := batching.New(c)
	if err != nil {
		return nil, err
	}
	return &BatchingEngine{origin: time.Now(), stop: make(chan struct{}), engine: engine}, nil
}

// errPaceClosed is the error of requests that still run when the engine is closed.
var errPaceClosed = errors.New("the engine was closed")

// Start queues a request. It returns ErrTooLong if the request can never run.
func (b *BatchingEngine) Start(w EngineRequest) (EngineRun, error) {
	r := &batchRun{b: b, woken: make(chan struct{}, 1)}
	r.request = batching.Request{PromptTokens: w.PromptTokens, OutputTokens: w.OutputTokens, User: r}
	r.request.Prompt = blockHashes(w.Prompt, w.PromptTokens/batching.BlockTokens)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil, errPaceClosed
	}
	err := b.engine.Add(time.Since(b.origin), &r.request)
	switch {
	case errors.Is(err, batching.ErrQueueFull):
		return nil, ErrQueueFull
	case errors.Is(err, batching.ErrTooLong):
		return nil, fmt.Errorf("%w: %w", ErrTooLong, err)
	case err != nil:
		return nil, err
	}
	if !b.running {
		b.running = true
		b.loops.Add(1)
		go b.runSteps(time.Since(b.origin))
	}
	return r, nil
}

// Load returns how busy the engine was when its present step began. It reports no
// number of slots: a real server does not either.
func (b *BatchingEngine) Load() EngineLoad {
	b.mu.Lock()
	defer b.mu.Unlock()
	l := b.engine.Load()
	return EngineLoad{
		Running: int64(l.Running), Waiting: int64(l.Waiting), Preemptions: b.engine.Stats().Preemptions,
		KVUse: float64(l.KVUsed) / float64(l.KVBlocks), KVBlocks: int64(l.KVBlocks),
	}
}

// Stats returns the engine's counters since its start.
func (b *BatchingEngine) Stats() batching.Stats {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.engine.Stats()
}

// ClearPrefixCache empties the prefix cache, as a restart does.
func (b *BatchingEngine) ClearPrefixCache() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.engine.ClearPrefixCache()
}

// Close stops the engine, aborts its running requests, and returns once the
// engine has stopped. Calling it twice is harmless.
func (b *BatchingEngine) Close() {
	b.mu.Lock()
	if !b.closed {
		b.closed = true
		close(b.stop)
	}
	b.mu.Unlock()
	b.loops.Wait()
}

// runSteps runs steps until no requests are left. The first step begins at the time at.
func (b *BatchingEngine) runSteps(at time.Duration) {
	defer b.loops.Done()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		b.mu.Lock()
		took, finished := b.engine.Step(at)
		if took == 0 || b.closed {
			b.running = false
			b.mu.Unlock()
			return
		}
		b.mu.Unlock()
		at += took
		if !b.sleep(timer, at) {
			return
		}
		b.deliver(finished)
	}
}

// sleep waits until a time on the engine's clock; it returns at once if this
// time has passed. It returns false if the engine was closed during the wait.
func (b *BatchingEngine) sleep(timer *time.Timer, until time.Duration) bool {
	wait := until - time.Since(b.origin)
	if wait <= 0 {
		return true
	}
	timer.Reset(wait)
	select {
	case <-timer.C:
		return true
	case <-b.stop:
		return false
	}
}

// deliver wakes the runs that got tokens in the last step. Only the loop calls Step, so
// finished is still valid.
func (b *BatchingEngine) deliver(finished []*batching.Request) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, request := range finished {
		r := request.User.(*batchRun)
		r.over.Store(true)
		r.wake()
	}
	for _, r := range b.streams {
		if ready := b.engine.GeneratedTokens(&r.request); ready > r.ready {
			r.ready = ready
			r.wake()
		}
	}
}

// batchRun is one request in a BatchingEngine. b.mu guards its fields until the request is
// over. After that only the caller uses them, so that a usual request locks b.mu only once.
type batchRun struct {
	b       *BatchingEngine
	request batching.Request
	woken   chan struct{} // capacity 1, so that a wake-up is not lost
	over    atomic.Bool   // the request has finished, and its last step has ended
	ready   int           // tokens at the end of the last step, if the run is in b.streams
	streams bool          // the run is in b.streams; only the caller of the run changes it
}

func (r *batchRun) wake() {
	select {
	case r.woken <- struct{}{}:
	default:
	}
}

// Wait blocks until n tokens are ready.
func (r *batchRun) Wait(ctx context.Context, n int) (int, error) {
	n = max(n, 1)
	for {
		switch {
		case r.over.Load():
			return r.request.OutputTokens, nil
		case n < r.request.OutputTokens:
			if ready := r.startStreaming(); ready >= n {
				return ready, nil
			}
		}
		select {
		case <-r.woken:
		case <-ctx.Done():
			r.b.mu.Lock()
			defer r.b.mu.Unlock()
			return r.b.engine.GeneratedTokens(&r.request), ctx.Err()
		case <-r.b.stop:
			return 0, errPaceClosed
		}
	}
}

// startStreaming returns how many tokens are ready. From now on deliver wakes the run for each
// further token.
func (r *batchRun) startStreaming() (ready int) {
	r.b.mu.Lock()
	defer r.b.mu.Unlock()
	if !r.streams {
		r.streams = true
		r.b.streams = append(r.b.streams, r)
	}
	return r.ready
}

// Usage returns the cached tokens and the preemptions so far.
func (r *batchRun) Usage() RunUsage {
	if !r.over.Load() {
		r.b.mu.Lock()
		defer r.b.mu.Unlock()
	}
	return RunUsage{CachedTokens: r.request.CachedTokens, Preempted: r.request.Preempted}
}

// End removes the request from the engine.
func (r *batchRun) End() {
	if r.over.Load() && !r.streams {
		return
	}
	r.b.mu.Lock()
	defer r.b.mu.Unlock()
	r.b.engine.Remove(&r.request)
	if r.streams {
		r.streams = false
		at := slices.Index(r.b.streams, r)
		r.b.streams = slices.Delete(r.b.streams, at, at+1)
	}
}

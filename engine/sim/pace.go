package sim

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/rowmill/rowmill/engine/sim/batching"
)

// LatencyModel decides when the tokens of a request are ready: after fixed latencies
// (fixedLatency), or by a model of a real engine's steps (BatchingEngine). It knows nothing
// of HTTP or text, reads the clock only through package time, and is safe for concurrent
// use.
type LatencyModel interface {
	// Start queues a request. It returns ErrQueueFull if no more requests may wait, and
	// ErrTooLong if the request can never run. The caller must End the run.
	Start(w EngineRequest) (EngineRun, error)

	// Load returns how busy the engine is now.
	Load() EngineLoad
}

// EngineRequest is what a LatencyModel needs to know of a request: the prompt, and the
// numbers of input and output tokens.
type EngineRequest struct {
	Prompt       []byte // the text of all messages in order, to find common prefixes; valid until End
	PromptTokens int
	OutputTokens int // 0 for an embedding
}

// EngineRun is one request in the engine. It is used by one goroutine.
type EngineRun interface {
	// Wait blocks until n output tokens are ready (if n is 0: until the prompt is done),
	// and returns the number of ready tokens: n or more. If the context ends first, Wait
	// returns the number of tokens that are ready, and the context's error.
	Wait(ctx context.Context, n int) (ready int, err error)

	// Usage returns the request's cached tokens and preemptions so far. It must not be
	// called after End.
	Usage() RunUsage

	// End releases the request's slot or its place in the queue. Calling End twice is
	// harmless.
	End()
}

// RunUsage counts the cached tokens and the preemptions of a request.
type RunUsage struct {
	CachedTokens int // prompt tokens found in the prefix cache
	Preempted    int // how often the request lost its place in the batch and was computed again
}

// EngineLoad is how busy an engine is.
type EngineLoad struct {
	Running     int64   // requests in the batch
	Waiting     int64   // requests in the queue
	KVUse       float64 // share of the KV cache in use, 0 to 1
	Preemptions int64   // since the start
	Slots       int     // requests that can run at once; 0 if the server does not report it
	KVBlocks    int64   // KV cache in blocks of batching.BlockTokens tokens
}

// Errors of LatencyModel.Start.
var (
	ErrQueueFull = errors.New("the request queue is full")
	ErrTooLong   = errors.New("prompt and answer do not fit into the memory of the simulated GPU")
)

// streamStep is the shortest time between two pieces of a stream. Real servers deliver
// a token in each step of 10 ms or more; more frequent wake-ups would only cost CPU
// time.
const streamStep = 10 * time.Millisecond

// fixedLatency is the LatencyModel of a LatencyProfile: the time of a request does not
// depend on how many requests run. Its KV cache holds a whole context in every slot, so
// that the cache never limits the number of requests.
type fixedLatency struct {
	profile  LatencyProfile
	capacity int64 // size of the KV cache in tokens
	slots    chan struct{}
	waiting  atomic.Int64
	tokens   atomic.Int64 // KV tokens of running requests
}

// newFixed makes the LatencyModel of a LatencyProfile. context is the largest context of
// all models, in tokens.
func newFixed(p LatencyProfile, context int) *fixedLatency {
	return &fixedLatency{
		profile:  p,
		capacity: int64(p.Slots) * int64(context),
		slots:    make(chan struct{}, p.Slots),
	}
}

// Start queues a request.
func (f *fixedLatency) Start(w EngineRequest) (EngineRun, error) {
	r := &fixedRun{f: f, work: w}
	select {
	case f.slots <- struct{}{}:
		r.admit()
		return r, nil
	default:
	}
	if waiting := f.waiting.Add(1); f.profile.QueueLimit > 0 && waiting > int64(f.profile.QueueLimit) {
		f.waiting.Add(-1)
		return nil, ErrQueueFull
	}
	r.state = inQueue
	return r, nil
}

// Load returns the numbers of running and waiting requests, and the use of the KV cache.
func (f *fixedLatency) Load() EngineLoad {
	return EngineLoad{
		Running:  int64(len(f.slots)),
		Waiting:  f.waiting.Load(),
		KVUse:    min(float64(f.tokens.Load())/float64(f.capacity), 1),
		Slots:    f.profile.Slots,
		KVBlocks: f.capacity / batching.BlockTokens,
	}
}

type runState uint8

const (
	ended runState = iota
	inQueue
	running
)

type fixedRun struct {
	f     *fixedLatency
	work  EngineRequest
	state runState
	began time.Time // time at which the request got its slot
	ready int
}

func (r *fixedRun) admit() {
	r.state = running
	r.began = time.Now()
	r.f.tokens.Add(int64(r.work.PromptTokens + r.work.OutputTokens))
}

// Wait blocks until n tokens are ready.
func (r *fixedRun) Wait(ctx context.Context, n int) (int, error) {
	if r.state == inQueue {
		select {
		case r.f.slots <- struct{}{}:
			r.f.waiting.Add(-1)
			r.admit()
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
	p := &r.f.profile
	if p.TimeToFirstToken == 0 && p.TimePerToken == 0 {
		r.ready = r.work.OutputTokens
		return r.ready, nil
	}
	if n <= r.ready && n > 0 {
		return r.ready, nil
	}
	due := r.began.Add(p.TimeToFirstToken + time.Duration(max(n-1, 0))*p.TimePerToken)
	if r.ready > 0 { // in a stream: wait at least streamStep, unless all tokens are ready earlier
		step := time.Now().Add(streamStep)
		last := r.began.Add(p.TimeToFirstToken + time.Duration(r.work.OutputTokens-1)*p.TimePerToken)
		if last.Before(step) {
			step = last
		}
		if due.Before(step) {
			due = step
		}
	}
	timer := time.NewTimer(time.Until(due))
	defer timer.Stop()
	select {
	case <-timer.C:
		r.ready = max(n, r.readyTokens())
		return r.ready, nil
	case <-ctx.Done():
		r.ready = max(r.ready, r.readyTokens())
		return r.ready, ctx.Err()
	}
}

// readyTokens returns how many tokens are ready after the elapsed time.
func (r *fixedRun) readyTokens() int {
	p := &r.f.profile
	since := time.Since(r.began) - p.TimeToFirstToken
	if since < 0 {
		return 0
	}
	if p.TimePerToken == 0 {
		return r.work.OutputTokens
	}
	return int(min(int64(since/p.TimePerToken)+1, int64(r.work.OutputTokens)))
}

// Usage returns zeros: there is no prefix cache and no preemption.
func (r *fixedRun) Usage() RunUsage { return RunUsage{} }

// End releases the request's slot or its place in the queue.
func (r *fixedRun) End() {
	switch r.state {
	case inQueue:
		r.f.waiting.Add(-1)
	case running:
		r.f.tokens.Add(-int64(r.work.PromptTokens + r.work.OutputTokens))
		<-r.f.slots
	}
	r.state = ended
}

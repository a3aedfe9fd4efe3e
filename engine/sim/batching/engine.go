package batching

import (
	"container/heap"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Bounds and default of Config.MaxSeqs.
const (
	DefaultMaxSeqs = 256  // vLLM's max_num_seqs on most GPUs
	LargestMaxSeqs = 1024 // vLLM's default on the largest GPUs
)

// Config holds the settings of one engine.
type Config struct {
	Profile GPUProfile

	// MaxSeqs is the largest number of requests in the batch. Default 256.
	MaxSeqs int

	// QueueLimit is how many requests may be in the engine beyond MaxSeqs; Add
	// refuses more. 0, the default, lets any number of requests wait, as vLLM does.
	QueueLimit int

	// Seed changes the jitter of the step times.
	Seed int64

	// NoJitter makes every step take exactly Profile.StepTime.
	NoJitter bool
}

// WithDefaults returns c with a default in every unset field.
func (c Config) WithDefaults() Config {
	if c.MaxSeqs == 0 {
		c.MaxSeqs = DefaultMaxSeqs
	}
	return c
}

// Validate returns an error that names the first invalid setting.
func (c Config) Validate() error {
	switch {
	case c.MaxSeqs < 1 || c.MaxSeqs > LargestMaxSeqs:
		return fmt.Errorf("setting MaxSeqs is %d: it must be between 1 and %d", c.MaxSeqs, LargestMaxSeqs)
	case c.QueueLimit < 0:
		return fmt.Errorf("setting QueueLimit is %d: use 0 for no limit", c.QueueLimit)
	case c.MaxSeqs > c.Profile.MaxBatchedTokens:
		return fmt.Errorf("setting MaxSeqs is %d: a step has room for %d tokens", c.MaxSeqs, c.Profile.MaxBatchedTokens)
	}
	if err := c.Profile.Validate(); err != nil {
		return fmt.Errorf("setting Profile %q: %w", c.Profile.Name, err)
	}
	return nil
}

// Errors of Add.
var (
	ErrQueueFull = errors.New("the request queue is full")
	ErrTooLong   = errors.New("the request does not fit into the KV cache")
)

// Engine is a continuously batching engine as a discrete-event simulation. It has no
// clock: the caller passes the time, on any clock that does not go back, and calls Step
// again when the last step is over. Engine is not safe for concurrent use.
type Engine struct {
	cfg  Config
	cost stepTimeModel
	kv   blockCache

	front, waiting requestQueue
	running        requestQueue  // the batch, in the order of admission
	prefill        *Request      // the first request in running that does not decode yet; the requests behind it do not decode either
	decode         decodeHeap    // the decoding requests in running
	phases         blockSchedule // the decoding requests by the step in which they need a block
	frontFree      time.Duration // when the front end will have finished all requests in front

	step     int64  // index of the next step
	serial   uint64 // number of admissions so far
	context  int64  // tokens in the KV cache of all decoding requests
	finished []*Request
	load     Load
	stats    Stats
}

// blockSchedule has the decoding requests by the step in which they need another block: entry
// i is for the steps BlockTokens·k + i, for every k.
type blockSchedule [BlockTokens][]*Request

func (p *blockSchedule) add(i int64, r *Request) {
	column := &p[i&(BlockTokens-1)]
	r.phaseIndex = len(*column)
	*column = append(*column, r)
}

func (p *blockSchedule) remove(i int64, r *Request) {
	column := &p[i&(BlockTokens-1)]
	end := len(*column) - 1
	moved := (*column)[end]
	(*column)[r.phaseIndex] = moved
	moved.phaseIndex = r.phaseIndex
	(*column)[end] = nil
	*column = (*column)[:end]
}

// Load is how busy an engine was when its last step began.
type Load struct {
	Running  int // requests in the batch
	Waiting  int // requests in the scheduler's queue
	FrontEnd int // requests in the front end, before the scheduler's queue
	KVUsed   int // blocks in use by running requests
	KVBlocks int // all blocks
}

// Stats count what an engine has done since it was made.
type Stats struct {
	Steps       int64
	Finished    int64         // number of finished requests
	Computed    int64         // prompt tokens, including the tokens that were computed again after a preemption
	Cached      int64         // prompt tokens found in the cache instead
	Generated   int64         // output tokens
	Preemptions int64         // how often a request lost its blocks
	Busy        time.Duration // sum of the step times
}

// New makes an engine.
func New(c Config) (*Engine, error) {
	c = c.WithDefaults()
	if err := c.Validate(); err != nil {
		return nil, fmt.Errorf("batching engine: %w", err)
	}
	e := &Engine{cfg: c, cost: c.Profile.newStepTimeModel(), kv: newBlockCache(c.Profile.KVBlocks())}
	e.load.KVBlocks = len(e.kv.all)
	return e, nil
}

// Load returns how busy the engine was when its last step began.
func (e *Engine) Load() Load { return e.load }

// Stats returns the counters.
func (e *Engine) Stats() Stats { return e.stats }

// Add gives the engine a request at the time now. After ErrQueueFull the caller
// can try again later. After ErrTooLong a retry is useless.
func (e *Engine) Add(now time.Duration, r *Request) error {
	switch {
	case r.stage != outside:
		return errors.New("add request: the request is in an engine already")
	case r.PromptTokens < 1 || r.OutputTokens < 0 || len(r.Prompt) > r.PromptTokens/BlockTokens:
		return fmt.Errorf("add request: the request is not valid: %d prompt tokens, hashes of %d blocks, %d output tokens",
			r.PromptTokens, len(r.Prompt), r.OutputTokens)
	case e.cfg.QueueLimit > 0 && e.front.n+e.waiting.n+e.running.n >= e.cfg.MaxSeqs+e.cfg.QueueLimit:
		return ErrQueueFull
	}
	need := blocksForTokens(r.PromptTokens + max(r.OutputTokens-1, 0)) // no step reads the last output token, so it needs no room
	if need > len(e.kv.all) {
		return fmt.Errorf("%w: %d prompt and %d output tokens need %d of %d blocks",
			ErrTooLong, r.PromptTokens, r.OutputTokens, need, len(e.kv.all))
	}
	e.frontFree = max(now, e.frontFree) + e.cfg.Profile.FrontEnd
	*r = Request{
		Prompt: r.Prompt, PromptTokens: r.PromptTokens, OutputTokens: r.OutputTokens, User: r.User,
		stage: inFrontEnd, ready: e.frontFree, target: r.PromptTokens, blocks: slices.Grow(r.blocks[:0], need),
	}
	e.front.pushBack(r)
	return nil
}

func blocksForTokens(tokens int) int { return (tokens + BlockTokens - 1) / BlockTokens }

// Remove takes a request out of the engine, in any stage. The request may have
// finished.
func (e *Engine) Remove(r *Request) {
	switch r.stage {
	case inFrontEnd:
		e.front.remove(r)
	case waiting:
		e.waiting.remove(r)
	case prefilling, decoding:
		e.removeFromBatch(r)
	}
	r.stage = outside
}

// ClearPrefixCache empties the prefix cache. Running requests keep their blocks, which other
// requests no longer find.
func (e *Engine) ClearPrefixCache() { e.kv.clearHashTable() }

// GeneratedTokens returns the number of output tokens of a request, including the tokens of
// the current step. It also works after the request has left the engine.
func (e *Engine) GeneratedTokens(r *Request) int {
	if r.stage == decoding {
		return r.generated + int(e.step-r.since)
	}
	return r.generated
}

// Step runs one step that begins now, and returns how long the step takes. The requests
// in finished are complete when the step is over; the slice is valid until the next
// Step. Requests may be added and removed until then; the next step includes them.
//
// If all requests are in the front end, a step only takes the time until the first
// request is ready. took is 0 if there are no requests.
func (e *Engine) Step(now time.Duration) (took time.Duration, finished []*Request) {
	e.finished = e.finished[:0]
	for r := e.front.first; r != nil && r.ready <= now; r = e.front.first {
		e.front.remove(r)
		r.stage = waiting
		e.waiting.pushBack(r)
	}
	preempted := e.growContexts()
	batch := e.schedule(!preempted)
	e.load = Load{
		Running: e.running.n, Waiting: e.waiting.n, FrontEnd: e.front.n,
		KVUsed: len(e.kv.all) - e.kv.free, KVBlocks: len(e.kv.all),
	}
	if e.running.n == 0 {
		if e.front.first == nil {
			return 0, nil
		}
		return e.front.first.ready - now, nil
	}
	factor := 1.0
	if !e.cfg.NoJitter {
		factor = jitterOf(e.cfg.Seed, e.step)
	}
	took = max(durationFromSeconds(e.cost.stepSeconds(batch)*factor), 1)
	e.stats.Steps++
	e.stats.Computed += int64(batch.Prefill)
	e.stats.Generated += int64(batch.Decoding)
	e.stats.Busy += took
	e.completeStep(now + took)
	return took, e.finished
}

// growContexts gives a block to each decoding request that needs one in this
// step, and reports whether it preempted requests for that. It preempts the
// request that was admitted last; its prompt and tokens are computed again
// later. At least one request always continues, because Add refuses a request
// that does not fit alone.
func (e *Engine) growContexts() (preempted bool) {
	column := e.step & (BlockTokens - 1)
	for len(e.phases[column]) > e.kv.free {
		r := e.running.last
		e.removeFromBatch(r)
		r.stage, r.target = waiting, r.PromptTokens+r.generated
		r.Preempted++
		e.waiting.pushFront(r)
		e.stats.Preemptions++
		preempted = true
	}
	for _, r := range e.phases[column] {
		r.blocks = append(r.blocks, e.kv.takeFreeBlock())
	}
	return preempted
}

// schedule composes the batch: all decoding requests, and then prompts in chunks, in the
// order of arrival, with the remaining tokens of the step.
func (e *Engine) schedule(admit bool) StepWork {
	batch := StepWork{Decoding: len(e.decode), Context: e.context + int64(len(e.decode))}
	room := e.cfg.Profile.MaxBatchedTokens - batch.Decoding
	compute := func(r *Request) {
		r.chunk = min(room, r.target-r.computed)
		room -= r.chunk
		batch.Prefill += r.chunk
		batch.Attention += float64(r.chunk) * (float64(r.computed) + float64(r.chunk)/2)
		batch.Context += int64(r.computed)
	}
	for r := e.prefill; r != nil && room > 0; r = r.next {
		compute(r)
	}
	for admit && room > 0 && e.running.n < e.cfg.MaxSeqs && e.waiting.n > 0 && e.tryAdmit(e.waiting.first) {
		compute(e.running.last)
	}
	return batch
}

// tryAdmit moves the first waiting request into the batch if there are blocks for
// all of its prompt. The last token is always computed: it gives the first
// token of the output.
func (e *Engine) tryAdmit(r *Request) bool {
	cached, free := e.kv.countCached(r.Prompt, (r.target-1)/BlockTokens)
	need := blocksForTokens(r.target)
	if need-cached > e.kv.free-free {
		return false
	}
	e.waiting.remove(r)
	for _, hash := range r.Prompt[:cached] {
		r.blocks = append(r.blocks, e.kv.addReference(hash))
	}
	for range need - cached {
		r.blocks = append(r.blocks, e.kv.takeFreeBlock())
	}
	e.serial++
	r.stage, r.serial, r.published = prefilling, e.serial, cached
	r.computed = cached * BlockTokens
	if r.Preempted == 0 {
		r.CachedTokens = r.computed
	}
	e.stats.Cached += int64(r.computed)
	e.running.pushBack(r)
	if e.prefill == nil {
		e.prefill = r
	}
	return true
}

// completeStep updates all requests to the end of the step: it ends prefills and finishes
// requests.
func (e *Engine) completeStep(end time.Duration) {
	step := e.step
	e.step++
	e.context += int64(len(e.decode))
	for len(e.decode) > 0 && e.decode[0].last == step {
		e.finish(e.decode[0], end)
	}
	for r := e.prefill; r != nil && r.chunk > 0; r = e.prefill {
		r.computed += r.chunk
		r.chunk = 0
		e.publish(r)
		if r.computed < r.target {
			break
		}
		e.prefill = r.next
		e.endPrefill(r, end)
	}
}

// endPrefill ends the prefill of a request. The end of a prefill gives one output token.
func (e *Engine) endPrefill(r *Request, end time.Duration) {
	if r.FirstToken == 0 {
		r.FirstToken = end
	}
	if r.OutputTokens > 0 {
		r.generated++
		e.stats.Generated++
	}
	if r.generated == r.OutputTokens {
		e.finish(r, end)
		return
	}
	r.stage, r.since = decoding, e.step
	r.last = e.step + int64(r.OutputTokens-r.generated) - 1
	heap.Push(&e.decode, r)
	e.phases.add(e.step-int64(r.computed), r)
	e.context += int64(r.computed)
}

// publish makes the complete blocks of r's prompt available to other requests in the
// prefix cache.
func (e *Engine) publish(r *Request) {
	for full := min(r.computed/BlockTokens, len(r.Prompt)); r.published < full; r.published++ {
		e.kv.publish(r.blocks[r.published], r.Prompt[r.published])
	}
}

func (e *Engine) finish(r *Request, end time.Duration) {
	e.removeFromBatch(r)
	r.stage, r.Finished = outside, end
	e.stats.Finished++
	e.finished = append(e.finished, r)
}

// removeFromBatch removes a request from the batch. It frees the request's blocks from the last
// to the first, so that the beginning of the prompt stays in the cache longest.
func (e *Engine) removeFromBatch(r *Request) {
	if r.stage == decoding {
		heap.Remove(&e.decode, r.heapIndex)
		e.phases.remove(r.since-int64(r.computed), r)
		made := int(e.step - r.since)
		e.context -= int64(r.computed + made)
		r.generated += made
	}
	if e.prefill == r {
		e.prefill = r.next
	}
	e.running.remove(r)
	for i := len(r.blocks) - 1; i >= 0; i-- {
		e.kv.releaseReference(r.blocks[i])
	}
	r.blocks = r.blocks[:0]
	r.computed = 0
}

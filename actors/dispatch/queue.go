package dispatch

import (
	"context"
	"slices"
	"sync/atomic"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/engine"
	"github.com/rowmill/rowmill/internal/tracing"
	"github.com/rowmill/rowmill/tokenize/prompt"
)

// A Job is what the rows of a job have in common. It does not change.
type Job struct {
	Ctx           context.Context // ends with the job's run on this node
	Spec          *rowmill.Spec
	Classifier    *Classifier
	Counter       *prompt.Counter
	ContextLength int          // tokens; 0 when nobody says
	MaxTokens     int          // of an answer; 0 when nobody says
	PromptLimit   int          // tokens a prompt may have; 0 for no limit
	Group         int          // texts in one request to embed
	Trace         *tracing.Job // nil for none
}

// A Queue is the way of one job's rows through one server.
type Queue struct {
	job      Job
	route    engine.Route
	account  string
	priority rowmill.Priority
	group    int // rows in a request
	disp     *Dispatcher
	call     engine.Call
	ask      func(context.Context, string) (int, error) // how many tokens a prompt has; nil where the server cannot say
	mute     atomic.Bool                                // it turned out that it cannot
	cuts     atomic.Bool                                // and that it cuts prompts without a word
	seen     atomic.Int64                               // answers
	repaired atomic.Bool                                // JSON was taken out of some of them
	limit    atomic.Int64                               // tokens a prompt may have, where only a refusal told; 0 before
	out      *Outbox
	waiting  []*Task // owned by the dispatcher

	suspects atomic.Int64 // rows that wait for their trial

	left atomic.Int64 // of waiting
	full atomic.Int64 // what left was when rows came last
}

// low reports whether the server is about to run out of rows of the job.
func (q *Queue) low() bool { return 2*q.left.Load() <= q.full.Load() }

// set makes tasks what waits.
func (q *Queue) set(tasks []*Task) {
	q.waiting = tasks
	q.left.Store(int64(len(tasks)))
}

// Open makes a queue for a job's rows, whose tasks come back through out. An
// error is what the server cannot honour.
func (d *Dispatcher) Open(job Job, server engine.Engine, out *Outbox) (*Queue, error) {
	spec := job.Spec
	embeds := spec.Model.Kind == rowmill.KindEmbedding
	var path string
	if spec.Raw != nil {
		path = spec.Raw.Path
	}
	call, err := server.Prepare(engine.Params{
		Path: path, Model: spec.Model, System: spec.System, Schema: spec.Schema, Sampling: spec.Sampling,
		Logprobs: spec.WantsLogprobs(), RowSeeds: spec.SeedPerRow,
		ContextLen: job.ContextLength, MaxTokens: job.MaxTokens,
	})
	if err != nil {
		return nil, err
	}
	q := &Queue{job: job, route: engine.RouteOf(spec), account: spec.Account, priority: spec.Priority.Nearest(), group: 1, disp: d, call: call, ask: countOn(call, job), out: out}
	if embeds {
		q.group = job.Group
	}
	return q, nil
}

// promptLimit is how many tokens a prompt may have; 0 for no limit that is known.
func (q *Queue) promptLimit() int {
	if q.job.PromptLimit > 0 {
		return q.job.PromptLimit
	}
	return int(q.limit.Load())
}

// Put hands rows to the server.
func (q *Queue) Put(tasks []*Task) { q.disp.put(q, tasks) }

// Withdraw takes back what waits. What the server has comes through the outbox.
func (q *Queue) Withdraw() []*Task { return q.disp.withdraw(q) }

// Waiting is how many of the job's rows the server has not begun.
func (q *Queue) Waiting() int {
	q.disp.mu.Lock()
	defer q.disp.mu.Unlock()
	return len(q.waiting) + int(q.suspects.Load())
}

// Demand is how many of the job's rows the server should have, in flight and
// waiting here.
func (q *Queue) Demand() int {
	want := q.disp.demand(q)
	if q.group > 1 {
		want = max(want, 4*q.group)
	}
	return want + int(q.suspects.Load())
}

// Group is how many rows go into one request.
func (q *Queue) Group() int { return q.group }

// CacheTokens is the size of the server's KV cache; 0 when unknown.
func (q *Queue) CacheTokens() int64 { return q.disp.cacheTokens() }

// Warnings lists parameters that the server cannot honour or changes, and the pace
// that it is held to.
func (q *Queue) Warnings() []string {
	all := q.call.Warnings()
	if paced := q.disp.pace.warning(q.disp.cfg.Engine); paced != "" {
		all = append(slices.Clone(all), paced)
	}
	if q.repaired.Load() {
		all = append(slices.Clone(all), "repair: JSON was taken out of the words around it in some answers; the attempt_log of such a row has the code repaired")
	}
	return all
}

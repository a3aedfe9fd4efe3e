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

// A Job has the data that all rows of a job share on this node. It never changes.
type Job struct {
	Ctx           context.Context // ends when the job stops on this node
	Spec          *rowmill.Spec
	Classifier    *Classifier
	Counter       *prompt.Counter
	ContextLength int               // context length of the model in tokens; 0 if unknown
	MaxTokens     int               // maximum tokens of an answer; 0 if unknown
	PromptLimit   int               // maximum tokens of a prompt; 0 for no limit
	Group         int               // number of texts in one request for embeddings
	Trace         *tracing.JobTrace // trace of the job; nil if the job is not traced
}

// A Queue has the rows of one job that wait for one server, and sends them when the
// Dispatcher picks them.
type Queue struct {
	job      Job
	route    engine.Route
	account  string
	priority rowmill.Priority
	group    int // number of rows in a request
	disp     *Dispatcher
	call     engine.PreparedCall
	// countPrompt asks the server for the number of tokens of a prompt; nil if the server
	// cannot count.
	countPrompt func(context.Context, string) (int, error)
	cannotCount atomic.Bool  // the server has answered that it cannot count
	cutsPrompts atomic.Bool  // the server cuts long prompts without an error
	answers     atomic.Int64 // number of accepted answers
	repaired    atomic.Bool  // JSON was taken out of other text in some answers
	limit       atomic.Int64 // maximum tokens of a prompt, learned from a refusal; 0 before
	out         *Completions
	waiting     []*RowTask // tasks that wait to be sent; guarded by Dispatcher.mu

	suspects atomic.Int64 // number of rows that wait for a trial (see suspectTrial)

	lengthAfterPut int // length of waiting when the worker last added rows; guarded by Dispatcher.mu
}

// low reports whether at most half of the rows that the worker last left here still
// wait.
func (q *Queue) low() bool { return 2*len(q.waiting) <= q.lengthAfterPut }

// Open returns a queue for the rows of a job on the given server. Tasks come back to
// the worker through out. The error says what the server does not support.
func (d *Dispatcher) Open(job Job, server engine.Engine, out *Completions) (*Queue, error) {
	spec := job.Spec
	embeds := spec.Model.Kind == rowmill.KindEmbedding
	var path string
	if spec.Raw != nil {
		path = spec.Raw.Path
	}
	call, err := server.Prepare(engine.JobParams{
		Path: path, Model: spec.Model, System: spec.System, Schema: spec.Schema, Sampling: spec.Sampling,
		Logprobs: spec.WantsLogprobs(), RowSeeds: spec.SeedPerRow, Messages: spec.Messages,
		ContextLen: job.ContextLength, MaxTokens: job.MaxTokens,
	})
	if err != nil {
		return nil, err
	}
	q := &Queue{job: job, route: engine.RouteOf(spec), account: spec.Account, priority: spec.Priority.ClampToKnown(), group: 1, disp: d, call: call, countPrompt: newPromptCounter(call, job), out: out}
	if embeds {
		q.group = job.Group
	}
	return q, nil
}

// promptLimit returns the maximum tokens of a prompt; 0 if no limit is known.
func (q *Queue) promptLimit() int {
	if q.job.PromptLimit > 0 {
		return q.job.PromptLimit
	}
	return int(q.limit.Load())
}

// Put adds rows to the end of the queue.
func (q *Queue) Put(tasks []*RowTask) { q.disp.put(q, tasks) }

// Withdraw removes and returns the waiting rows. Rows in flight come back through the
// completions.
func (q *Queue) Withdraw() []*RowTask { return q.disp.withdraw(q) }

// Waiting returns the number of the job's rows in the queue that are not in flight.
func (q *Queue) Waiting() int {
	q.disp.mu.Lock()
	defer q.disp.mu.Unlock()
	return len(q.waiting) + int(q.suspects.Load())
}

// Demand returns how many rows of the job should be in flight at the server or waiting
// in the queue.
func (q *Queue) Demand() int {
	want := q.disp.demand(q)
	if q.group > 1 {
		want = max(want, 4*q.group)
	}
	return want + int(q.suspects.Load())
}

// RowsPerRequest returns the number of rows in a request.
func (q *Queue) RowsPerRequest() int { return q.group }

// CacheTokens returns the size of the server's KV cache in tokens; 0 if unknown.
func (q *Queue) CacheTokens() int64 { return q.disp.cacheTokens() }

// Warnings returns messages for the job: parameters that the server changes or does not
// support, limits per minute, and repaired answers.
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

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

// A Job has the data that all rows of a job share. It does not change.
type Job struct {
	Ctx           context.Context // ends when the job stops on this node
	Spec          *rowmill.Spec
	Classifier    *Classifier
	Counter       *prompt.Counter
	ContextLength int          // tokens; 0 if unknown
	MaxTokens     int          // of an answer; 0 if unknown
	PromptLimit   int          // maximum tokens of a prompt; 0 for no limit
	Group         int          // texts in a request for embeddings
	Trace         *tracing.Job // nil for none
}

// A Queue holds a job's rows for one server, and sends them.
type Queue struct {
	job         Job
	route       engine.Route
	account     string
	priority    rowmill.Priority
	group       int // rows in a request
	disp        *Dispatcher
	call        engine.Call
	countPrompt func(context.Context, string) (int, error) // returns the number of tokens of a prompt; nil if the server cannot count
	cannotCount atomic.Bool                                // the server turned out not to count
	cutsPrompts atomic.Bool                                // the server cuts prompts without a message
	answers     atomic.Int64                               // number of answers
	repaired    atomic.Bool                                // the JSON of some answers was taken out of other text
	limit       atomic.Int64                               // maximum tokens of a prompt, learned from a refusal; 0 before
	out         *Completions
	waiting     []*Task // owned by the dispatcher

	suspects atomic.Int64 // number of rows that wait for their trial

	full int // length of waiting when the worker last added rows; owned by the dispatcher
}

// low reports whether the queue is about to run out of rows.
func (q *Queue) low() bool { return 2*len(q.waiting) <= q.full }

// Open opens a queue for the rows of a job. The tasks of these rows come back through
// out. The error says what the server does not support.
func (d *Dispatcher) Open(job Job, server engine.Engine, out *Completions) (*Queue, error) {
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
	q := &Queue{job: job, route: engine.RouteOf(spec), account: spec.Account, priority: spec.Priority.Nearest(), group: 1, disp: d, call: call, countPrompt: countOn(call, job), out: out}
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

// Put adds rows to the queue.
func (q *Queue) Put(tasks []*Task) { q.disp.put(q, tasks) }

// Withdraw takes back the waiting rows. Rows at the server come back through the completions.
func (q *Queue) Withdraw() []*Task { return q.disp.withdraw(q) }

// Waiting returns the number of the job's rows that the server has not started.
func (q *Queue) Waiting() int {
	q.disp.mu.Lock()
	defer q.disp.mu.Unlock()
	return len(q.waiting) + int(q.suspects.Load())
}

// Demand returns how many rows of the job should be at the server, in flight and
// waiting.
func (q *Queue) Demand() int {
	want := q.disp.demand(q)
	if q.group > 1 {
		want = max(want, 4*q.group)
	}
	return want + int(q.suspects.Load())
}

// Group returns the number of rows in a request.
func (q *Queue) Group() int { return q.group }

// CacheTokens returns the size of the server's KV cache in tokens; 0 if unknown.
func (q *Queue) CacheTokens() int64 { return q.disp.cacheTokens() }

// Warnings lists the parameters that the server does not support or changes, and the
// limits on its requests.
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

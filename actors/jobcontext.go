package actors

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/actors/dispatch"
	"github.com/rowmill/rowmill/internal/shard"
	"github.com/rowmill/rowmill/internal/tracing"
	"github.com/rowmill/rowmill/results"
	"github.com/rowmill/rowmill/store"
	"github.com/rowmill/rowmill/tokenize/prompt"
)

// A jobContext holds the data of a job that the job's actors on this node share. It
// does not change after the first row starts.
type jobContext struct {
	id       string
	spec     *rowmill.Spec
	fence    store.Fence
	manifest shard.Manifest // describes the input rows to run
	outcomes *dispatch.Classifier
	schema   results.Schema
	counter  *prompt.Counter
	ctx      context.Context   // ends when this node stops work on the job
	trace    *tracing.JobTrace // nil if the job is not traced

	// Set by pinContextLength, or from the owner's invite.
	context   int // context length in tokens; 0 if unknown
	maxTokens int // longest answer in tokens; 0 if unknown
}

func newJobContext(ctx context.Context, cfg Config, rec *store.Record, fence store.Fence, m shard.Manifest, count *prompt.Counter) (*jobContext, error) {
	spec := rec.Spec // a copy, because the record changes later
	outcomes, err := dispatch.NewClassifier(&spec, cfg.Rows.MaxAttempts)
	if err != nil {
		return nil, err
	}
	return &jobContext{
		id: rec.Job.ID, spec: &spec, fence: fence, manifest: m, outcomes: outcomes, counter: count, ctx: ctx, trace: cfg.trace(rec),
		schema: results.Schema{
			JobID: rec.Job.ID, Output: spec.Output, Model: spec.Model.ID, IDColumn: spec.IDColumn, IDType: m.IDType, Fields: m.Fields,
			Embedding: spec.Model.Kind == rowmill.KindEmbedding,
		},
	}, nil
}

// pinContextLength sets the context length of the job: the smallest context length that the catalog
// or an engine has for the model. It also sets the longest answer. It returns a warning
// if it had to shorten the answer, and a failure if the caller's max_tokens leaves no
// room for a prompt.
func (j *jobContext) pinContextLength(engines []engineView) (warning string, failure *rowmill.Failure) {
	j.context = j.spec.Model.ContextLength
	for _, e := range engines {
		if served, ok := e.servedModel(j.spec); ok && served.ContextLength > 0 && (j.context == 0 || served.ContextLength < j.context) {
			j.context = served.ContextLength
		}
	}
	j.maxTokens = int(j.spec.MaxTokens())
	if j.context == 0 || j.maxTokens < j.context || j.spec.Raw != nil {
		return "", nil
	}
	if standard := (&rowmill.Spec{Sampling: j.spec.Model.Sampling}).MaxTokens(); standard != j.spec.MaxTokens() {
		return "", rowmill.Failf(rowmill.CodeRowTooLong,
			"max_tokens is %d, and the engines that serve %s have a context of %d tokens: no prompt fits. Lower max_tokens.", j.maxTokens, j.spec.Model.ID, j.context)
	}
	warning = fmt.Sprintf("The default max_tokens of %d was lowered to %d, half of the context that the engines have.", j.maxTokens, j.context/2)
	j.maxTokens = j.context / 2
	return warning, nil
}

// sampling returns the sampling parameters of requests. max_tokens has the value that
// pinContextLength has set.
func (j *jobContext) sampling() map[string]any {
	sent := maps.Clone(j.spec.Sampling)
	if j.maxTokens > 0 {
		sent["max_tokens"] = int64(j.maxTokens)
	}
	return sent
}

// matchesSampling reports whether the sampling parameters in a record equal the parameters
// of the requests. Only max_tokens can differ.
func (j *jobContext) matchesSampling(shown map[string]any) bool {
	return (&rowmill.Spec{Sampling: shown}).MaxTokens() == int64(j.maxTokens)
}

// promptLimit returns how many tokens a prompt may have; 0 for no limit. Raw
// requests have no limit, because they are sent unchanged.
func (j *jobContext) promptLimit() int {
	if j.context == 0 || j.spec.Raw != nil {
		return 0
	}
	if j.maxTokens > 0 && j.spec.Model.Kind != rowmill.KindEmbedding {
		return max(1, j.context-j.maxTokens-1)
	}
	return j.spec.PromptLimit(j.context)
}

// embeddingGroup is how many texts go into one embedding request.
const embeddingGroup = 32

// toDispatchJob returns the data of the job that the dispatchers of engines need.
func (j *jobContext) toDispatchJob(cfg Config) dispatch.Job {
	return dispatch.Job{
		Ctx: j.ctx, Spec: j.spec, Classifier: j.outcomes, Counter: j.counter,
		ContextLength: j.context, MaxTokens: j.maxTokens, PromptLimit: j.promptLimit(), Group: embeddingGroup,
		Trace: j.trace,
	}
}

// invitation returns the message that asks a node to work for the job. address is the
// address of the job's owner. whole is true if the whole input and its manifest are
// stored.
func (j *jobContext) invitation(address string, whole bool) *invite {
	m := &invite{
		Job: j.id, Epoch: j.fence.Epoch, Session: j.fence.Session, Address: address,
		Context: j.context, MaxTokens: j.maxTokens, Account: j.spec.Account, Priority: j.spec.Priority,
	}
	if !whole {
		m.Input = &j.manifest
	}
	return m
}

// appendMissing returns have, followed by the texts of more that are not in have.
func appendMissing(have, more []string) []string {
	for _, w := range more {
		if !slices.Contains(have, w) {
			have = append(have, w)
		}
	}
	return have
}

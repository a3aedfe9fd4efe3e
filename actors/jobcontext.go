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

// A jobContext is what all actors of a job share. It never changes once rows
// run.
type jobContext struct {
	id       string
	spec     *rowmill.Spec
	fence    store.Fence
	manifest shard.Manifest // of the rows to run
	outcomes *dispatch.Classifier
	schema   results.Schema
	counter  *prompt.Counter
	ctx      context.Context // ends with the job's run on this node
	trace    *tracing.Job    // nil where it is not traced

	// Set by pin.
	context   int // tokens; 0 when nobody says
	maxTokens int // of an answer; 0 when nobody says
}

func newJobContext(ctx context.Context, cfg Config, rec *store.Record, fence store.Fence, m shard.Manifest, count *prompt.Counter) (*jobContext, error) {
	spec := rec.Spec // the record itself goes on changing
	outcomes, err := dispatch.NewClassifier(&spec, cfg.Rows.MaxAttempts)
	if err != nil {
		return nil, err
	}
	return &jobContext{
		id: rec.Job.ID, spec: &spec, fence: fence, manifest: m, outcomes: outcomes, counter: count, ctx: ctx, trace: cfg.trace(rec),
		schema: results.Schema{
			JobID: rec.Job.ID, Model: spec.Model.ID, IDColumn: spec.IDColumn, IDType: m.IDType, Fields: m.Fields,
			Embedding: spec.Model.Kind == rowmill.KindEmbedding,
		},
	}, nil
}

// pin fixes the context length: the smallest of the catalog's and those of the
// engines that serve the model. It returns a warning where the answer had to be
// shortened, and a failure where the caller's max_tokens leaves no room for a
// prompt.
func (j *jobContext) pin(engines []engineView) (warning string, failure *rowmill.Failure) {
	j.context = j.spec.Model.ContextLength
	for _, e := range engines {
		if served, ok := e.serves(j.spec); ok && served.ContextLength > 0 && (j.context == 0 || served.ContextLength < j.context) {
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

// sampling are the parameters that are sent, with the longest answer as pinned.
func (j *jobContext) sampling() map[string]any {
	sent := maps.Clone(j.spec.Sampling)
	if j.maxTokens > 0 {
		sent["max_tokens"] = int64(j.maxTokens)
	}
	return sent
}

// sends reports whether a record that shows these parameters shows those that
// are sent: nothing but the longest answer ever differs.
func (j *jobContext) sends(shown map[string]any) bool {
	return (&rowmill.Spec{Sampling: shown}).MaxTokens() == int64(j.maxTokens)
}

// promptLimit is how many tokens a prompt may have; 0 for no limit, and of requests
// that are sent as they are.
func (j *jobContext) promptLimit() int {
	if j.context == 0 || j.spec.Raw != nil {
		return 0
	}
	if j.maxTokens > 0 && j.spec.Model.Kind != rowmill.KindEmbedding {
		return max(1, j.context-j.maxTokens-1)
	}
	return j.spec.PromptLimit(j.context)
}

// dispatched is what its rows have in common on their way through engines.
func (j *jobContext) dispatched(cfg Config) dispatch.Job {
	return dispatch.Job{
		Ctx: j.ctx, Spec: j.spec, Classifier: j.outcomes, Counter: j.counter,
		ContextLength: j.context, MaxTokens: j.maxTokens, PromptLimit: j.promptLimit(), Group: cfg.Rows.EmbeddingGroup,
		Trace: j.trace,
	}
}

// invitation asks another node to work for the job, whose owner is at an address. whole
// says that the input has a manifest.
func (j *jobContext) invitation(address string, whole bool) *invite {
	m := &invite{
		Job: j.id, Epoch: j.fence.Epoch, Session: j.fence.Session, Address: address,
		Context: j.context, MaxTokens: j.maxTokens, Account: j.spec.Account, Priority: j.spec.Priority,
	}
	if !whole {
		m.Input = &j.manifest
	}
	if j.spec.Estimate {
		m.Sample = j.manifest.Rows
	}
	return m
}

func union(have, more []string) []string {
	for _, w := range more {
		if !slices.Contains(have, w) {
			have = append(have, w)
		}
	}
	return have
}

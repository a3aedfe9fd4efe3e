package actors

import (
	"context"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/engine"
	"github.com/rowmill/rowmill/results"
	"github.com/rowmill/rowmill/store"
)

// A jobContext is what all actors of a job share. It never changes after
// ingest.
type jobContext struct {
	id       string
	spec     *rowmill.Spec
	fence    store.Fence
	manifest manifest
	judge    *judge
	schema   results.Schema
	ctx      context.Context // ends with the job's run on this node
}

func newJobContext(ctx context.Context, cfg Config, rec *store.Record, fence store.Fence, m manifest) (*jobContext, error) {
	spec := rec.Spec // the record itself goes on changing
	judge, err := newJudge(&spec, cfg.MaxAttempts)
	if err != nil {
		return nil, err
	}
	return &jobContext{
		id: rec.Job.ID, spec: &spec, fence: fence, manifest: m, judge: judge, ctx: ctx,
		schema: results.Schema{
			JobID: rec.Job.ID, Model: spec.Model.ID, IDColumn: spec.IDColumn, IDKind: m.IDKind,
			Embedding: spec.Model.Kind == rowmill.KindEmbedding,
		},
	}, nil
}

// params are the job's rows in common, for an engine that serves the model.
func (j *jobContext) params(served engine.ServedModel) engine.Params {
	limit := j.spec.Model.ContextLength
	if served.ContextLength > 0 && served.ContextLength < limit {
		limit = served.ContextLength
	}
	p := engine.Params{
		Model: j.spec.Model, System: j.spec.System, Schema: j.spec.Schema, Sampling: j.spec.Sampling,
		Logprobs:   !j.spec.Model.NoLogprobs && j.spec.Model.Kind != rowmill.KindEmbedding,
		ContextLen: limit,
	}
	p.MaxTokens = int(j.spec.MaxTokens())
	return p
}

// group is how many rows go into one request.
func (j *jobContext) group(cfg Config) int {
	if j.schema.Embedding {
		return cfg.EmbeddingGroup
	}
	return 1
}

// seed returns the seed to send with a row, nil for the engine's own: rows
// have one of their own when the client asked for it, and once an answer broke
// the schema, so that the next differs.
func (j *jobContext) seed(t *task) *int64 {
	if j.schema.Embedding || (!j.spec.SeedPerRow && (t.breaches == 0 || j.judge.deterministic)) {
		return nil
	}
	s := rowSeed(j.spec.Seed, t.row.Index, t.breaches)
	return &s
}

package actors

import (
	"log/slog"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/internal/tracing"
	"github.com/rowmill/rowmill/store"
)

// trace is a job as it is traced; nil where it is not.
func (c Config) trace(rec *store.Record) *tracing.Job { return c.Tracer.Job(rec.Job.ID, rec.Trace) }

// told has the trace of a job that is over tell of the job itself. Whoever records the
// end calls it; of a job that nobody ever owned who cleans up after it.
func (p *process) told(rec *store.Record) {
	trace, job := p.cfg.trace(rec), &rec.Job
	if trace == nil || job.Completed == nil {
		return
	}
	attrs := []slog.Attr{
		slog.String("rowmill.job", job.ID), slog.String("rowmill.account", rec.Spec.Account), slog.String("rowmill.status", string(job.Status)),
		slog.String("gen_ai.request.model", rec.Spec.Model.ID), slog.Int("rowmill.priority", int(job.Priority)), slog.Int64("rowmill.owners", rec.Epoch),
		slog.Int64("rowmill.rows", job.RowsDone), slog.Int64("rowmill.rows.failed", job.FailedRows),
	}
	for name, tokens := range map[string]*int64{"gen_ai.usage.input_tokens": job.InputTokens, "gen_ai.usage.output_tokens": job.OutputTokens} {
		if tokens != nil {
			attrs = append(attrs, slog.Int64(name, *tokens))
		}
	}
	var failure string
	if job.Status == rowmill.StatusFailed && job.FailureReason != nil {
		failure = job.FailureReason.Code
	}
	trace.End(job.Created, *job.Completed, failure, attrs...)
}

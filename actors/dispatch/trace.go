package dispatch

import (
	"log/slog"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/internal/tracing"
)

// beginSpan begins the trace span of a request, or returns nil if no task is traced. The
// parent of the span is the span of the first traced task's block of rows. Names follow
// OpenTelemetry's conventions for generative AI; names with rowmill are our own.
func (q *Queue) beginSpan(tasks []*RowTask) *tracing.Span {
	for _, t := range tasks {
		if !q.job.Trace.TracesRow(t.Row.Index) {
			continue
		}
		operation, model := operationOf(q.job.Spec), q.job.Spec.Model.ID
		return t.block.span.BeginCall(operation+" "+model,
			slog.String("gen_ai.operation.name", operation), slog.String("gen_ai.request.model", model),
			slog.String("rowmill.engine", q.disp.cfg.Engine), slog.Int64("rowmill.row", t.Row.Index), slog.Int("rowmill.rows", len(tasks)),
			slog.Int("rowmill.attempt", t.attempts+t.lostRequests+1))
	}
	return nil
}

// operationOf returns the OpenTelemetry name for the operation of a job's requests.
func operationOf(spec *rowmill.Spec) string {
	switch {
	case spec.Model.Kind == rowmill.KindEmbedding, spec.Raw != nil && spec.Raw.Path == "/v1/embeddings":
		return "embeddings"
	case spec.Raw != nil && spec.Raw.Path == "/v1/completions":
		return "text_completion"
	}
	return "chat"
}

// conclude records the result of a request in its trace span, and ends the span. A
// failure is taken from the first task. began is the time at which the request was
// sent.
func conclude(span *tracing.Span, tasks []*RowTask, seen *requestResult, began time.Time) {
	if seen.answered {
		span.SetAttributes(slog.Int64("gen_ai.usage.input_tokens", seen.prompts), slog.Int64("gen_ai.usage.output_tokens", seen.tokens))
	}
	if try := tasks[0].lastTry(began); try != nil {
		span.Fail(try.Code) // not the message, because it may contain text from the server's answer
		if try.Status != 0 {
			span.SetAttributes(slog.Int("http.response.status_code", try.Status))
		}
	}
	span.End(nil)
}

// lastTry returns the recorded attempt that was sent at began. It returns nil if this
// attempt is not recorded, because the first answer was accepted or no request was
// sent.
func (t *RowTask) lastTry(began time.Time) *rowmill.Attempt {
	if t.attemptLog == nil {
		return nil
	}
	last := &t.attemptLog.Attempts[len(t.attemptLog.Attempts)-1]
	if !last.At.Equal(atOf(began)) {
		return nil
	}
	return last
}

package dispatch

import (
	"log/slog"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/internal/tracing"
)

// traced begins the span of a request; nil if no task is traced. Its parent is the span
// of the block of rows with the first traced task. Names follow OpenTelemetry's
// conventions for generative AI, or are our own.
func (q *Queue) traced(tasks []*Task) *tracing.Span {
	for _, t := range tasks {
		if !q.job.Trace.Traces(t.Row.Index) {
			continue
		}
		operation, model := operationOf(q.job.Spec), q.job.Spec.Model.ID
		return t.block.span.Call(operation+" "+model,
			slog.String("gen_ai.operation.name", operation), slog.String("gen_ai.request.model", model),
			slog.String("rowmill.engine", q.disp.cfg.Engine), slog.Int64("rowmill.row", t.Row.Index), slog.Int("rowmill.rows", len(tasks)),
			slog.Int("rowmill.attempt", t.attempts+t.lostRequests+1))
	}
	return nil
}

// operationOf returns the operation that the requests of a job ask for.
func operationOf(spec *rowmill.Spec) string {
	switch {
	case spec.Model.Kind == rowmill.KindEmbedding, spec.Raw != nil && spec.Raw.Path == "/v1/embeddings":
		return "embeddings"
	case spec.Raw != nil && spec.Raw.Path == "/v1/completions":
		return "text_completion"
	}
	return "chat"
}

// conclude records the result of a request's first task in the span of the request, and
// ends the span. began is the time at which the request was sent.
func conclude(span *tracing.Span, tasks []*Task, seen *requestResult, began time.Time) {
	if seen.answered {
		span.Set(slog.Int64("gen_ai.usage.input_tokens", seen.prompts), slog.Int64("gen_ai.usage.output_tokens", seen.tokens))
	}
	if try := tasks[0].lastTry(began); try != nil {
		span.Fail(try.Code) // its message may contain text from the server's answer
		if try.Status != 0 {
			span.Set(slog.Int("http.response.status_code", try.Status))
		}
	}
	span.End(nil)
}

// lastTry returns the recorded attempt that was sent at began; nil if the first attempt
// was accepted or none was made.
func (t *Task) lastTry(began time.Time) *rowmill.Attempt {
	if t.tries == nil {
		return nil
	}
	last := &t.tries.Attempts[len(t.tries.Attempts)-1]
	if !last.At.Equal(atOf(began)) {
		return nil
	}
	return last
}

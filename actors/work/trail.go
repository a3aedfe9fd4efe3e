package work

import (
	"log/slog"

	"github.com/rowmill/rowmill/actors/dispatch"
	"github.com/rowmill/rowmill/internal/tracing"
)

// A WorkerTrace has the trace spans of a worker: one for each shard, and as its children one for
// each group of rows that are loaded together and one for each part. The span of a shard
// lasts from its first load until its children have ended and no more of its rows are
// expected. The WorkerTrace of a job without traces is nil, and all methods accept a nil WorkerTrace.
type WorkerTrace struct {
	job    *tracing.JobTrace
	shards map[int]*shardTrace // by number of the shard
}

// A shardTrace is the time for which a worker works on a shard.
type shardTrace struct {
	span   *tracing.Span              // the span of the shard
	below  map[*tracing.Span]struct{} // children of span that have not ended
	rows   int                        // number of rows loaded so far
	closed bool                       // no more rows of the shard are expected
}

// NewWorkerTrace returns the WorkerTrace of a worker; it is nil if job is nil.
func NewWorkerTrace(job *tracing.JobTrace) *WorkerTrace {
	if job == nil {
		return nil
	}
	return &WorkerTrace{job: job, shards: make(map[int]*shardTrace)}
}

// beginLoadSpan begins the span for rows of a shard that are being loaded.
func (t *WorkerTrace) beginLoadSpan(shard int) *tracing.Span {
	span := t.beginChildSpan(shard, "rows")
	if t != nil {
		t.shards[shard].closed = false
	}
	return span
}

// BeginPartSpan begins the span for a part of a shard that is being written.
func (t *WorkerTrace) BeginPartSpan(shard int) *tracing.Span {
	return t.beginChildSpan(shard, "write a part")
}

// beginChildSpan begins a child of the shard's span, and the shard's span itself if it has not
// begun.
func (t *WorkerTrace) beginChildSpan(shard int, name string) *tracing.Span {
	if t == nil {
		return nil
	}
	v := t.shards[shard]
	if v == nil {
		v = &shardTrace{span: t.job.Begin("shard", slog.Int("rowmill.shard", shard)), below: make(map[*tracing.Span]struct{})}
		t.shards[shard] = v
	}
	span := v.span.Begin(name)
	v.below[span] = struct{}{}
	return span
}

// attachTasks makes span, which load returned, the parent of the spans of the tasks'
// requests. span ends when the last of the tasks is freed.
func (t *WorkerTrace) attachTasks(shard int, span *tracing.Span, tasks []*dispatch.RowTask) {
	if t == nil {
		return
	}
	if len(tasks) == 0 {
		t.EndSpan(shard, span, nil)
		return
	}
	t.shards[shard].rows += len(tasks)
	span.SetAttributes(slog.Int64("rowmill.row", tasks[0].Row.Index), slog.Int("rowmill.rows", len(tasks)))
	dispatch.AttachSpan(tasks, span, func() { t.EndSpan(shard, span, nil) })
}

// EndSpan ends a span that load or Part returned.
func (t *WorkerTrace) EndSpan(shard int, span *tracing.Span, err error) {
	if t == nil {
		return
	}
	span.End(err)
	if v := t.shards[shard]; v != nil { // if v is nil, end has already ended the shard's span
		delete(v.below, span)
		t.endSpanIfDone(shard, v)
	}
}

// markClosed records that no more rows of a shard are expected.
func (t *WorkerTrace) markClosed(shard int) {
	if t == nil {
		return
	}
	if v := t.shards[shard]; v != nil {
		v.closed = true
		t.endSpanIfDone(shard, v)
	}
}

// endSpanIfDone ends the span of a shard if no more rows are expected and all its children
// have ended.
func (t *WorkerTrace) endSpanIfDone(shard int, v *shardTrace) {
	if v.closed && len(v.below) == 0 {
		v.span.SetAttributes(slog.Int("rowmill.rows", v.rows))
		v.span.End(nil)
		delete(t.shards, shard)
	}
}

// end ends all open spans when the worker stops.
func (t *WorkerTrace) end() {
	if t == nil {
		return
	}
	for shard, v := range t.shards {
		v.closed = true
		for span := range v.below {
			span.End(nil)
		}
		clear(v.below)
		t.endSpanIfDone(shard, v)
	}
}

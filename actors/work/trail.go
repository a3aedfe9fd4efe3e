package work

import (
	"log/slog"

	"github.com/rowmill/rowmill/actors/dispatch"
	"github.com/rowmill/rowmill/internal/tracing"
)

// A Trail has the spans of a worker's shards, of the rows that are loaded together of
// each, and of its parts. The span of a shard lasts from the first load to when all of
// these have ended and no more rows of it are to come. That of a job which is not
// traced is nil, and all methods may be called.
type Trail struct {
	job    *tracing.Job
	shards map[int]*visit
}

// A visit is the time that a shard is with the worker.
type visit struct {
	span   *tracing.Span
	below  map[*tracing.Span]struct{} // that have not ended
	rows   int
	closed bool
}

// NewTrail returns the Trail of a worker of a job, nil for nil.
func NewTrail(job *tracing.Job) *Trail {
	if job == nil {
		return nil
	}
	return &Trail{job: job, shards: make(map[int]*visit)}
}

// load begins the span of rows of a shard that are being loaded.
func (t *Trail) load(shard int) *tracing.Span {
	span := t.begin(shard, "rows")
	if t != nil {
		t.shards[shard].closed = false
	}
	return span
}

// Part begins the span of a part that is being written.
func (t *Trail) Part(shard int) *tracing.Span { return t.begin(shard, "write a part") }

func (t *Trail) begin(shard int, name string) *tracing.Span {
	if t == nil {
		return nil
	}
	v := t.shards[shard]
	if v == nil {
		v = &visit{span: t.job.Begin("shard", slog.Int("rowmill.shard", shard)), below: make(map[*tracing.Span]struct{})}
		t.shards[shard] = v
	}
	span := v.span.Begin(name)
	v.below[span] = struct{}{}
	return span
}

// loaded has the requests of rows stand below the span that load has begun, which ends
// when the last of them is freed.
func (t *Trail) loaded(shard int, span *tracing.Span, tasks []*dispatch.Task) {
	if t == nil {
		return
	}
	if len(tasks) == 0 {
		t.Ended(shard, span, nil)
		return
	}
	t.shards[shard].rows += len(tasks)
	span.Set(slog.Int64("rowmill.row", tasks[0].Row.Index), slog.Int("rowmill.rows", len(tasks)))
	dispatch.Trace(tasks, span, func() { t.Ended(shard, span, nil) })
}

// Ended ends a span of Load or Part.
func (t *Trail) Ended(shard int, span *tracing.Span, err error) {
	if t == nil {
		return
	}
	span.End(err)
	if v := t.shards[shard]; v != nil { // else End was there before
		delete(v.below, span)
		t.settle(shard, v)
	}
}

// closed says that no more rows of a shard are to come, as far as is known.
func (t *Trail) closed(shard int) {
	if t == nil {
		return
	}
	if v := t.shards[shard]; v != nil {
		v.closed = true
		t.settle(shard, v)
	}
}

func (t *Trail) settle(shard int, v *visit) {
	if v.closed && len(v.below) == 0 {
		v.span.Set(slog.Int("rowmill.rows", v.rows))
		v.span.End(nil)
		delete(t.shards, shard)
	}
}

// end ends all spans: the worker stops.
func (t *Trail) end() {
	if t == nil {
		return
	}
	for shard, v := range t.shards {
		v.closed = true
		for span := range v.below {
			span.End(nil)
		}
		clear(v.below)
		t.settle(shard, v)
	}
}

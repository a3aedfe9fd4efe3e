package work

import (
	"log/slog"

	"github.com/rowmill/rowmill/actors/dispatch"
	"github.com/rowmill/rowmill/internal/tracing"
)

// A Trail has the trace spans of a worker: one for each shard, and below it one for rows
// that are loaded together and one for each part. The span of a shard lasts from its
// first load until all spans below have ended and no more of its rows are expected. The
// Trail of a job without traces is nil, and all methods accept a nil Trail.
type Trail struct {
	job    *tracing.Job
	shards map[int]*visit
}

// A visit is the time that the worker spends on a shard.
type visit struct {
	span   *tracing.Span
	below  map[*tracing.Span]struct{} // spans below span that have not ended
	rows   int                        // number of loaded rows
	closed bool                       // no more rows are expected
}

// NewTrail returns the Trail of a worker; it is nil if job is nil.
func NewTrail(job *tracing.Job) *Trail {
	if job == nil {
		return nil
	}
	return &Trail{job: job, shards: make(map[int]*visit)}
}

// load begins the span for rows that are being loaded.
func (t *Trail) load(shard int) *tracing.Span {
	span := t.begin(shard, "rows")
	if t != nil {
		t.shards[shard].closed = false
	}
	return span
}

// Part begins the span for a part that is being written.
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

// loaded puts the spans of requests for these tasks below the span that load began. The
// span of load ends when the last of the tasks is freed.
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

// Ended ends a span that load or Part returned.
func (t *Trail) Ended(shard int, span *tracing.Span, err error) {
	if t == nil {
		return
	}
	span.End(err)
	if v := t.shards[shard]; v != nil { // otherwise end has already ended it
		delete(v.below, span)
		t.settle(shard, v)
	}
}

// closed notes that no more rows of a shard are expected.
func (t *Trail) closed(shard int) {
	if t == nil {
		return
	}
	if v := t.shards[shard]; v != nil {
		v.closed = true
		t.settle(shard, v)
	}
}

// settle ends the span of a shard if no more rows are expected and no span below is open.
func (t *Trail) settle(shard int, v *visit) {
	if v.closed && len(v.below) == 0 {
		v.span.Set(slog.Int("rowmill.rows", v.rows))
		v.span.End(nil)
		delete(t.shards, shard)
	}
}

// end ends all open spans when the worker stops.
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

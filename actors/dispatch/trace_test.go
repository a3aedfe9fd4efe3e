package dispatch

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/engine"
	"github.com/rowmill/rowmill/internal/spantest"
	"github.com/rowmill/rowmill/internal/tracing"
)

// Requests of some rows have spans below the span of the rows loaded with them. Servers
// get the ids of these spans, and of no other spans.
func TestQueue_Traces(t *testing.T) {
	t.Parallel()
	var c spantest.Collector
	tracer := c.StartTracer(t, func(cfg *tracing.Config) { cfg.Rows = 0.5 })
	trace := tracer.TraceJob(rowmill.NewJobID(), "")
	busy := true
	s := &scripted{answer: func(_ context.Context, row engine.Row) (engine.Reply, error) {
		switch {
		case string(row.Text) != "turned down":
			return answered("fine")
		case busy:
			busy = false
			return engine.Reply{}, &engine.Error{Class: engine.Transient, Status: 429, Code: "busy", Message: "wait, said of a row"}
		}
		return engine.Reply{}, &engine.Error{Class: engine.RowFault, Status: 400, Code: "too_rude", Message: "no"}
	}}
	b := newBench(t, s, func(j *Job) { j.Trace = trace })
	all := tasksOf([]string{"a", "b", "turned down", "d", "e"}, plain)
	span, freed := trace.Begin("rows"), 0
	AttachSpan(all, span, func() { freed++ })
	for _, task := range b.run(all) {
		if task.Outcome == Again {
			b.once(task)
		}
	}
	b.disp.Close()
	for i, task := range all {
		if task.Free(); freed != 0 && i < len(all)-1 {
			t.Error("freed before the last")
		}
	}
	if freed != 1 {
		t.Errorf("told %d times that all are freed", freed)
	}
	span.End(nil)
	tracer.Close(t.Context())

	rows := c.Named("rows")[0]
	var told []string
	for _, row := range s.sent {
		if row.Traceparent != "" {
			told = append(told, row.Traceparent)
		}
	}
	var got []any
	for _, request := range c.Named("chat m") {
		got = append(got, request.Attributes["rowmill.row"], request.Attributes["rowmill.attempt"], request.Error)
		if request.Parent != rows.ID || request.Attributes["rowmill.engine"] != "e" || request.Attributes["gen_ai.request.model"] != "m" {
			t.Errorf("got %+v", request)
		}
		if name := "00-" + request.Trace + "-" + request.ID + "-01"; !slices.Contains(told, name) {
			t.Errorf("no server got the id %s", name)
		}
		if request.Error == "" && (request.Attributes["gen_ai.usage.input_tokens"] != int64(3) || request.Attributes["gen_ai.usage.output_tokens"] != int64(2)) {
			t.Errorf("got %+v", request.Attributes)
		}
		if request.Error == "too_rude" && request.Attributes["http.response.status_code"] != int64(400) {
			t.Errorf("got %+v", request.Attributes)
		}
		for _, value := range request.Attributes {
			if text, is := value.(string); is && strings.Contains(text, "said of") {
				t.Errorf("it tells what a server has said: %+v", request.Attributes)
			}
		}
	}
	if len(told) != 4 || len(got) != 3*4 {
		t.Errorf("%d servers got ids, %d spans: %v", len(told), len(got)/3, got)
	}
	for _, want := range [][]any{{int64(0), int64(1), ""}, {int64(2), int64(1), "busy"}, {int64(2), int64(2), "too_rude"}, {int64(4), int64(1), ""}} {
		if !slices.ContainsFunc([]int{0, 3, 6, 9}, func(i int) bool { return slices.Equal(got[i:i+3], want) }) {
			t.Errorf("no span of row %v, attempt %v, with %q: %v", want[0], want[1], want[2], got)
		}
	}
}

// The span of a group is that of its first traced row.
func TestQueue_TracesGroups(t *testing.T) {
	t.Parallel()
	var c spantest.Collector
	tracer := c.StartTracer(t, func(cfg *tracing.Config) { cfg.Rows = 0.1 })
	trace := tracer.TraceJob(rowmill.NewJobID(), "")
	s := &scripted{embed: func(rows []engine.Row) ([]engine.Reply, []*engine.Error, error) {
		replies := make([]engine.Reply, len(rows))
		for i := range replies {
			replies[i] = engine.Reply{Embedding: []float32{1}, InputTokens: 2}
		}
		return replies, make([]*engine.Error, len(rows)), nil
	}}
	b := newBench(t, s, func(j *Job) { j.Trace, j.Spec.Model.Kind = trace, rowmill.KindEmbedding })
	all := tasksOf(make([]string, 16), plain)
	AttachSpan(all, trace.Begin("rows"), func() {})
	b.run(all)
	b.disp.Close()
	tracer.Close(t.Context())
	var rows []any
	for _, request := range c.Named("embeddings m") {
		rows = append(rows, request.Attributes["rowmill.row"], request.Attributes["rowmill.rows"], request.Attributes["gen_ai.usage.input_tokens"])
	}
	if !slices.Equal(rows, []any{int64(0), int64(4), int64(8), int64(10), int64(4), int64(8)}) && !slices.Equal(rows, []any{int64(10), int64(4), int64(8), int64(0), int64(4), int64(8)}) {
		t.Errorf("spans of %v", rows)
	}
}

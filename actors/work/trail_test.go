package work

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/actors/assign"
	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/internal/spantest"
)

// The span of a shard lasts until its rows are freed, its parts are written, and no more
// of its rows are expected. Rows are below it in groups, as they were loaded.
func TestTrail(t *testing.T) {
	t.Parallel()
	synctest.Test(t, testTrail) // a clock that is set meanwhile would make a span longer than its parent
}

func testTrail(t *testing.T) {
	tick := func() { time.Sleep(time.Millisecond) }
	var c spantest.Collector
	tracer := c.StartTracer(t, nil)
	s, m := newShards(t, 5000, 10), memory(1<<30)
	trail := NewWorkerTrace(tracer.TraceJob(rowmill.NewJobID(), ""))
	l := NewLoader(m, s.infos, trail, s.open)
	l.Add([]assign.RowSpan{{Shard: 0, From: 0, To: 5000}, {Shard: 1, From: 2, To: 5}}, true)
	_, tasks := loadAll(t, l)
	tick()
	part := trail.BeginPartSpan(0)
	must.Succeed(t, l.Release(0))
	tick()
	m.Free(tasks[:5000])
	tick()
	trail.EndSpan(0, part, nil)
	l.Add([]assign.RowSpan{{Shard: 0, From: 7, To: 8}}, true) // another worker gave it back
	s.fail = errors.New("away")
	load, ok := l.Next(false)
	if !ok || load.Run(t.Context()) == nil {
		t.Fatal("a load that should have failed")
	}
	l.FailLoad(load)
	late := trail.BeginPartSpan(1)
	tick()
	must.Succeed(t, l.Close()) // the worker stops
	tick()
	trail.EndSpan(1, late, nil) // a later step of the stopped worker
	m.Free(tasks[5000:])
	tracer.Close(t.Context())

	shards := c.Named("shard")
	if len(shards) != 3 || shards[0].Attributes["rowmill.rows"] != int64(5000) || shards[1].Attributes["rowmill.rows"] != int64(3) || shards[2].Attributes["rowmill.rows"] != int64(0) {
		t.Fatalf("shards are %+v", shards)
	}
	rows := 0
	for _, loaded := range c.Named("rows") {
		n, _ := loaded.Attributes["rowmill.rows"].(int64)
		rows += int(n)
		for _, shard := range shards {
			if shard.ID == loaded.Parent && (loaded.Begin.Before(shard.Begin) || loaded.End.After(shard.End)) {
				t.Errorf("%+v lasts longer than %+v", loaded, shard)
			}
		}
		if loaded.Attributes["rowmill.row"] == int64(0) && loaded.Parent != shards[0].ID || loaded.Attributes["rowmill.row"] == int64(5002) && loaded.Parent != shards[1].ID {
			t.Errorf("%+v is below another shard", loaded)
		}
	}
	if rows != 5003 {
		t.Errorf("%d rows were loaded", rows)
	}
	parts := c.Named("write a part")
	if len(parts) != 2 || parts[0].Parent != shards[0].ID || parts[1].Parent != shards[1].ID {
		t.Errorf("parts are %+v", parts)
	}
}

// A nil WorkerTrace, of a job without traces, does nothing.
func TestTrail_Nil(t *testing.T) {
	t.Parallel()
	trail := NewWorkerTrace(nil)
	if trail != nil || trail.beginLoadSpan(1) != nil || trail.BeginPartSpan(1) != nil {
		t.Error("there are spans")
	}
	trail.attachTasks(1, nil, nil)
	trail.EndSpan(1, nil, nil)
	trail.markClosed(1)
	trail.end()
}

package actors_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/actors"
	"github.com/rowmill/rowmill/actors/registry"
	"github.com/rowmill/rowmill/engine"
)

// A row that makes our own code panic fails alone, and the node continues.
func TestAPanicOfARowFailsOnlyTheRow(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T) {
		b := setup(t, &scripted{answer: func(ctx context.Context, row string, try int) (engine.Reply, error) {
			if row == "row 17" {
				panic("what an answer")
			}
			return echo(ctx, row, try)
		}})
		rec := b.end(b.submit(rowmill.Spec{Inline: numbered(100)}))
		if rec.Job.Status != rowmill.StatusSucceeded || rec.Job.FailedRows != 1 || rec.Job.RowsDone != 100 {
			t.Errorf("%s, %d of %d rows failed: %+v", rec.Job.Status, rec.Job.FailedRows, rec.Job.RowsDone, rec.Job.FailureReason)
		}
		b.checkEcho(b.end(b.submit(rowmill.Spec{Inline: numbered(10)})), numbered(10))
	})
}

// A server whose answers make our own code panic is down, or has no gauges.
func TestAPanicOfAServerAffectsOnlyTheServer(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T) {
		b := setup(t, &scripted{answer: echo}, func(c *actors.Config) {
			c.Engines = []engine.Engine{
				maddening{&scripted{name: "mad"}, true},
				maddening{&scripted{name: "odd", answer: echo, models: []engine.ServedModel{{Name: "writer"}}}, false},
			}
		})
		b.checkEcho(b.end(b.submit(rowmill.Spec{Inline: numbered(100)})), numbered(100))
		up := map[string]bool{}
		for _, e := range b.system.Engines() {
			up[e.Name] = e.Up
		}
		if fmt.Sprint(up) != "map[mad:false odd:true]" {
			t.Errorf("up: %v", up)
		}
	})
}

// The actor of an engine that panics restarts: the job finishes, and operators see
// the restart.
func TestTheActorOfAnEngineRestarts(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T) {
		moody := &moody{scripted: &scripted{name: "moody", answer: echo, models: served()}}
		b := setup(t, &scripted{}, func(c *actors.Config) { c.Engines = []engine.Engine{moody} })
		b.checkEcho(b.end(b.submit(rowmill.Spec{Inline: numbered(10)})), numbered(10))
		if !moody.panicked.Load() {
			t.Fatal("nothing has panicked")
		}
		all := listed(t, b.system, "", registry.Filter{Kind: "engine"})
		if len(all) != 1 || all[0].State != registry.Running || all[0].Restarts != 1 || all[0].Trouble == nil {
			t.Errorf("operators see %+v", all)
		}
	})
}

// moody panics once: when its name is read after a queue to it was opened.
type moody struct {
	*scripted
	armed, panicked atomic.Bool
}

func (m *moody) Prepare(p engine.JobParams) (engine.PreparedCall, error) {
	m.armed.Store(true)
	return m.scripted.Prepare(p)
}

func (m *moody) Name() string {
	if m.armed.Load() && m.panicked.CompareAndSwap(false, true) {
		panic("what is my name")
	}
	return m.scripted.Name()
}

// maddening panics when it is probed or its gauges are read.
type maddening struct {
	*scripted
	probed bool
}

func (m maddening) Probe(ctx context.Context) (engine.ServerInfo, error) {
	if m.probed {
		panic("what a server")
	}
	return m.scripted.Probe(ctx)
}

func (maddening) Gauges(context.Context) (engine.Gauges, error) { panic("what gauges") }

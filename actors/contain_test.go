package actors_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/actors"
	"github.com/rowmill/rowmill/engine"
)

// A row that makes our own code panic fails alone, and the node goes on.
func TestAPanicOfARowIsThatRows(t *testing.T) {
	t.Parallel()
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
}

// A server whose answers make our own code panic is down, or has no gauges.
func TestAPanicOfAServerIsThatServers(t *testing.T) {
	t.Parallel()
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
}

// maddening answers to what it is asked about itself so that it cannot be read.
type maddening struct {
	*scripted
	probed bool
}

func (m maddening) Probe(ctx context.Context) (engine.Info, error) {
	if m.probed {
		panic("what a server")
	}
	return m.scripted.Probe(ctx)
}

func (maddening) Gauges(context.Context) (engine.Gauges, error) { panic("what gauges") }

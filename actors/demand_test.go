package actors_test

import (
	"testing"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/actors"
	"github.com/rowmill/rowmill/actors/nodes"
	"github.com/rowmill/rowmill/internal/wait"
	"github.com/rowmill/rowmill/store"
)

// A job waits for a server that the node can start longer than for an unknown server. Until
// its last row is done, the node tells the others about the rows.
func TestJobWaitsForServerThatCanStart(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T) {
		e := &scripted{answer: echo, models: served()}
		b := setup(t, e, func(c *actors.Config) {
			without(c)
			c.Servers.Wait = time.Minute
		})
		b.system.SetStoppedServers([]nodes.Engine{{Name: "gpu", Models: served()[:1], Stopped: true}})
		lost := b.submit(rowmill.Spec{Model: rowmill.Model{ID: "embedder", Kind: rowmill.KindEmbedding, Dimension: 2}, Priority: 1, Inline: numbered(3)})
		waits := b.submit(rowmill.Spec{Priority: 1, Inline: numbered(250)})
		b.await(waits, func(r store.Record) bool {
			return r.Job.Message == "Waiting for an engine that serves writer. gpu starts when its turn comes."
		})
		demand := b.system.Nodes()[0].Demand
		if len(demand) != 2 || demand[1].Model != "writer" || demand[1].Tokens < 250 || demand[1].Since.IsZero() || demand[1].Urgent {
			t.Errorf("the demand is %+v", demand)
		}
		time.Sleep(10 * time.Minute)
		if rec := b.end(lost); rec.Job.Status != rowmill.StatusFailed {
			t.Errorf("the job without any server is %s", rec.Job.Status)
		}
		b.system.Attach(e)
		b.system.SetStoppedServers(nil)
		if rec := b.end(waits); rec.Job.Status != rowmill.StatusSucceeded {
			t.Errorf("the job ended as %s: %v", rec.Job.Status, rec.Job.FailureReason)
		}
		wait.For(t, "the end of the demand", func() bool { return len(b.system.Nodes()[0].Demand) == 0 })
		if tokens := b.system.Engines()[0].AnsweredTokens(); tokens < 250 {
			t.Errorf("the server has answered %d tokens", tokens)
		}
	})
}

package actors_test

import (
	"strings"
	"testing"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/engine"
	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/store"
)

// TestAJobWaitsForTheInputOfAnother tests that a job that reads the input of another job is parked
// until the other job has read its input. Meanwhile the only place of the node is free.
func TestAJobWaitsForTheInputOfAnother(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T) {
		b := setup(t, nil)
		b.cfg.Engines = []engine.Engine{&scripted{name: "scripted", models: served(), answer: echo}}
		b.cfg.Ownership.MaxActive, b.cfg.Ownership.KeptPlaces = 1, 1
		texts := numbered(20)
		elsewhere := must.Get(b.store.OpenSession(t.Context(), "elsewhere", time.Hour))(t)
		first := rowmill.Job{ID: rowmill.NewJobID(), Status: rowmill.StatusPending, RunType: rowmill.RunFull, Model: writer.ID, JobTimes: rowmill.JobTimes{Created: time.Now().UTC()}}
		spec := rowmill.Spec{Account: "default", Model: writer, Spooled: b.spool(texts)}
		if _, _, err := b.store.Create(t.Context(), store.Record{Job: first, Spec: spec}, nil); err != nil {
			t.Fatal(err)
		}
		must.Get(b.store.Claim(t.Context(), first.ID, elsewhere, store.Claim{Node: "elsewhere", Process: "elsewhere-1"}))(t)
		b.start() // the node starts after the claim, so it cannot claim the job first

		waits := b.submit(rowmill.Spec{FromJob: first.ID})
		parked := b.await(waits, func(r store.Record) bool { return r.Job.ParkedUntil != nil })
		if text := parked.Job.Message; !strings.Contains(text, "Waiting for the input of "+first.ID) {
			t.Errorf("the message of the waiting job is %q", text)
		}
		other := numbered(3)
		b.checkEcho(b.end(b.submit(rowmill.Spec{Inline: other})), other)
		time.Sleep(10 * time.Minute)
		if rec := must.Get(b.store.Get(t.Context(), waits))(t); rec.Job.Status.IsTerminal() || rec.Epoch == parked.Epoch {
			t.Errorf("after ten minutes the job is %s with epoch %d", rec.Job.Status, rec.Epoch)
		}

		must.Succeed(t, b.store.CloseSession(t.Context(), elsewhere))
		b.checkEcho(b.end(first.ID), texts)
		began := time.Now()
		b.checkEcho(b.end(waits), texts)
		if took := time.Since(began); took > 2*time.Minute {
			t.Errorf("the job ended %v after the other job", took)
		}
	})
}

package actors_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/actors"
	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/store"
)

// reschedule changes the schedule of a job, as a client does, and gives the hint to h unless h is nil.
func (b *rig) reschedule(h *actors.System, id string, change store.Schedule) {
	b.t.Helper()
	rec, err := b.store.Reschedule(b.t.Context(), id, change)
	must.Succeed(b.t, err)
	if h != nil {
		h.NotifyRescheduled(rec)
	}
}

func paused(yes bool) store.Schedule { return store.Schedule{Paused: &yes} }

func hasNoOwner(r store.Record) bool { return r.Session == "" }

// A paused job has no owner, and none of its rows run. It keeps its rows and takes no place on the
// node.
func TestAPausedJobRunsNoRow(t *testing.T) {
	t.Parallel()
	for name, ready := range map[string]func(store.Record) bool{
		"while it runs":       func(r store.Record) bool { return r.Job.RowsDone > 0 },
		"before its rows run": func(r store.Record) bool { return r.Session != "" },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inVirtualTime(t, func(t *testing.T) {
				e := &scripted{answer: slowly(5 * time.Millisecond)}
				b := setup(t, e, func(c *actors.Config) { c.Ownership.MaxActive = 1 })
				texts := numbered(5000)
				id := b.submit(rowmill.Spec{Spooled: b.spool(texts)})
				b.await(id, ready)
				b.reschedule(b.system, id, paused(true))
				stopped := b.await(id, hasNoOwner)
				before := e.calls.Load()
				if done := stopped.Job.RowsDone; done != before || done >= int64(len(texts)) {
					t.Errorf("%d rows are committed, and %d of %d were sent; want all sent rows committed, and rows left", done, before, len(texts))
				}
				other := numbered(10)
				b.checkEcho(b.end(b.submit(rowmill.Spec{Inline: other})), other)
				time.Sleep(10 * time.Minute)
				if rec := must.Get(b.store.Get(t.Context(), id))(t); rec.Version != stopped.Version || e.calls.Load() != before+int64(len(other)) {
					t.Errorf("in ten minutes of pause the record got %d writes, and %d rows were sent", rec.Version-stopped.Version, e.calls.Load()-before-int64(len(other)))
				}
				b.reschedule(b.system, id, paused(false))
				b.checkEcho(b.end(id), texts)
				if again := e.calls.Load() - int64(len(texts)+len(other)); again != 0 {
					t.Errorf("%d rows ran again", again)
				}
			})
		})
	}
}

// A paused job succeeds if servers run its last rows already, because nothing remains to run.
func TestAPausedJobWithoutRowsToRunSucceeds(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		texts []string
		nodes int
	}{
		"on one node":  {numbered(50), 1},
		"on two nodes": {numbered(400), 2},
		"with copies":  {slices.Concat(numbered(50), numbered(50), numbered(20)), 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inVirtualTime(t, func(t *testing.T) {
				b, net, distinct := setup(t, nil), newNetwork(), make(map[string]bool)
				for _, text := range c.texts {
					distinct[text] = true
				}
				var hosts []*host
				for i := range c.nodes {
					hosts = append(hosts, b.join(net, fmt.Sprint("node", i), &scripted{answer: slowly(10 * time.Second)}))
				}
				calls := func() (n int64) {
					for _, h := range hosts {
						n += h.engine.calls.Load()
					}
					return n
				}
				id := b.submitTo(hosts[0], rowmill.Spec{Spooled: b.spool(c.texts), RowRules: rowmill.RowRules{Dedup: true}})
				b.await(id, func(store.Record) bool { return calls() == int64(len(distinct)) })
				b.reschedule(hosts[0].system, id, paused(true))
				rec := b.end(id)
				b.checkEcho(rec, c.texts)
				if calls() != int64(len(distinct)) || rec.Job.Paused {
					t.Errorf("%d rows ran, want %d; paused is %t", calls(), len(distinct), rec.Job.Paused)
				}
			})
		})
	}
}

// A pause that reaches another node than the owner, or that no node hears of, stops the rows on all
// nodes. The job goes on after the pause.
func TestAPauseReachesAllNodes(t *testing.T) {
	t.Parallel()
	for name, hears := range map[string]func(other *host) *actors.System{
		"hint at another node": func(other *host) *actors.System { return other.system },
		"no hint":              func(*host) *actors.System { return nil },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inVirtualTime(t, func(t *testing.T) {
				b, net := setup(t, nil), newNetwork()
				one := b.join(net, "one", &scripted{answer: slowly(20 * time.Millisecond)})
				two := b.join(net, "two", &scripted{answer: slowly(20 * time.Millisecond)})
				texts := numbered(12_000)
				id := b.submitTo(one, rowmill.Spec{Spooled: b.spool(texts)})
				b.await(id, func(store.Record) bool { return two.engine.calls.Load() > 0 && one.engine.calls.Load() > 0 })
				began := time.Now()
				b.reschedule(hears(two), id, paused(true))
				b.await(id, hasNoOwner)
				if took := time.Since(began); took > 10*time.Second {
					t.Errorf("the job stopped %v after the pause", took)
				}
				sent := one.engine.calls.Load() + two.engine.calls.Load()
				time.Sleep(time.Minute)
				if now := one.engine.calls.Load() + two.engine.calls.Load(); now != sent {
					t.Errorf("%d rows were sent during the pause", now-sent)
				}
				b.reschedule(two.system, id, paused(false))
				b.checkEcho(b.end(id), texts)
				ranOnce(t, texts, one, two)
			})
		})
	}
}

// A job that gets priority 0 while it runs goes before other jobs.
func TestANewPriorityAppliesToRunningJobs(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T) {
		b, net := setup(t, nil), newNetwork()
		one := b.join(net, "one", &scripted{answer: slowly(20 * time.Millisecond)})
		two := b.join(net, "two", &scripted{answer: slowly(20 * time.Millisecond)})
		long, short := numbered(10_000), numbered(4_000)
		first := b.submitTo(one, rowmill.Spec{Spooled: b.spool(long), Priority: rowmill.Production})
		b.await(first, func(r store.Record) bool { return r.Job.RowsDone > 0 })
		second := b.submitTo(one, rowmill.Spec{Spooled: b.spool(short), Priority: rowmill.Production})
		claimed := b.await(second, func(r store.Record) bool { return r.Job.RowsDone > 0 })
		b.reschedule(two.system, second, store.Schedule{Priority: &store.Reprioritize{Priority: rowmill.Prototyping}})
		begun := b.await(second, func(r store.Record) bool { return r.Epoch > claimed.Epoch && r.Job.RowsDone > claimed.Job.RowsDone })
		before := must.Get(b.store.Get(t.Context(), first))(t).Job.RowsDone
		b.checkEcho(b.end(second), short)
		meanwhile := must.Get(b.store.Get(t.Context(), first))(t).Job.RowsDone - before
		t.Logf("%d rows of the urgent job ran, and %d of the other job", 4_000-begun.Job.RowsDone, meanwhile)
		if urgent := 4_000 - begun.Job.RowsDone; meanwhile > urgent/2 {
			t.Errorf("while %d rows of the urgent job ran, %d rows of the other job ran too", urgent, meanwhile)
		}
		b.checkEcho(b.end(first), long)
	})
}

// A pause also takes effect if a node with running rows is lost meanwhile. Its rows run again after
// the pause.
func TestAPauseOutlastsALostWorker(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T) {
		b, net := setup(t, nil), newNetwork()
		one := b.join(net, "one", nil)
		two := b.join(net, "two", &scripted{answer: slowly(10 * time.Second)})
		texts := numbered(30)
		id := b.submitTo(one, rowmill.Spec{Spooled: b.spool(texts)})
		b.await(id, func(store.Record) bool { return two.engine.calls.Load() > 0 })
		two.gone.Store(true)
		b.reschedule(one.system, id, paused(true))
		b.await(id, hasNoOwner)
		b.join(net, "three", &scripted{answer: slowly(10 * time.Millisecond)})
		b.reschedule(one.system, id, paused(false))
		b.checkEcho(b.end(id), texts)
	})
}

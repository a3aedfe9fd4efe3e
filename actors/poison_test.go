package actors_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/actors"
	"github.com/rowmill/rowmill/engine"
	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/store"
)

// tried creates a job that these owners have claimed one after the other and lost
// before any row was done, as if their processes had crashed.
func (b *rig) tried(owners ...store.Claim) (id string) {
	b.t.Helper()
	job := rowmill.Job{ID: rowmill.NewJobID(), Status: rowmill.StatusPending, RunType: rowmill.RunFull, Model: writer.ID, JobTimes: rowmill.JobTimes{Created: time.Now().UTC()}}
	spec := rowmill.Spec{Account: "default", Model: writer, Inline: numbered(3)}
	if _, _, err := b.store.Create(b.t.Context(), store.Record{Job: job, Spec: spec}, nil); err != nil {
		b.t.Fatal(err)
	}
	b.lost(job.ID, owners...)
	return job.ID
}

// lost lets owners claim a job one after the other and end.
func (b *rig) lost(id string, owners ...store.Claim) {
	b.t.Helper()
	for _, by := range owners {
		session, err := b.store.OpenSession(b.t.Context(), by.Node, time.Minute)
		if err == nil {
			_, err = b.store.Claim(b.t.Context(), id, session, by)
		}
		if err == nil {
			err = b.store.CloseSession(b.t.Context(), session)
		}
		must.Succeed(b.t, err)
	}
}

// A job that ran alone in two processes that ended is parked. It names the owners, and
// disturbs no other job. It runs again after a while, or when an operator releases it.
func TestAJobThatEndsItsOwnersIsParked(t *testing.T) {
	t.Parallel()
	for name, released := range map[string]bool{"until its time": false, "until it is released": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inVirtualTime(t, func(t *testing.T) {
				b := setup(t, nil)
				b.cfg.Ownership.ParkTime = 10 * time.Minute
				e := &scripted{answer: echo, name: "scripted", models: served()}
				b.cfg.Engines = append(b.cfg.Engines, e)
				guilty := b.tried(store.Claim{Node: "east", Process: "east-1"}, store.Claim{Node: "east", Process: "east-2", Alone: true}, store.Claim{Node: "west", Process: "west-1", Alone: true})
				innocent := b.tried(store.Claim{Node: "east", Process: "east-1"})
				b.start()
				rec := b.await(guilty, func(r store.Record) bool { return r.Job.ParkedUntil != nil })
				for _, want := range []string{"Parked, ", "3 processes in a row", "east, which claimed it at 20", "west, which claimed it at 20", "rowmill jobs release " + guilty} {
					if !strings.Contains(rec.Job.Message, want) {
						t.Errorf("the message does not say %q: %s", want, rec.Job.Message)
					}
				}
				b.checkEcho(b.end(innocent), numbered(3))
				b.checkEcho(b.end(b.submit(rowmill.Spec{Inline: numbered(10)})), numbered(10))
				time.Sleep(9 * time.Minute)
				if rec, err := b.store.Get(t.Context(), guilty); err != nil || rec.Session != "" || rec.Job.Status.IsTerminal() || e.tries["row 0"] != 2 {
					t.Errorf("owner %q, %s, row 0 has run %d times, want 2 of other jobs: %v", rec.Session, rec.Job.Status, e.tries["row 0"], err)
				}
				if released {
					must.Succeed(t, b.store.Unpark(t.Context(), guilty))
				}
				if rec := b.end(guilty); rec.Job.ParkedUntil != nil {
					t.Errorf("the job has ended and is parked until %v", rec.Job.ParkedUntil)
				} else {
					b.checkEcho(rec, numbered(3))
				}
			})
		})
	}
}

// If the process of a node ended while a job ran alone, another node takes the job, even
// if it comes later in the order of nodes.
func TestASuspectIsTakenOnAnotherNode(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T) {
		b, net := setup(t, nil), newNetwork()
		nodes := []*host{b.join(net, "east", &scripted{answer: echo}), b.join(net, "west", &scripted{answer: echo})}
		time.Sleep(time.Second) // the nodes learn of each other
		cut := func(now bool) {
			for _, h := range nodes {
				h.cut.Store(now)
			}
		}
		for range 8 { // both orders of the two nodes
			cut(true) // so that they claim nothing before the job has all its owners
			id := b.tried(store.Claim{Node: "east", Process: "east-0"}, store.Claim{Node: "east", Process: "east-1", Alone: true})
			cut(false)
			rec := b.end(id)
			b.checkEcho(rec, numbered(3))
			if claim := rec.Events[len(rec.Events)-1]; claim.Node != "west" {
				t.Errorf("node %s has taken the job", claim.Node)
			}
		}
	})
}

// Owners that have only lost their session are no reason to suspect a job.
func TestAJobOfOwnersThatLiveGoesOn(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T) {
		b := setup(t, nil)
		id := b.tried(store.Claim{Node: "east", Process: "east", Alone: true}, store.Claim{Node: "west", Process: "west", Alone: true})
		net := newNetwork()
		ownsNone := func(c *actors.Config) { c.Ownership.OwnsNone = true }
		b.join(net, "east", &scripted{answer: echo}, ownsNone)
		b.join(net, "west", &scripted{answer: echo}, ownsNone)
		b.join(net, "south", &scripted{answer: echo})
		b.checkEcho(b.end(id), numbered(3))
	})
}

// A missing owner counts as ended only if the node can know it.
func TestAJobOfOwnersThatAreMissed(t *testing.T) {
	t.Parallel()
	ownsNone := func(c *actors.Config) { c.Ownership.OwnsNone = true }
	for name, test := range map[string]struct {
		again, before []string // again: nodes that run again; before: nodes that ran before
		other         bool     // another node is present all the time
		parks         bool
	}{
		"no other node":              {},
		"no process was seen before": {other: true},
		"one runs again":             {again: []string{"east"}},
		"both run again":             {again: []string{"east", "west"}, parks: true},
		"all other nodes are gone":   {before: []string{"east", "west"}},
		"another node is present":    {before: []string{"east", "west"}, other: true, parks: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inVirtualTime(t, func(t *testing.T) {
				b, net := setup(t, nil), newNetwork()
				if test.other {
					b.join(net, "north", nil, ownsNone)
				}
				process := map[string]string{"east": "east-1", "west": "west-1"}
				for _, node := range test.again {
					b.join(net, node, nil, ownsNone)
				}
				var gone []*host
				for _, node := range test.before {
					process[node] = node
					gone = append(gone, b.join(net, node, nil, ownsNone))
				}
				south := b.join(net, "south", &scripted{answer: echo})
				b.system = south.system
				b.checkEcho(b.end(b.submit(rowmill.Spec{Inline: numbered(1)})), numbered(1)) // after it the node has seen all members
				for _, h := range gone {
					h.gone.Store(true)
				}
				net.tell()
				south.cut.Store(true) // so that it claims nothing before the others have
				id := b.tried(store.Claim{Node: "east", Process: process["east"], Alone: true}, store.Claim{Node: "west", Process: process["west"], Alone: true})
				south.cut.Store(false)
				if test.parks {
					b.await(id, func(r store.Record) bool { return r.Job.ParkedUntil != nil })
				} else {
					b.checkEcho(b.end(id), numbered(3))
				}
			})
		})
	}
}

// A job that waits for an engine does not count against its present owner, but it stays a
// suspect for its earlier owners: when the engine is there, it runs alone.
func TestASuspectThatWaitsRunsAlone(t *testing.T) {
	t.Parallel()
	for name, long := range map[string]bool{"for a moment": false, "until another job waits too": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inVirtualTime(t, func(t *testing.T) { suspectThatWaits(t, long) })
		})
	}
}

func suspectThatWaits(t *testing.T, long bool) {
	b := setup(t, nil)
	b.cfg.Node = "south"
	waits := func(r store.Record) bool {
		return r.Session != "" && strings.HasPrefix(r.Job.Message, "Waiting for an engine") && !r.HasOwnersClaim()
	}
	b.start()
	suspect := b.submit(rowmill.Spec{Inline: numbered(3)})
	b.await(suspect, waits) // its input is read
	must.Succeed(t, b.system.Stop(t.Context()))
	b.lost(suspect, store.Claim{Node: "east", Process: "east-1"}, store.Claim{Node: "east", Process: "east-2"})
	b.start()
	if rec := b.await(suspect, waits); len(rec.Claims) != 2 {
		t.Errorf("while it waits its earlier owners are %+v, want both", rec.Claims)
	}
	var other string
	if long {
		other = b.submit(rowmill.Spec{Inline: numbered(1)})
		b.await(other, waits)
	}
	let := make(chan struct{})
	b.system.Attach(&scripted{name: "late", models: served(), answer: func(ctx context.Context, row string, try int) (engine.Reply, error) {
		select {
		case <-let:
		case <-ctx.Done():
		}
		return echo(ctx, row, try)
	}})
	b.await(suspect, func(r store.Record) bool { return r.HasOwnersClaim() && r.Claims[len(r.Claims)-1].Alone })
	close(let)
	b.checkEcho(b.end(suspect), numbered(3))
	if long {
		b.checkEcho(b.end(other), numbered(1))
	}
}

// A job that waits for an engine is not suspected of crashing its owners.
func TestAJobThatWaitsIsNoSuspect(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T) {
		b := setup(t, nil)
		b.cfg.Node = "south"
		id := b.tried(store.Claim{Node: "east", Process: "east-1"})
		b.start()
		b.await(id, func(r store.Record) bool {
			return strings.HasPrefix(r.Job.Message, "Waiting for an engine") && len(r.Claims) == 0
		})
		b.system.Attach(&scripted{answer: echo, name: "late", models: served()})
		b.checkEcho(b.end(id), numbered(3))
	})
}

// A node that stops also gives back jobs that it could not drain.
func TestJobsThatCannotBeDrainedAreGivenBack(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T) {
		begun := make(chan struct{}, 8)
		var log lines
		b := setup(t, &scripted{answer: func(ctx context.Context, _ string, _ int) (r engine.Reply, err error) {
			begun <- struct{}{}
			<-ctx.Done()
			return r, ctx.Err()
		}}, func(c *actors.Config) {
			c.DrainTimeout, c.Logger = 100*time.Millisecond, slog.New(slog.NewTextHandler(&log, nil))
		})
		id := b.submit(rowmill.Spec{Inline: numbered(2)})
		<-begun
		if err := b.system.Stop(t.Context()); err == nil {
			t.Error("Stop does not report rows that hang")
		}
		if want := "the drain has not finished this work"; !strings.Contains(log.String(), want) || !strings.Contains(log.String(), "job="+id) {
			t.Errorf("the log does not say what hangs:\n%s", log.String())
		}
		rec, err := b.store.Get(t.Context(), id)
		if err != nil || rec.Session != "" || rec.Job.Status != rowmill.StatusRunning {
			t.Errorf("session %q, %s, %v: want a running job that is given back", rec.Session, rec.Job.Status, err)
		}
	})
}

// While a suspect is on trial the node claims nothing else, but not for long.
func TestASuspectIsTakenUpAlone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		t.Cleanup(func() { time.Sleep(time.Second) }) // the dead-letter throttle of the actor library ends by itself
		b := setup(t, nil)
		let := make(chan struct{})
		south := b.join(newNetwork(), "south", &scripted{answer: func(ctx context.Context, row string, try int) (engine.Reply, error) {
			if row == "first" {
				return echo(ctx, row, try)
			}
			select {
			case <-let:
			case <-ctx.Done():
			}
			return echo(ctx, row, try)
		}})
		b.system = south.system
		b.checkEcho(b.end(b.submit(rowmill.Spec{Inline: []string{"first"}})), []string{"first"}) // a job that waits for its engine does not run alone
		south.cut.Store(true)                                                                    // so that it claims nothing before the job has all its owners
		suspect := b.tried(store.Claim{Node: "east", Process: "east-1"}, store.Claim{Node: "east", Process: "east-2"})
		south.cut.Store(false)
		b.await(suspect, func(r store.Record) bool { n := len(r.Claims); return n > 0 && r.Claims[n-1].Alone }) // its input may be read later
		other := b.submit(rowmill.Spec{Inline: numbered(1)})
		time.Sleep(8 * time.Second)
		if rec, err := b.store.Get(t.Context(), other); err != nil || rec.Session != "" {
			t.Errorf("another job is claimed meanwhile, %v", err)
		}
		time.Sleep(3 * time.Second)
		if rec, err := b.store.Get(t.Context(), other); err != nil || rec.Session == "" {
			t.Errorf("another job waits for ever, %v", err)
		}
		if rec, err := b.store.Get(t.Context(), suspect); err != nil || len(rec.Claims) == 0 || rec.Claims[len(rec.Claims)-1].Alone {
			t.Errorf("the owners in its record are %+v, %v", rec.Claims, err)
		}
		close(let)
		b.checkEcho(b.end(suspect), numbered(3))
		b.checkEcho(b.end(other), numbered(1))
	})
}

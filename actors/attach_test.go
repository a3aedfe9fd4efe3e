package actors_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/actors"
	"github.com/rowmill/rowmill/engine"
	"github.com/rowmill/rowmill/internal/wait"
	"github.com/rowmill/rowmill/store"
)

// without starts a System without engines.
func without(c *actors.Config) { c.Engines = nil }

// engines polls until the node has exactly the engines with these names, all of
// them up.
func (b *rig) engines(names ...string) []actors.EngineStatus {
	b.t.Helper()
	var known []actors.EngineStatus
	wait.Until(b.t, func() error {
		known = b.system.Engines()
		got := make([]string, 0, len(known))
		for _, e := range known {
			if e.Up {
				got = append(got, e.Name)
			}
		}
		if len(got) != len(known) || !slices.Equal(got, names) {
			return fmt.Errorf("engines are %+v, want %v", known, names)
		}
		return nil
	})
	return known
}

func served() []engine.ServedModel {
	return []engine.ServedModel{{Name: "writer"}, {Name: "embedder"}}
}

// No engine serves the model until one is attached. A second engine with the same
// name gets no row.
func TestAttachedEngineRunsWhatWaited(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T) {
		e := &scripted{answer: echo}
		b := setup(t, e, without)
		texts := numbered(250)
		id := b.submit(rowmill.Spec{Spooled: b.spool(texts)})
		b.await(id, func(r store.Record) bool {
			return r.Job.Status == rowmill.StatusStarting && r.Job.Message == "Waiting for an engine that serves writer."
		})
		second := &scripted{name: "scripted", answer: echo, models: served()}
		began := time.Now()
		b.system.Attach(e)
		b.system.Attach(second)
		rec := b.end(id)
		b.checkEcho(rec, texts)
		if e := rec.Events; len(e) < 2 || e[0].What != store.EventClaimed || e[0].Node != "node" || e[0].At != rec.Epoch || e[0].Lost ||
			e[1].What != store.EventWaits || e[1].Reason != "Waiting for an engine that serves writer." || e[1].Until < e[1].At {
			t.Errorf("the events in its record are %+v", e)
		}
		if n := second.calls.Load(); n != 0 {
			t.Errorf("the second engine with the name got %d rows", n)
		}
		status := b.engines("scripted")[0]
		if status.Since.Before(began) || status.Since.After(time.Now()) {
			t.Errorf("up since %v, attached at %v", status.Since, began)
		}
		if limit, inFlight, queued := status.Load(); limit < 1 || inFlight != 0 || queued != 0 {
			t.Errorf("a window of %d rows, %d in flight, %d waiting", limit, inFlight, queued)
		}
	})
}

// A detached engine gets no more rows: rows in flight finish, and rows that wait
// for it go to other engines. No row is lost or counts an attempt.
func TestDetachedEngineGivesItsRowsBack(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T) {
		holding := make(chan struct{})
		e := &scripted{}
		e.answer = func(ctx context.Context, row string, try int) (engine.Reply, error) {
			select {
			case <-holding:
			case <-ctx.Done():
				return engine.Reply{}, ctx.Err()
			}
			return echo(ctx, row, try)
		}
		b := setup(t, e)
		texts := numbered(250)
		id := b.submit(rowmill.Spec{Spooled: b.spool(texts)})
		b.await(id, func(store.Record) bool {
			known := b.system.Engines()
			if len(known) != 1 {
				return false
			}
			_, inFlight, queued := known[0].Load()
			return inFlight > 0 && queued > 0
		})
		b.system.Detach("nobody") // an unknown name is ignored
		b.system.Detach("scripted")
		b.engines()

		other := &scripted{name: "other", answer: echo, models: served()}
		b.system.Attach(other)
		b.await(id, func(store.Record) bool { return other.calls.Load()+e.calls.Load() == int64(len(texts)) })
		held := e.calls.Load()
		close(holding)
		b.checkEcho(b.end(id), texts)
		if got := e.calls.Load(); got != held {
			t.Errorf("the detached engine got %d more rows", got-held)
		}
		b.engines("other")
	})
}

// The name of an engine that is leaving can be used again at once.
func TestAttachAfterDetachOfTheSameName(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T) {
		b := setup(t, &scripted{answer: slowly(time.Millisecond)})
		texts := numbered(250)
		id := b.submit(rowmill.Spec{Spooled: b.spool(texts)})
		for range 20 {
			b.system.Detach("scripted")
			b.system.Attach(&scripted{name: "scripted", answer: slowly(time.Millisecond), models: served()})
		}
		b.checkEcho(b.end(id), texts)
		b.engines("scripted")
	})
}

// A record shows the servers that ran rows, and warns if they differ.
func TestServersOfAJob(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T) {
		of := func(name, revision string) *scripted {
			return &scripted{name: name, answer: slowly(100 * time.Millisecond), models: []engine.ServedModel{{Name: "writer", Revision: revision}}}
		}
		b := setup(t, of("first", "a"))
		rec := b.end(b.submit(rowmill.Spec{Inline: numbered(20)}))
		if !slices.Equal(rec.Job.Servers, []string{"scripted, model writer, revision a"}) || len(rec.Job.Warnings) > 0 {
			t.Errorf("servers %q, warnings %q", rec.Job.Servers, rec.Job.Warnings)
		}
		b.system.Attach(of("equal", "a"))
		b.system.Attach(of("other", "b"))
		time.Sleep(10 * time.Second)
		rec = b.end(b.submit(rowmill.Spec{Spooled: b.spool(numbered(2000))}))
		if len(rec.Job.Servers) != 2 || len(rec.Job.Warnings) != 1 || !strings.Contains(rec.Job.Warnings[0], "The servers of this job differ: scripted, model writer, revision") {
			t.Errorf("servers %q, warnings %q", rec.Job.Servers, rec.Job.Warnings)
		}
	})
}

// A record shows the parameters that were sent.
func TestARecordShowsTheParametersThatWereSent(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T) {
		e := &scripted{answer: echo, models: []engine.ServedModel{{Name: "writer", ContextLength: 200}}}
		b := setup(t, e)
		model := writer
		model.Sampling = map[string]any{"max_tokens": int64(4096), "temperature": 0.5}
		rec := b.end(b.submit(rowmill.Spec{Inline: numbered(3), Model: model, Sampling: model.Sampling}))
		if shown := fmt.Sprintf("%v %v", rec.Job.Sampling["max_tokens"], rec.Job.Sampling["temperature"]); shown != "100 0.5" || len(rec.Job.Warnings) != 1 {
			t.Errorf("the record shows %v, and warns %q", rec.Job.Sampling, rec.Job.Warnings)
		}
		if asked := fmt.Sprint(rec.Spec.Sampling["max_tokens"]); asked != "4096" {
			t.Errorf("max_tokens of the job is %s", asked)
		}
	})
}

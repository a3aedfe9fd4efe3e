package actors_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/actors"
	"github.com/rowmill/rowmill/engine"
	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/internal/wait"
	"github.com/rowmill/rowmill/store"
)

// answersUntil answers some rows and holds the others until hold is closed.
func answersUntil(hold chan struct{}, free func(row string) bool) func(context.Context, string, int) (engine.Reply, error) {
	return func(ctx context.Context, row string, try int) (engine.Reply, error) {
		if !free(row) {
			select {
			case <-hold:
			case <-ctx.Done():
				return engine.Reply{}, ctx.Err()
			}
		}
		return echo(ctx, row, try)
	}
}

// The owner of a job answers where the job's rows are, on a question to any node.
func TestWhereRowsAre(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T) {
		b, net := setup(t, nil), newNetwork()
		hold := make(chan struct{})
		const few = 2
		var asked atomic.Int64
		gated := func() *scripted {
			return &scripted{answer: answersUntil(hold, func(string) bool { return asked.Add(1) <= few })}
		}
		hosts := []*host{b.join(net, "one", gated()), b.join(net, "two", gated()), b.join(net, "three", nil)}
		texts := numbered(40)
		id := b.submitTo(hosts[0], rowmill.Spec{Spooled: b.spool(texts)})
		b.await(id, func(r store.Record) bool { return r.Job.RowsDone == few })
		where := func(h *host) (actors.RowDistribution, error) {
			rec := must.Get(b.store.Get(t.Context(), id))(t)
			return h.system.RowDistribution(t.Context(), &rec)
		}
		wait.Until(t, func() error {
			answers := map[string]bool{}
			for _, h := range hosts {
				w, err := where(h)
				if err != nil {
					return err
				}
				assigned, done := int64(0), int64(0)
				for i, n := range w.Nodes {
					if n.Node != []string{"one", "two"}[i] || n.Assigned == 0 {
						return fmt.Errorf("%s says %+v", h.member.ID, w)
					}
					assigned, done = assigned+n.Assigned, done+n.Done
					w.Nodes[i].Rate = nil // it shrinks with time
				}
				if len(w.Nodes) != 2 || w.Shards != 1 || w.Complete != 0 || done != few || assigned+done != int64(len(texts)) {
					return fmt.Errorf("%s says %+v", h.member.ID, w)
				}
				text, err := json.Marshal(w)
				if err != nil {
					return err
				}
				answers[string(text)] = true
			}
			if len(answers) != 1 {
				return fmt.Errorf("the nodes say %v", answers)
			}
			return nil
		})
		for _, h := range hosts { // a version without this request
			h.deaf.Store(true)
		}
		for _, h := range hosts {
			if rec, err := b.store.Get(t.Context(), id); err != nil {
				t.Fatal(err)
			} else if claim, _ := rec.OwnerClaim(); claim.Process == h.member.ID {
				continue // the owner asks itself
			}
			if w, err := where(h); !errors.Is(err, rowmill.ErrNotFound) {
				t.Errorf("%s says %+v, %v", h.member.ID, w, err)
			}
		}
		close(hold)
		rec := b.end(id)
		b.checkEcho(rec, texts)
		for _, h := range hosts {
			h.deaf.Store(false)
		}
		wait.Until(t, func() error { // no node has the job any more
			for _, h := range hosts {
				if w, err := h.system.RowDistribution(t.Context(), &rec); !errors.Is(err, rowmill.ErrNotFound) {
					return fmt.Errorf("%s says %+v, %w", h.member.ID, w, err)
				}
			}
			return nil
		})
		if _, err := hosts[0].system.RowDistribution(t.Context(), &store.Record{Job: rowmill.Job{ID: id}}); !errors.Is(err, rowmill.ErrNotFound) {
			t.Errorf("a job without an owner: %v", err)
		}
	})
}

// Before the rows are counted there is no answer. A single node asks itself.
func TestWhereRowsAreOnASingleNode(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T) {
		hold := make(chan struct{})
		b := setup(t, &scripted{answer: answersUntil(hold, func(string) bool { return false })}, func(c *actors.Config) { c.Node = "alone" })
		texts := numbered(7)
		id := b.submit(rowmill.Spec{Inline: texts})
		wait.Until(t, func() error {
			w, err := b.system.RowDistribution(t.Context(), &store.Record{Job: rowmill.Job{ID: id}})
			if err != nil {
				if !errors.Is(err, rowmill.ErrNotFound) {
					t.Fatal(err)
				}
				return err
			}
			if len(w.Nodes) != 1 || w.Nodes[0].Node != "alone" || w.Nodes[0].Assigned != 7 {
				return fmt.Errorf("it says %+v", w)
			}
			return nil
		})
		close(hold)
		b.checkEcho(b.end(id), texts)
	})
}

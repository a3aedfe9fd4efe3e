package actors_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/actors"
	"github.com/rowmill/rowmill/actors/nodes"
	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/internal/wait"
)

// find returns the status of a node by name, as another node sees it.
func find(t *testing.T, s *actors.System, name string) nodes.Status {
	t.Helper()
	st := must.Get(nodes.Find(s.Nodes(), name))(t)
	return st
}

func asked(s *actors.System) bool {
	select {
	case <-s.DrainRequested():
		return true
	default:
		return false
	}
}

func TestNodesKnowOfEachOther(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T) {
		b, net := setup(t, nil), newNetwork()
		version := func(c *actors.Config) { c.Version = "v7" }
		one := b.join(net, "one", &scripted{answer: echo}, version)
		two := b.join(net, "two", nil, version, func(c *actors.Config) { c.Ownership.OwnsNone = true })
		wait.Until(t, func() error {
			for _, s := range []*actors.System{one.system, two.system} {
				st := find(t, s, "one")
				if st.Window < 1 || len(st.Models) != 2 || st.Version != "v7" || !st.Owns || !st.Engines || st.Since.IsZero() {
					return fmt.Errorf("one is %+v", st)
				}
				if st := find(t, s, "two"); st.Version != "v7" || st.Owns || st.Engines || st.Window != 0 {
					return fmt.Errorf("two is %+v", st)
				}
			}
			return nil
		})
		if st := find(t, two.system, ""); st.Name != "two" || !st.Self || find(t, one.system, "two").Self {
			t.Errorf("two sees itself as %+v", st)
		}
	})
}

func TestANodeIsAskedToDrain(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T) {
		b, net := setup(t, nil), newNetwork()
		one, two := b.join(net, "one", &scripted{answer: echo}), b.join(net, "two", &scripted{answer: echo})
		if err := one.system.DrainNode(t.Context(), "three"); !errors.Is(err, rowmill.ErrNotFound) {
			t.Errorf("an unknown node: %v", err)
		}
		if err := one.system.DrainNode(t.Context(), "two"); err != nil {
			t.Errorf("another node: %v", err)
		}
		wait.For(t, "two is asked to drain", func() bool { return asked(two.system) }) // it answers first
		if asked(one.system) {
			t.Error("the node that passed the request on drains too")
		}
		wait.For(t, "one knows that two drains", func() bool { return find(t, one.system, "two").Draining })
		if err := one.system.DrainNode(t.Context(), ""); err != nil || !asked(one.system) {
			t.Errorf("this node: %v", err)
		}
		two.gone.Store(true)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := one.system.DrainNode(ctx, "two"); err == nil {
			t.Error("a node that is gone was asked to drain")
		}
	})
}

func TestASingleNode(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T) {
		b := setup(t, &scripted{answer: echo}, func(c *actors.Config) { c.Node, c.Version = "alone", "v7" })
		b.engines("scripted")
		wait.Until(t, func() error {
			list := b.system.Nodes()
			if len(list) != 1 || !list[0].Self || list[0].Name != "alone" || list[0].Version != "v7" || list[0].Window < 1 || list[0].Draining {
				return fmt.Errorf("it is %+v", list)
			}
			return nil
		})
		if err := b.system.DrainNode(t.Context(), "alone"); err != nil || !asked(b.system) {
			t.Errorf("a single node cannot be asked to drain: %v", err)
		}
		if err := b.system.Drain(t.Context()); err != nil || !b.system.Nodes()[0].Draining {
			t.Errorf("it does not drain: %v", err)
		}
	})
}

func TestASingleNodeReportsItsLoad(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T) {
		b := setup(t, &scripted{answer: slowly(time.Minute)})
		id := b.submit(rowmill.Spec{Inline: numbered(20)})
		wait.Until(t, func() error {
			if n := b.system.Nodes()[0]; n.Jobs != 1 || n.InFlight < 1 || n.InFlight > n.Window {
				return fmt.Errorf("while a job runs, the node is %+v", n)
			}
			return nil
		})
		b.end(id)
		wait.Until(t, func() error {
			if n := b.system.Nodes()[0]; n.Jobs != 0 || n.InFlight != 0 {
				return fmt.Errorf("after the job, the node is %+v", n)
			}
			return nil
		})
	})
}

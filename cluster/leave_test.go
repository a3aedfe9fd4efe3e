package cluster

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/internal/wait"
)

// TestGoodbyePassedOn leaves while one member cannot be reached directly.
func TestGoodbyePassedOn(t *testing.T) {
	t.Parallel()
	w := newWires()
	reg := prometheus.NewRegistry()
	a := open(t, w.attach(quick("a")))
	b := open(t, w.attach(quick("b", a.address())))
	cut := w.attach(quick("c", a.address()))
	cut.Metrics = reg
	c := open(t, cut)
	wantNodes(t, []string{"a", "b", "c"}, a, b, c)
	w.set(true, []*Cluster{b}, []*Cluster{c})
	must.Succeed(t, b.Leave(t.Context()))
	wantNodes(t, []string{"a", "c"}, a, c)
	wantMemberGauges(t, reg, 2, 1, 0)
}

// TestLeaveTogether lets all members leave at once: none waits for members that are
// gone.
func TestLeaveTogether(t *testing.T) {
	t.Parallel()
	for range 5 {
		a := open(t, quick("a"))
		b, c := open(t, quick("b", a.address())), open(t, quick("c", a.address()))
		wantNodes(t, []string{"a", "b", "c"}, a, b, c)
		began := time.Now()
		var leaving errgroup.Group
		for _, member := range []*Cluster{a, b, c} {
			leaving.Go(func() error { return member.Leave(t.Context()) })
		}
		if err := leaving.Wait(); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took > leaveTimeout/2 {
			t.Errorf("leaving took %v", took)
		}
	}
}

// TestLeaveAtOnce leaves without waiting for gossip packets.
func TestLeaveAtOnce(t *testing.T) {
	t.Parallel()
	a := open(t, silent("a"))
	b, c := open(t, silent("b", a.address())), open(t, silent("c", a.address()))
	wantNodes(t, []string{"a", "b", "c"}, a, b, c)
	began := time.Now()
	must.Succeed(t, b.Leave(t.Context()))
	if took := time.Since(began); took > leaveTimeout/2 {
		t.Errorf("leaving took %v", took)
	}
	wantNodes(t, []string{"a", "c"}, a, c)
	for _, m := range []*Cluster{a, c} {
		wait.For(t, "memberlist knows too, and does not probe the member that left", func() bool { return m.list.NumMembers() == 2 })
	}
}

// TestLeaveUnheard leaves while no member can receive the goodbye.
func TestLeaveUnheard(t *testing.T) {
	t.Parallel()
	w := newWires()
	a := open(t, w.attach(quick("a")))
	deaf := quick("b", a.address())
	deaf.Timing.ProbeInterval, deaf.Timing.GossipInterval = time.Hour, time.Hour // it sends no probes and no gossip
	b := open(t, w.attach(deaf))
	wantNodes(t, []string{"a", "b"}, a, b)
	w.set(true, []*Cluster{a}, []*Cluster{b})
	hurried, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := b.Leave(hurried); err == nil || !strings.Contains(err.Error(), "did not get through to 1 members") {
		t.Errorf("leave: %v", err)
	}
}

package cluster

import (
	"bytes"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/internal/wait"
)

// TestMain looks for leaked goroutines. After shutdown, memberlist still waits a while
// for the answer to its last probe.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/hashicorp/memberlist.(*Memberlist).probeNode"))
}

// quick returns the settings of a member on loopback with timers about ten times as
// fast as the defaults.
func quick(node string, join ...string) Config {
	return Config{
		Node: node, Bind: "127.0.0.1:0", Join: join, Peer: node + ":7001", API: node + ":8080", Protocol: 1,
		Timing: Timing{
			RejoinInterval: 300 * time.Millisecond, ProbeInterval: 600 * time.Millisecond, ProbeTimeout: 500 * time.Millisecond,
			GossipInterval: 20 * time.Millisecond, SyncInterval: time.Second, DeadTime: 200 * time.Millisecond,
			StreamTimeout: 2 * time.Second,
		},
	}
}

// silent returns the settings of a member that sends messages only directly: no gossip,
// no probes, and no full exchange except when it joins.
func silent(node string, join ...string) Config {
	cfg := quick(node, join...)
	cfg.Timing.ProbeInterval, cfg.Timing.GossipInterval, cfg.Timing.SyncInterval = time.Hour, time.Hour, time.Hour
	return cfg
}

// open starts a member and closes it at the end of the test.
func open(t *testing.T, cfg Config) *Cluster {
	t.Helper()
	c := must.Get(Open(t.Context(), cfg))(t)
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Errorf("close %s: %v", cfg.Node, err)
		}
	})
	return c
}

func (c *Cluster) address() string { return c.self.at.String() }

// nodes returns the sorted names of the members that c sees.
func (c *Cluster) nodes() []string {
	var names []string
	for _, m := range c.Members() {
		names = append(names, m.Node)
	}
	slices.Sort(names)
	return names
}

// stateOf returns the state of a node as c knows it.
func (c *Cluster) stateOf(node string) []byte {
	for _, m := range c.Members() {
		if m.Node == node {
			return m.State
		}
	}
	return nil
}

// wantNodes waits until each member sees exactly these nodes.
func wantNodes(t *testing.T, names []string, members ...*Cluster) {
	t.Helper()
	for _, c := range members {
		if !waitFor(c, func() bool { return slices.Equal(c.nodes(), names) }) {
			t.Fatalf("%s sees %v, want %v", c.cfg.Node, c.nodes(), names)
		}
	}
}

// wantState waits until each member knows this state of a node.
func wantState(t *testing.T, node string, state []byte, members ...*Cluster) {
	t.Helper()
	for _, c := range members {
		if !waitFor(c, func() bool { return bytes.Equal(c.stateOf(node), state) }) {
			t.Fatalf("%s has heard %.40q of %s, want %.40q", c.cfg.Node, c.stateOf(node), node, state)
		}
	}
}

// waitTimeout is far longer than a busy machine needs.
const waitTimeout = 30 * time.Second

// waitFor waits until a condition holds and checks it after each token of Changed. So a
// change without a token fails the test.
func waitFor(c *Cluster, holds func() bool) bool {
	late := time.After(waitTimeout)
	for !holds() {
		select {
		case <-c.Changed():
		case <-late:
			return false
		}
	}
	return true
}

// wires is a network with links that can be cut. Packets over a cut link are lost;
// connections fail.
type wires struct {
	mu  sync.Mutex
	cut map[string]bool // by from + to
}

func newWires() *wires { return &wires{cut: make(map[string]bool)} }

// set cuts or restores the links between all members of two sides, in both directions.
func (w *wires) set(cut bool, one, other []*Cluster) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, a := range one {
		for _, b := range other {
			w.cut[a.address()+b.address()] = cut
			w.cut[b.address()+a.address()] = cut
		}
	}
}

func (w *wires) isCut(from, to string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.cut[from+to]
}

// attach makes a member use these wires.
func (w *wires) attach(cfg Config) Config {
	cfg.transport = func(inner memberlist.NodeAwareTransport) memberlist.NodeAwareTransport {
		port := inner.(*gossipTransport).GetAutoBindPort()
		return &wired{NodeAwareTransport: inner, wires: w, from: fmt.Sprintf("127.0.0.1:%d", port)}
	}
	return cfg
}

type wired struct {
	memberlist.NodeAwareTransport
	wires *wires
	from  string
}

func (w *wired) WriteToAddress(b []byte, a memberlist.Address) (time.Time, error) {
	if w.wires.isCut(w.from, a.Addr) {
		return time.Now(), nil
	}
	return w.NodeAwareTransport.WriteToAddress(b, a)
}

func (w *wired) DialAddressTimeout(a memberlist.Address, timeout time.Duration) (net.Conn, error) {
	if w.wires.isCut(w.from, a.Addr) {
		return nil, fmt.Errorf("dial %s: the wire is cut", a.Addr)
	}
	return w.NodeAwareTransport.DialAddressTimeout(a, timeout)
}

// logBuffer is a log that tests can search.
type logBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (j *logBuffer) Write(b []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(b)
}

func (j *logBuffer) logger() *slog.Logger { return slog.New(slog.NewTextHandler(j, nil)) }

func (j *logBuffer) count(text string) int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return strings.Count(j.text.String(), text)
}

// metricValue reads one series; labels are "name=value".
func metricValue(t *testing.T, reg *prometheus.Registry, name string, labels ...string) float64 {
	t.Helper()
	families := must.Get(reg.Gather())(t)
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			var got []string
			for _, label := range metric.GetLabel() {
				got = append(got, label.GetName()+"="+label.GetValue())
			}
			if family.GetName() == name && slices.Equal(got, labels) {
				return metric.GetGauge().GetValue() + metric.GetCounter().GetValue()
			}
		}
	}
	return 0
}

// wantMemberGauges waits until the gauges have these values: a goodbye may come shortly
// after the failed probe that it explains.
func wantMemberGauges(t *testing.T, reg *prometheus.Registry, alive, left, dead float64) {
	t.Helper()
	wait.For(t, fmt.Sprintf("%v members alive, %v left, %v dead", alive, left, dead), func() bool {
		return metricValue(t, reg, "rowmill_cluster_members", "state=alive") == alive &&
			metricValue(t, reg, "rowmill_cluster_members", "state=left") == left &&
			metricValue(t, reg, "rowmill_cluster_members", "state=dead") == dead
	})
}

package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/internal/wait"
)

func TestJoinAndLeave(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	first := quick("a")
	first.Metrics, first.Engines = reg, true
	a := open(t, first)
	wantNodes(t, []string{"a"}, a)
	owner := quick("b", a.address())
	owner.Owns = true
	b, c := open(t, owner), open(t, quick("c", a.address()))
	wantNodes(t, []string{"a", "b", "c"}, a, b, c)

	for _, m := range c.Members() {
		if m.Peer != m.Node+":7001" || m.API != m.Node+":8080" || m.Protocol != 1 || m.Engines != (m.Node == "a") || m.Owns != (m.Node == "b") {
			t.Errorf("announced: %+v", m)
		}
		if m.Self != (m.Node == "c") || !strings.HasPrefix(m.ID, m.Node+"-") || time.Since(m.Started) > time.Hour {
			t.Errorf("identity: %+v", m)
		}
	}
	if self := b.Self(); self.Node != "b" || !self.Self || !self.Owns {
		t.Errorf("Self: %+v", self)
	}

	must.Succeed(t, b.Leave(t.Context()))
	if err := b.Leave(t.Context()); err != nil {
		t.Errorf("leaving twice: %v", err)
	}
	wantNodes(t, []string{"a", "c"}, a, c)
	wantMemberGauges(t, reg, 2, 1, 0)
	if problems, err := testutil.GatherAndLint(reg); err != nil || len(problems) > 0 {
		t.Errorf("metrics: %v, %v", problems, err)
	}
}

// TestKill closes a member without a goodbye and starts another at the same address.
func TestKill(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	first := quick("a")
	first.Metrics = reg
	a := open(t, first)
	b, c := open(t, quick("b", a.address())), open(t, quick("c", a.address()))
	wantNodes(t, []string{"a", "b", "c"}, a, b, c)
	must.Succeed(t, b.Close())
	wantNodes(t, []string{"a", "c"}, a, c)
	wantMemberGauges(t, reg, 2, 0, 1)
	if lost := metricValue(t, reg, "rowmill_cluster_members_lost_total"); lost != 1 {
		t.Errorf("%v members were lost, want 1", lost)
	}
	wait.For(t, "a looks for the lost member", func() bool {
		return metricValue(t, reg, "rowmill_cluster_joins_total", "outcome=failed") > 0
	})

	// It has no Join, and the others find it at the old address.
	again := quick("b")
	again.Bind = b.address()
	b2 := open(t, again)
	wantNodes(t, []string{"a", "b", "c"}, a, b2, c)
	wantMemberGauges(t, reg, 3, 0, 0)
	if b2.Self().ID == b.Self().ID {
		t.Error("another process has the same ID")
	}
}

// TestRestart starts a member again before the others have noticed that the former one
// is gone: they never see both.
func TestRestart(t *testing.T) {
	t.Parallel()
	patient := func(node string, join ...string) Config {
		cfg := quick(node, join...)
		cfg.Timing.ProbeInterval, cfg.Timing.ProbeTimeout = time.Hour, time.Hour // no member notices anything
		return cfg
	}
	a := open(t, patient("a"))
	b := open(t, patient("b", a.address()))
	wantNodes(t, []string{"a", "b"}, a, b)
	must.Succeed(t, b.Close())
	again := patient("b", a.address())
	again.Bind = b.address()
	b2 := open(t, again)
	if !waitFor(a, func() bool { return a.Members()[1].ID == b2.Self().ID }) {
		t.Fatalf("a still sees %+v", a.Members())
	}
	wantNodes(t, []string{"a", "b"}, a, b2)
}

func TestSameNameTwice(t *testing.T) {
	t.Parallel()
	a := open(t, quick("twin"))
	b := open(t, quick("twin", a.address()))
	wantNodes(t, []string{"twin", "twin"}, a, b)
}

// TestNewcomer joins by one member, and all members see the newcomer.
func TestNewcomer(t *testing.T) {
	t.Parallel()
	a := open(t, silent("a"))
	b := open(t, silent("b", a.address()))
	wantNodes(t, []string{"a", "b"}, a, b)
	c := open(t, silent("c", b.address()))
	wantNodes(t, []string{"a", "b", "c"}, a, b, c)
	d := open(t, silent("d", a.address()))
	wantNodes(t, []string{"a", "b", "c", "d"}, a, b, c, d)
}

// TestState sends states of all sizes without gossip.
func TestState(t *testing.T) {
	t.Parallel()
	a := open(t, silent("a"))
	b := open(t, silent("b", a.address()))
	wantNodes(t, []string{"a", "b"}, a, b)
	c := open(t, silent("c", a.address()))
	wantNodes(t, []string{"a", "b", "c"}, a, b, c)
	if a.stateOf("b") != nil {
		t.Error("b has a state before its first SetState")
	}
	small := []byte(`{"models":["m"],"load":0.5}`)
	must.Succeed(t, b.SetState(small))
	wantState(t, "b", small, a, b, c)
	large := bytes.Repeat([]byte("x"), 16<<10)
	must.Succeed(t, b.SetState(large))
	wantState(t, "b", large, a, b, c)
	must.Succeed(t, b.SetState(small[:7]))
	wantState(t, "b", small[:7], a, b, c)

	// A later member gets all states, and all members get its state.
	must.Succeed(t, c.SetState(large))
	d := open(t, silent("d", c.address()))
	must.Succeed(t, d.SetState(small))
	wantState(t, "b", small[:7], d)
	wantState(t, "c", large, a, b, d)
	wantState(t, "d", small, a, b, c)

	if err := b.SetState(append(large, 'x')); err == nil || !strings.Contains(err.Error(), "at most 16384") {
		t.Errorf("too large a state: %v", err)
	}
	wantState(t, "b", small[:7], b)
}

// TestStateStorm publishes faster than states spread: the last state wins.
func TestStateStorm(t *testing.T) {
	t.Parallel()
	a := open(t, quick("a"))
	b := open(t, quick("b", a.address()))
	wantNodes(t, []string{"a", "b"}, a, b)
	var last []byte
	for i := range 200 {
		size := 100
		if i%3 == 0 {
			size = 5000
		}
		last = append(bytes.Repeat([]byte("x"), size), fmt.Sprint(i)...)
		must.Succeed(t, b.SetState(last))
	}
	wantState(t, "b", last, a)
}

// TestPartition splits a cluster of four for longer than memberlist remembers dead
// members, and joins the halves again. Only one half has an address of the other in its
// settings, and the member at that address has left.
func TestPartition(t *testing.T) {
	t.Parallel()
	w := newWires()
	seed := open(t, w.attach(quick("seed")))
	a := open(t, w.attach(quick("a", seed.address())))
	b := open(t, w.attach(quick("b", seed.address())))
	c := open(t, w.attach(quick("c", seed.address())))
	d := open(t, w.attach(quick("d", seed.address())))
	wantNodes(t, []string{"a", "b", "c", "d", "seed"}, a, b, c, d, seed)
	must.Succeed(t, seed.Leave(t.Context()))
	wantNodes(t, []string{"a", "b", "c", "d"}, a, b, c, d)

	w.set(true, []*Cluster{a, b}, []*Cluster{c, d})
	wantNodes(t, []string{"a", "b"}, a, b)
	wantNodes(t, []string{"c", "d"}, c, d)
	state := bytes.Repeat([]byte("during the partition"), 200)
	must.Succeed(t, c.SetState(state))
	wantState(t, "c", state, d)
	for _, m := range []*Cluster{a, b, c, d} {
		wait.For(t, "memberlist forgets the other half", func() bool { return m.list.NumMembers() == 2 && m.forgotten() })
	}

	w.set(false, []*Cluster{a, b}, []*Cluster{c, d})
	wantNodes(t, []string{"a", "b", "c", "d"}, a, b, c, d)
	wantState(t, "c", state, a, b)
}

// forgotten reports whether memberlist has dropped all dead members.
func (c *Cluster) forgotten() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, gone := range c.roster.gone {
		if time.Since(gone.since) < 2*c.cfg.Timing.DeadTime+5*c.cfg.Timing.ProbeInterval {
			return false
		}
	}
	return true
}

func TestKeys(t *testing.T) {
	t.Parallel()
	one, two := bytes.Repeat([]byte("1"), 32), bytes.Repeat([]byte("2"), 16)
	keyed := func(node string, keys [][]byte, join ...string) Config {
		cfg := quick(node, join...)
		cfg.Keys = keys
		return cfg
	}
	a := open(t, keyed("a", [][]byte{one, two}))
	b := open(t, keyed("b", [][]byte{two, one}, a.address()))
	wantNodes(t, []string{"a", "b"}, a, b)
	must.Succeed(t, a.SetState([]byte("secret")))
	wantState(t, "a", []byte("secret"), b)

	for name, keys := range map[string][][]byte{"wrong": {bytes.Repeat([]byte("3"), 32)}, "none": nil} {
		log := &logBuffer{}
		cfg := keyed(name, keys, a.address(), b.address())
		cfg.Logger = log.logger()
		stranger := open(t, cfg)
		wait.For(t, "the stranger is refused", func() bool { return log.count("no member found") == 2 })
		wantNodes(t, []string{name}, stranger)
	}
	wantNodes(t, []string{"a", "b"}, a, b)
}

// TestKeyRotation changes the key of a cluster of two in three steps, one member after
// the other, as SetKeys says. The two always hear each other, and in the end a member
// with only the old key is refused.
func TestKeyRotation(t *testing.T) {
	t.Parallel()
	before, after := bytes.Repeat([]byte("b"), 32), bytes.Repeat([]byte("a"), 32)
	keyed := func(node string, key []byte, join ...string) Config {
		cfg := quick(node, join...)
		cfg.Keys = [][]byte{key}
		return cfg
	}
	a := open(t, keyed("a", before))
	b := open(t, keyed("b", before, a.address()))
	wantNodes(t, []string{"a", "b"}, a, b)
	for step, keys := range [][][]byte{{before, after}, {after, before}, {after}} {
		for i, c := range []*Cluster{a, b} {
			must.Succeed(t, c.SetKeys(keys))
			said := fmt.Appendf(nil, "%d of step %d", i, step)
			must.Succeed(t, c.SetState(said))
			wantState(t, c.cfg.Node, said, a, b)
		}
	}
	wantNodes(t, []string{"a", "b"}, a, b)
	log := &logBuffer{}
	cfg := keyed("late", before, a.address())
	cfg.Logger = log.logger()
	late := open(t, cfg)
	wait.For(t, "the old key is refused", func() bool { return log.count("no member found") == 1 })
	wantNodes(t, []string{"late"}, late)
	open(t, keyed("c", after, a.address()))
	wantNodes(t, []string{"a", "b", "c"}, a, b)
}

func TestSetKeysRefuses(t *testing.T) {
	t.Parallel()
	clear, cfg := open(t, quick("clear")), quick("keyed")
	cfg.Keys = [][]byte{bytes.Repeat([]byte("1"), 32)}
	encrypted := open(t, cfg)
	for what, err := range map[string]error{
		"a key for gossip in the clear": clear.SetKeys(cfg.Keys),
		"no key":                        encrypted.SetKeys(nil),
		"a short one":                   encrypted.SetKeys([][]byte{[]byte("short")}),
	} {
		if err == nil {
			t.Errorf("%s is accepted", what)
		}
	}
}

// TestRekey checks that the ring holds exactly the new keys afterwards, the first one
// as the encrypting key, whatever keys it held before.
func TestRekey(t *testing.T) {
	t.Parallel()
	keys := func(names string) (keys [][]byte) {
		for _, name := range names {
			keys = append(keys, bytes.Repeat([]byte(string(name)), 16))
		}
		return keys
	}
	for _, test := range [][2]string{
		{"a", "ab"}, {"ab", "ba"}, {"ba", "b"}, {"abc", "ac"}, {"abc", "ca"}, {"abc", "de"}, {"abc", "bde"}, {"abcd", "dx"}, {"a", "a"}, {"abc", "xb"},
	} {
		ring := must.Get(memberlist.NewKeyring(keys(test[0]), keys(test[0])[0]))(t)
		walked := ring.GetKeys() // as a concurrent reader decrypts
		as := fmt.Sprintf("%s", walked)
		if err := rekey(ring, keys(test[1])); err != nil {
			t.Fatalf("%s to %s: %v", test[0], test[1], err)
		}
		got := ring.GetKeys()
		same := len(got) == len(test[1])
		for _, want := range keys(test[1]) {
			same = same && slices.ContainsFunc(got, func(k []byte) bool { return bytes.Equal(k, want) })
		}
		if !same || !bytes.Equal(ring.GetPrimaryKey(), keys(test[1])[0]) {
			t.Errorf("%s to %s: got %s", test[0], test[1], got)
		}
		if now := fmt.Sprintf("%s", walked); now != as {
			t.Errorf("%s to %s: keys moved under a reader: %s", test[0], test[1], now)
		}
	}
}

func TestLabel(t *testing.T) {
	t.Parallel()
	labelled := func(node, label string, join ...string) Config {
		cfg := quick(node, join...)
		cfg.Label = label
		return cfg
	}
	a := open(t, labelled("a", "blue"))
	b := open(t, labelled("b", "blue", a.address()))
	wantNodes(t, []string{"a", "b"}, a, b)
	log := &logBuffer{}
	cfg := labelled("c", "green", a.address())
	cfg.Logger = log.logger()
	c := open(t, cfg)
	wait.For(t, "the other label is refused", func() bool { return log.count("no member found") == 1 })
	if log.count(`\n`) > 0 {
		t.Error("a line of the log has line breaks in it")
	}
	wantNodes(t, []string{"c"}, c)
	wantNodes(t, []string{"a", "b"}, a, b)
}

func TestOtherProtocol(t *testing.T) {
	t.Parallel()
	log := &logBuffer{}
	cfg := quick("a")
	cfg.Logger = log.logger()
	a := open(t, cfg)
	newer := quick("b", a.address())
	newer.Protocol = 2
	open(t, newer)
	wantNodes(t, []string{"a", "b"}, a)
	if a.Members()[1].Protocol != 2 {
		t.Errorf("b speaks %d, want 2", a.Members()[1].Protocol)
	}
	wait.For(t, "it is logged", func() bool { return log.count("another version") == 1 })
}

// names is a resolver.
type names struct{ addrs atomic.Pointer[[]netip.Addr] }

func (n *names) LookupNetIP(_ context.Context, network, host string) ([]netip.Addr, error) {
	addrs := n.addrs.Load()
	if addrs == nil || network != "ip" || host != "rowmill-headless" {
		return nil, errors.New("no such host")
	}
	return append([]netip.Addr(nil), *addrs...), nil
}

// TestJoinDNS joins by a name that does not exist at first and then has two addresses,
// one without a member.
func TestJoinDNS(t *testing.T) {
	t.Parallel()
	a := open(t, quick("a"))
	var resolver names
	log := &logBuffer{}
	cfg := quick("b")
	cfg.JoinDNS = fmt.Sprintf("rowmill-headless:%d", a.self.at.Port())
	cfg.Resolver, cfg.Logger = &resolver, log.logger()
	b := open(t, cfg)
	wait.For(t, "the name that is missing is logged", func() bool { return log.count("no such host") == 1 })
	resolver.addrs.Store(&[]netip.Addr{netip.MustParseAddr("127.0.0.9"), netip.MustParseAddr("::ffff:127.0.0.1")})
	wantNodes(t, []string{"a", "b"}, a, b)
}

func TestJoinFile(t *testing.T) {
	t.Parallel()
	a := open(t, quick("a"))
	log := &logBuffer{}
	cfg := quick("b")
	cfg.JoinFile, cfg.Logger = filepath.Join(t.TempDir(), "members"), log.logger()
	b := open(t, cfg)
	wait.For(t, "the file that is missing is logged", func() bool { return log.count("no such file") == 1 })
	text := "# our seeds\n\nnonsense\n  " + a.address() + "  \n"
	must.Succeed(t, os.WriteFile(cfg.JoinFile, []byte(text), 0o600))
	wantNodes(t, []string{"a", "b"}, a, b)
	wait.For(t, "the bad line is logged once", func() bool { return log.count(`"nonsense\" is not HOST:PORT`) == 1 })
}

// TestEmptyStream connects to the gossip port and sends nothing.
func TestEmptyStream(t *testing.T) {
	t.Parallel()
	log := &logBuffer{}
	cfg := quick("a")
	cfg.Label = "mill"
	cfg.Logger = slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	a := open(t, cfg)
	conn := must.Get(net.Dial("tcp", a.address()))(t)
	must.Succeed(t, conn.Close())
	wait.For(t, "it is noted", func() bool { return log.count("discarding stream") == 1 })
	if log.count(`level=DEBUG msg="memberlist reported" detail="discarding stream`) != 1 {
		t.Error("the log has an Info line about an empty connection")
	}
}

// TestCloseWhileSeeking closes without waiting for members that do not answer.
func TestCloseWhileSeeking(t *testing.T) {
	t.Parallel()
	cfg := quick("a", "192.0.2.1:7946") // a network without hosts (RFC 5737)
	cfg.Timing.StreamTimeout = time.Hour
	a := open(t, cfg)
	began := time.Now()
	must.Succeed(t, a.Close())
	if took := time.Since(began); took > waitTimeout/2 {
		t.Errorf("closing took %v", took)
	}
}

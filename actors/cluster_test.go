package actors_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/actors"
	"github.com/rowmill/rowmill/cluster"
	"github.com/rowmill/rowmill/cluster/peer"
	"github.com/rowmill/rowmill/cluster/peer/peerv1/peerv1connect"
	"github.com/rowmill/rowmill/engine"
	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/store"
)

// A network connects Systems in the test's process. Their requests are encoded as
// between nodes, but use no sockets, and can be cut off.
type network struct {
	mu    sync.Mutex
	nodes map[string]*host // by address
}

// A host is one node of a network.
type host struct {
	net      *network
	member   cluster.Member
	changed  chan struct{}
	client   *peer.Client
	server   *peer.Responder
	system   *actors.System
	engine   *scripted
	registry *prometheus.Registry
	cut      atomic.Bool // no message reaches or leaves it
	gone     atomic.Bool // it refuses connections
	blind    atomic.Bool // its records do not answer
	deaf     atomic.Bool // it has a version without some requests
	mute     atomic.Bool // it does not answer requests for compactions
	balks    atomic.Bool // its compactions fail
}

func (h *host) Self() cluster.Member {
	h.net.mu.Lock()
	defer h.net.mu.Unlock()
	return h.member
}

func (h *host) Members() []cluster.Member {
	h.net.mu.Lock()
	defer h.net.mu.Unlock()
	var out []cluster.Member
	for _, address := range slices.Sorted(maps.Keys(h.net.nodes)) {
		n := h.net.nodes[address]
		if n.gone.Load() {
			continue
		}
		m := n.member
		m.Self = n == h
		out = append(out, m)
	}
	return out
}

func (h *host) Changed() <-chan struct{} { return h.changed }

func (h *host) SetState(doc []byte) error {
	h.net.mu.Lock()
	h.member.State = doc
	h.net.mu.Unlock()
	h.net.tell()
	return nil
}

func (n *network) tell() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, h := range n.nodes {
		select {
		case h.changed <- struct{}{}:
		default:
		}
	}
}

func (h *host) Node(address string) peerv1connect.NodeServiceClient { return h.client.Node(address) }

// RoundTrip sends a request of this node to another.
func (h *host) RoundTrip(r *http.Request) (*http.Response, error) {
	h.net.mu.Lock()
	to := h.net.nodes[r.URL.Host]
	h.net.mu.Unlock()
	method := path.Base(r.URL.Path)
	switch {
	case to == nil || to.gone.Load():
		return nil, syscall.ECONNREFUSED
	case h.cut.Load() || to.cut.Load(), method == "RunCompaction" && to.mute.Load():
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	if method == "RunCompaction" && to.balks.Load() { // the parts that it gets do not exist
		body = bytes.ReplaceAll(body, []byte(`/parts/`), []byte(`/nones/`))
	}
	asked := r.Clone(r.Context())
	asked.Body = io.NopCloser(bytes.NewReader(body))
	if to.deaf.Load() && method == "LocateRows" {
		asked.URL.Path = path.Join(path.Dir(r.URL.Path), "OfALaterVersion")
	}
	w := httptest.NewRecorder()
	to.server.ServeHTTP(w, asked)
	return w.Result(), nil
}

// cutStore is a store that a node cannot reach while the node is cut off.
type cutStore struct {
	store.Store
	host *host
}

var errCut = errors.New("no route to the store")

func (s cutStore) OpenSession(ctx context.Context, node string, ttl time.Duration) (string, error) {
	if s.host.cut.Load() {
		return "", errCut
	}
	return s.Store.OpenSession(ctx, node, ttl)
}

func (s cutStore) RenewSession(ctx context.Context, session string) error {
	if s.host.cut.Load() {
		return errCut
	}
	return s.Store.RenewSession(ctx, session)
}

func (s cutStore) Claim(ctx context.Context, job, session string, by store.Claim) (store.Record, error) {
	if s.host.cut.Load() {
		return store.Record{}, errCut
	}
	return s.Store.Claim(ctx, job, session, by)
}

func (s cutStore) Get(ctx context.Context, job string) (store.Record, error) {
	if s.host.blind.Load() {
		<-ctx.Done()
		return store.Record{}, ctx.Err()
	}
	return s.Store.Get(ctx, job)
}

func (s cutStore) CommitParts(ctx context.Context, f store.Fence, parts []store.Part) error {
	if s.host.cut.Load() {
		return errCut
	}
	return s.Store.CommitParts(ctx, f, parts)
}

// join starts a node; without an engine it only owns jobs.
func (b *rig) join(net *network, name string, e *scripted, change ...func(*actors.Config)) *host {
	b.t.Helper()
	h := &host{net: net, changed: make(chan struct{}, 1), engine: e}
	var err error
	if h.client, err = peer.NewClient(peer.Config{Node: name, Carrier: h}); err != nil {
		b.t.Fatal(err)
	}
	h.member = cluster.Member{ID: name, Node: name, Peer: name + ":1", Protocol: actors.Protocol, Owns: true, Engines: e != nil}
	cfg := b.cfg
	cfg.Node, cfg.Peers, cfg.Store = name, h, cutStore{cfg.Store, h}
	cfg.Ownership.LeaseTTL = 2 * time.Second
	h.registry = prometheus.NewRegistry()
	cfg.Registerer = h.registry
	cfg.Engines = nil
	if e != nil {
		e.name, e.models = "gpu", served()
		cfg.Engines = []engine.Engine{e}
	}
	for _, f := range change {
		f(&cfg)
	}
	h.member.Owns = !cfg.Ownership.OwnsNone
	if h.system, err = actors.New(cfg); err != nil {
		b.t.Fatal(err)
	}
	must.Succeed(b.t, h.system.Start(b.t.Context()))
	h.server = peer.NewResponder(peer.Config{})
	h.server.SetHandler(h.system.Service())
	net.mu.Lock()
	net.nodes[h.member.Peer] = h
	net.mu.Unlock()
	net.tell()
	b.t.Cleanup(func() {
		h.gone.Store(true)
		_ = h.system.Stop(context.Background())
	})
	return h
}

func newNetwork() *network { return &network{nodes: make(map[string]*host)} }

// ranOnce requires that all engines together ran each text once.
func ranOnce(t *testing.T, texts []string, hosts ...*host) {
	t.Helper()
	if again := runs(texts, hosts...); again != 0 {
		t.Errorf("%d rows were run more than once", again)
	}
}

// runs returns how many requests there were beyond one for each text.
func runs(texts []string, hosts ...*host) int {
	total := 0
	for _, h := range hosts {
		if h.engine != nil {
			total += int(h.engine.calls.Load())
		}
	}
	return total - len(texts)
}

func (b *rig) submitTo(h *host, spec rowmill.Spec) string {
	b.system = h.system
	return b.submit(spec)
}

func TestTwoNodesShareAJob(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T) {
		b, net := setup(t, nil), newNetwork()
		one := b.join(net, "one", &scripted{answer: slowly(2 * time.Millisecond)})
		two := b.join(net, "two", &scripted{answer: slowly(2 * time.Millisecond)})
		texts := numbered(3000)
		b.checkEcho(b.end(b.submitTo(one, rowmill.Spec{Spooled: b.spool(texts)})), texts)
		ranOnce(t, texts, one, two)
		a, z := one.engine.calls.Load(), two.engine.calls.Load()
		if a < 1000 || z < 1000 {
			t.Errorf("one ran %d rows, two %d; want about half each", a, z)
		}
	})
}

// Rows that a slow node has taken and not started go to an idle node.
func TestRowsOfASlowNodeGoToAnIdleOne(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T) {
		b, net := setup(t, nil), newNetwork()
		const rows, most = 2000, 500 // most is how many rows the slow node may run
		stuck, overtaken := &scripted{}, make(chan struct{})
		overtake := sync.OnceFunc(func() { close(overtaken) })
		stuck.answer = func(ctx context.Context, row string, try int) (engine.Reply, error) {
			if stuck.calls.Load() > most-100 { // the slow node must be slow on any machine
				select {
				case <-overtaken:
				case <-ctx.Done():
				}
			}
			return slowly(100*time.Millisecond)(ctx, row, try)
		}
		idle := &scripted{}
		idle.answer = func(ctx context.Context, row string, try int) (engine.Reply, error) {
			if idle.calls.Load() >= rows-most {
				overtake()
			}
			return slowly(time.Millisecond)(ctx, row, try)
		}
		slow, fast := b.join(net, "slow", stuck), b.join(net, "fast", idle)
		texts := numbered(rows)
		b.checkEcho(b.end(b.submitTo(slow, rowmill.Spec{Spooled: b.spool(texts)})), texts)
		ranOnce(t, texts, slow, fast)
		if slow.figure(t, "rowmill_rows_returned_total", "back") == 0 {
			t.Error("no row is counted as given back")
		}
	})
}

func TestANodeThatJoinsGetsRowsOfARunningJob(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T) {
		b, net := setup(t, nil), newNetwork()
		one := b.join(net, "one", &scripted{answer: slowly(5 * time.Millisecond)})
		texts := numbered(4000)
		id := b.submitTo(one, rowmill.Spec{Spooled: b.spool(texts)})
		b.await(id, func(r store.Record) bool { return r.Job.RowsDone > 200 })
		began := time.Now()
		two := b.join(net, "two", &scripted{answer: slowly(5 * time.Millisecond)})
		b.await(id, func(store.Record) bool { return two.engine.calls.Load() > 0 })
		t.Logf("rows after %v", time.Since(began))
		b.checkEcho(b.end(id), texts)
		ranOnce(t, texts, one, two)
		if n := two.engine.calls.Load(); n < 500 {
			t.Errorf("the second node ran %d of 4000 rows", n)
		}
	})
}

// The loss of an owner without engines makes no row run again.
func TestAnOwnerWithoutEnginesCostsNoRow(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"cut off", "gone", "gone, and no records for a worker"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			inVirtualTime(t, func(t *testing.T) {
				b, net := setup(t, nil), newNetwork()
				owner := b.join(net, "owner", nil)
				gpus := func(c *actors.Config) { c.Ownership.OwnsNone = true }
				one := b.join(net, "one", &scripted{answer: slowly(10 * time.Millisecond)}, gpus)
				two := b.join(net, "two", &scripted{answer: slowly(10 * time.Millisecond)}, gpus)
				texts := numbered(6000)
				id := b.submitTo(owner, rowmill.Spec{Spooled: b.spool(texts)})
				first := b.await(id, func(r store.Record) bool { return r.Job.RowsDone > 300 })
				b.join(net, "second", nil) // only now: on a busy machine it could have been faster than the owner
				owner.cut.Store(true)
				owner.gone.Store(how != "cut off")
				two.blind.Store(strings.HasSuffix(how, "no records for a worker"))
				net.tell()
				rec := b.await(id, func(r store.Record) bool { return r.Epoch > first.Epoch })
				if rec.Session == first.Session {
					t.Errorf("the session is the same")
				}
				b.checkEcho(b.end(id), texts)
				ranOnce(t, texts, one, two)
				owner.cut.Store(false)
			})
		})
	}
}

// The loss of a node costs only its rows in flight and its rows without a commit.
func TestRowsOfALostWorkerRunElsewhere(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T) {
		b, net := setup(t, nil), newNetwork()
		owner := b.join(net, "owner", &scripted{answer: slowly(5 * time.Millisecond)})
		lost := b.join(net, "lost", &scripted{answer: slowly(5 * time.Millisecond)}, func(c *actors.Config) { c.Ownership.OwnsNone = true })
		texts := numbered(4000)
		id := b.submitTo(owner, rowmill.Spec{Spooled: b.spool(texts)})
		b.await(id, func(store.Record) bool { return lost.engine.calls.Load() > 300 })
		lost.cut.Store(true)
		lost.gone.Store(true)
		lost.engine.down.Store(true)
		net.tell()
		b.checkEcho(b.end(id), texts)
		if again := runs(texts, owner, lost); again > 300 {
			t.Errorf("%d rows were run again; the lost node had 8 in flight and 50 ms of others not committed", again)
		}
	})
}

// A node that was cut off comes back and drops its rows: they have another worker
// now.
func TestANodeThatComesBackDropsItsRows(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T) {
		b, net := setup(t, nil), newNetwork()
		owner := b.join(net, "owner", &scripted{answer: slowly(5 * time.Millisecond)})
		back := b.join(net, "back", &scripted{answer: slowly(5 * time.Millisecond)}, func(c *actors.Config) { c.Ownership.OwnsNone = true })
		texts := numbered(8000)
		id := b.submitTo(owner, rowmill.Spec{Spooled: b.spool(texts)})
		b.await(id, func(store.Record) bool { return back.engine.calls.Load() > 300 })
		back.cut.Store(true)
		b.await(id, func(store.Record) bool { return owner.figure(t, "rowmill_rows_returned_total", "lost") > 0 })
		back.cut.Store(false)
		before := back.engine.calls.Load()
		b.await(id, func(r store.Record) bool { return back.engine.calls.Load() > before+100 || r.Job.Status.IsTerminal() })
		b.checkEcho(b.end(id), texts)
	})
}

// figure returns the value of a node's metric. If label is given, it returns the
// series whose first label has this value.
func (h *host) figure(t *testing.T, name string, label ...string) float64 {
	t.Helper()
	families := must.Get(h.registry.Gather())(t)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == name && (len(label) == 0 || m.GetLabel()[0].GetValue() == label[0]) {
				return m.GetCounter().GetValue() + m.GetGauge().GetValue() // a series is a counter or a gauge; the other value is 0
			}
		}
	}
	t.Fatalf("there is no metric %s %q", name, label)
	return 0
}

// A draining node gives back rows that have not started, and no row runs twice,
// whether the node owns the job or not.
func TestADrainingNodeCostsNoRow(t *testing.T) {
	t.Parallel()
	for _, who := range []string{"the owner", "a worker"} {
		t.Run(who, func(t *testing.T) {
			t.Parallel()
			inVirtualTime(t, func(t *testing.T) {
				b, net := setup(t, nil), newNetwork()
				one := b.join(net, "one", &scripted{answer: slowly(10 * time.Millisecond)})
				two := b.join(net, "two", &scripted{answer: slowly(10 * time.Millisecond)})
				texts := numbered(3000)
				id := b.submitTo(one, rowmill.Spec{Spooled: b.spool(texts)})
				b.await(id, func(store.Record) bool { return two.engine.calls.Load() > 100 && one.engine.calls.Load() > 100 })
				leaver := one
				if who == "a worker" {
					leaver = two
				}
				began := time.Now()
				must.Succeed(t, leaver.system.Stop(t.Context()))
				leaver.gone.Store(true)
				net.tell()
				t.Logf("drained in %v", time.Since(began))
				b.checkEcho(b.end(id), texts)
				ranOnce(t, texts, one, two)
			})
		})
	}
}

// A cancel that reaches another node than the owner stops the rows on all nodes.
func TestACancelReachesAllNodes(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T) {
		b, net := setup(t, nil), newNetwork()
		one := b.join(net, "one", &scripted{answer: slowly(5 * time.Millisecond)})
		two := b.join(net, "two", &scripted{answer: slowly(5 * time.Millisecond)})
		id := b.submitTo(one, rowmill.Spec{Spooled: b.spool(numbered(20_000))})
		b.await(id, func(store.Record) bool { return two.engine.calls.Load() > 0 && one.engine.calls.Load() > 0 })
		must.Get(b.store.Cancel(t.Context(), id, time.Now(), func(*store.Record) {}))(t)
		two.system.NotifyCancelled(id)
		sent := func() int64 { return one.engine.calls.Load() + two.engine.calls.Load() }
		deadline := time.Now().Add(3 * time.Second)
		for before := int64(-1); before != sent(); time.Sleep(50 * time.Millisecond) {
			if before = sent(); time.Now().After(deadline) {
				t.Fatal("rows are still sent 3 s after the cancel")
			}
		}
	})
}

// An owner hears from another node of a cancel that its record does not have, as after a split of
// the store: the job goes on.
func TestACancelThatTheRecordDoesNotHave(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T) {
		b, net := setup(t, nil), newNetwork()
		one := b.join(net, "one", &scripted{answer: slowly(5 * time.Millisecond)})
		two := b.join(net, "two", &scripted{answer: slowly(5 * time.Millisecond)})
		id := b.submitTo(one, rowmill.Spec{Spooled: b.spool(numbered(500))})
		b.await(id, func(r store.Record) bool { return r.Job.RowsDone > 0 })
		two.system.NotifyCancelled(id)
		if rec := b.end(id); rec.Job.Status != rowmill.StatusSucceeded || rec.Job.RowsDone != 500 {
			t.Errorf("the job is %s with %d rows", rec.Job.Status, rec.Job.RowsDone)
		}
	})
}

// A cancel without a hint to any node also ends a job that makes no progress: its
// owner writes nothing, but reads the record every few seconds.
func TestACancelReachesAnOwnerWithoutAHint(t *testing.T) {
	t.Parallel()
	for name, job := range map[string]func(b *rig, server string) rowmill.Spec{
		"a download": func(_ *rig, server string) rowmill.Spec { return rowmill.Spec{URL: server} },
		"rows":       func(b *rig, _ string) rowmill.Spec { return rowmill.Spec{Spooled: b.spool(numbered(3))} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			asked, left := make(chan struct{}, 3), make(chan struct{}, 3)
			hang := func(ctx context.Context) {
				asked <- struct{}{}
				<-ctx.Done()
				left <- struct{}{}
			}
			server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { hang(r.Context()) }))
			t.Cleanup(server.Close)
			b, net := setup(t, nil), newNetwork()
			one := b.join(net, "one", &scripted{answer: func(ctx context.Context, _ string, _ int) (engine.Reply, error) {
				hang(ctx)
				return engine.Reply{}, ctx.Err()
			}})
			id := b.submitTo(one, job(b, server.URL))
			<-asked
			must.Get(b.store.Cancel(t.Context(), id, time.Now(), nil))(t)
			select {
			case <-left:
			case <-time.After(20 * time.Second):
				t.Fatal("the job still runs 20 s after the cancel")
			}
		})
	}
}

// Jobs continue while every node is replaced, one after the other.
func TestARollingRestartCostsNoRow(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T) {
		b, net := setup(t, nil), newNetwork()
		hosts := []*host{}
		start := func(n int) *host {
			h := b.join(net, fmt.Sprint("node-", n), &scripted{answer: slowly(10 * time.Millisecond)})
			hosts = append(hosts, h)
			return h
		}
		old := []*host{start(0), start(1), start(2)}
		texts := numbered(6000)
		id := b.submitTo(old[0], rowmill.Spec{Spooled: b.spool(texts)})
		for i, h := range old {
			done := int64(0)
			b.await(id, func(r store.Record) bool { done = r.Job.RowsDone; return done > 100 })
			must.Succeed(t, h.system.Stop(t.Context()))
			h.gone.Store(true)
			start(3 + i)
			b.await(id, func(r store.Record) bool { return r.Job.RowsDone > done || r.Job.Status.IsTerminal() })
		}
		b.checkEcho(b.end(id), texts)
		ranOnce(t, texts, hosts...)
	})
}

// A worker that panics fails its job, on any node: its rows would cause the same
// fault again.
func TestAPanicOfAWorkerFailsTheJob(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T) {
		b, net := setup(t, nil), newNetwork()
		owner := b.join(net, "owner", nil)
		b.join(net, "worker", &scripted{answer: echo, panics: true}, func(c *actors.Config) { c.Ownership.OwnsNone = true })
		failure(t, b.end(b.submitTo(owner, rowmill.Spec{Inline: numbered(10)})), rowmill.CodeInternalError)

		alone := setup(t, &scripted{answer: echo, panics: true})
		failure(t, alone.end(alone.submit(rowmill.Spec{Inline: numbered(10)})), rowmill.CodeInternalError)
	})
}

// A worker whose rows cannot be committed, because its job has lost its owner and
// no other node takes over, starts no more rows than two parts hold.
func TestAWorkerWithoutAnOwnerStopsStartingRows(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T) {
		const pause, interval, slots = 5 * time.Millisecond, 200 * time.Millisecond, 12 // 8 rows in the window, and 4 queued rows that run too
		b, net := setup(t, nil), newNetwork()
		owner := b.join(net, "owner", nil)
		worker := b.join(net, "worker", &scripted{answer: slowly(pause)}, func(c *actors.Config) {
			c.Ownership.OwnsNone, c.Parts.Interval = true, interval
		})
		texts := numbered(8000)
		id := b.submitTo(owner, rowmill.Spec{Spooled: b.spool(texts)})
		b.await(id, func(r store.Record) bool { return r.Job.RowsDone > 300 })
		owner.cut.Store(true)
		b.await(id, func(store.Record) bool { return worker.figure(t, "rowmill_workers_stalled") == 1 })
		rec := must.Get(b.cfg.Store.Get(t.Context(), id))(t)
		calls := worker.engine.calls.Load()
		// The worker notices with the next answer. await checks just as often. The
		// timers of actors are late by some microseconds, so one more answer may
		// come.
		const late = 3 * pause
		most := int64((interval+time.Second*3/4+late)/pause)*slots + 2*slots
		if lost := calls - rec.Job.RowsDone; lost > most {
			t.Errorf("%d rows are at risk, want %d at most", lost, most)
		}
		// As soon as there is an owner again, the worker continues.
		owner.cut.Store(false)
		b.checkEcho(b.end(id), texts)
		ranOnce(t, texts, worker)
		if worker.figure(t, "rowmill_workers_stalled") != 0 {
			t.Error("the worker is still counted as stalled")
		}
	})
}

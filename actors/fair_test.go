package actors_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/actors"
	"github.com/rowmill/rowmill/cluster/peer"
	"github.com/rowmill/rowmill/cluster/peer/peerv1/peerv1connect"
	"github.com/rowmill/rowmill/engine"
	"github.com/rowmill/rowmill/internal/must"
)

// The times of a row of the greedy account and of the modest one.
const (
	greedyTakes = 3 * time.Minute
	modestTakes = 2 * time.Second
)

// arrivals notes when the first row of the modest account reaches an engine.
type arrivals struct {
	mu    sync.Mutex
	first time.Time
}

func (a *arrivals) answer(ctx context.Context, row string, try int) (engine.Reply, error) {
	if !strings.HasPrefix(row, "modest") {
		return slowly(greedyTakes)(ctx, row, try)
	}
	a.mu.Lock()
	if a.first.IsZero() {
		a.first = time.Now()
	}
	a.mu.Unlock()
	return slowly(modestTakes)(ctx, row, try)
}

// With any jobs of the greedy account waiting, a single row of another account with
// priority 0 starts within 2 s, and its job ends within 5 s more than the row
// takes.
func TestNoAccountStopsAnother(t *testing.T) {
	t.Parallel()
	for _, nodes := range []string{"1", "3", "2 that own, 1 with engines"} {
		for _, priority := range rowmill.Priorities() { // of the greedy account's jobs
			t.Run(fmt.Sprintf("%s nodes, priority %d", nodes, priority), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) { tryToStop(t, nodes, priority) })
			})
		}
	}
}

func tryToStop(t *testing.T, nodes string, priority rowmill.Priority) {
	t.Cleanup(func() { time.Sleep(time.Second) }) // the dead-letter throttle of the actor library ends by itself
	b, at := setup(t, nil), &arrivals{}
	b.cfg.Ownership = actors.OwnershipConfig{MaxActive: 4, KeptPlaces: 2}
	b.cfg.Parts, b.cfg.Servers = actors.PartConfig{}, actors.ServerConfig{}
	b.cfg.DrainTimeout = time.Second
	server := func() *scripted { return &scripted{answer: at.answer} }
	net := newNetwork()
	switch nodes {
	case "1":
		b.system = b.join(net, "n1", server()).system
	case "3":
		b.system = b.join(net, "n1", server()).system
		b.join(net, "n2", server())
		b.join(net, "n3", server())
	default:
		b.system = b.join(net, "n1", nil).system
		b.join(net, "n2", nil)
		b.join(net, "gpu", server(), func(c *actors.Config) { c.Ownership.OwnsNone = true })
	}
	time.Sleep(2 * time.Second)
	for range 60 {
		b.submit(rowmill.Spec{Account: "greedy", Priority: priority, Inline: numbered(500)})
	}
	time.Sleep(30 * time.Second)
	submitted := time.Now()
	id := b.submit(rowmill.Spec{Account: "modest", Priority: 0, Inline: []string{"modest"}})
	rec := b.end(id)
	if rec.Job.Status != rowmill.StatusSucceeded {
		t.Fatalf("the job is %s: %s", rec.Job.Status, rec.Job.Message)
	}
	if began := at.first.Sub(submitted); began > 2*time.Second {
		t.Errorf("its row began after %v", began)
	}
	if took := time.Since(submitted); took > modestTakes+5*time.Second {
		t.Errorf("it ended after %v", took)
	}
}

// An account with slow rows that fill a node's memory leaves another account its
// share: several rows of the other account run at the same time.
func TestMemoryIsSharedByAccounts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		t.Cleanup(func() { time.Sleep(time.Second) }) // as above
		at := &arrivals{}
		b := setup(t, &scripted{answer: at.answer, slots: 1000}, func(c *actors.Config) {
			c.Parts, c.Servers, c.DrainTimeout = actors.PartConfig{}, actors.ServerConfig{}, time.Second
			c.MemoryBudget = 256 << 10
		})
		time.Sleep(2 * time.Second)
		for range 10 {
			b.submit(rowmill.Spec{Account: "greedy", Inline: numbered(500)})
		}
		time.Sleep(30 * time.Second)
		rows := make([]string, 20)
		for i := range rows {
			rows[i] = fmt.Sprint("modest ", i)
		}
		submitted := time.Now()
		b.end(b.submit(rowmill.Spec{Account: "modest", Priority: 0, Inline: rows}))
		if took, alone := time.Since(submitted), 20*modestTakes; took > alone/2 {
			t.Errorf("the job ended after %v; its rows one after another take %v", took, alone)
		}
	})
}

// A wire is a host whose requests to other nodes take some time.
type wire struct {
	*host
	client *peer.Client
}

func newWire(t *testing.T, h *host) *wire {
	t.Helper()
	client := must.Get(peer.NewClient(peer.Config{Carrier: carrier{h}}))(t)
	return &wire{h, client}
}

func (w *wire) Node(address string) peerv1connect.NodeServiceClient { return w.client.Node(address) }

type carrier struct{ *host }

func (c carrier) RoundTrip(r *http.Request) (*http.Response, error) {
	time.Sleep(20 * time.Millisecond)
	return c.host.RoundTrip(r)
}

// Healthy nodes log no warning, with any number of small jobs.
func TestManySmallJobsLogNoWarning(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		t.Cleanup(func() { time.Sleep(time.Second) }) // as above
		b, net := setup(t, nil), newNetwork()
		var log bytes.Buffer
		warnings := slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn}))
		b.cfg.Ownership = actors.OwnershipConfig{MaxActive: 200}
		b.cfg.Parts, b.cfg.Servers = actors.PartConfig{}, actors.ServerConfig{}
		wired := func(c *actors.Config) {
			c.Peers, c.Logger = newWire(t, c.Peers.(*host)), warnings
		}
		for _, name := range []string{"n1", "n2", "n3"} {
			b.system = b.join(net, name, &scripted{answer: slowly(50 * time.Millisecond)}, wired).system
		}
		time.Sleep(2 * time.Second)
		var ids []string
		for i := range 300 {
			ids = append(ids, b.submit(rowmill.Spec{Account: fmt.Sprint("account-", i%3), Priority: rowmill.Priority(i % 2), Inline: numbered(3)}))
		}
		for _, id := range ids {
			if rec := b.end(id); rec.Job.Status != rowmill.StatusSucceeded {
				t.Fatalf("job %s is %s: %s", id, rec.Job.Status, rec.Job.Message)
			}
		}
		if log.Len() > 0 {
			t.Errorf("healthy nodes log:\n%s", log.String())
		}
	})
}

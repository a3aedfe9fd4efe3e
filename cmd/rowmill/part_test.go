package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	nethttp "net/http"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rowmill/rowmill/cmd/rowmill/settings"
	apinodes "github.com/rowmill/rowmill/http/nodes"
	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/internal/wait"
)

// begun starts a part, and stops it at the end of the test.
func begun(t *testing.T, p nodePart) {
	t.Helper()
	t.Cleanup(func() { ended(t, p) })
	must.Succeed(t, p.Start(t.Context()))
}

// ended stops a part, twice.
func ended(t *testing.T, p nodePart) {
	t.Helper()
	for range 2 {
		if err := p.Stop(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	}
}

// A part closes everything in reverse order, also after an error.
func TestPartStopsInReverse(t *testing.T) {
	t.Parallel()
	p := partBase{nodeEnv: &nodeEnv{}}
	var closed []string
	trouble := errors.New("it hangs")
	for _, name := range []string{"first", "second", "third"} {
		p.addCloser(name, func(context.Context) error {
			closed = append(closed, name)
			if name == "second" {
				return trouble
			}
			return nil
		})
	}
	if err := p.Stop(t.Context()); !errors.Is(err, trouble) || err.Error() != "close second: it hangs" {
		t.Errorf("error %v", err)
	}
	if err := p.Stop(t.Context()); err != nil {
		t.Errorf("the second time: %v", err)
	}
	if want := []string{"third", "second", "first"}; !slices.Equal(closed, want) {
		t.Errorf("closed %v, want %v", closed, want)
	}
}

// A failed start leaves nothing open: another node starts on the same data.
func TestFailedStartLeavesNothingOpen(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	busy := must.Get((&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0"))(t)
	defer busy.Close()
	m := prepare(t, data, func(s *settings.Settings) { s.HTTP.AdminListen = busy.Addr().String() })
	wantErrors(t, "a busy address", m.Run(t.Context()), "listen on "+busy.Addr().String())
	start(t, data, nil)
	for _, p := range m.parts() { // the parts of the first node again
		ended(t, p)
	}
}

func TestStorageKeepsItsIdentity(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	open := func() *nodeStorage { return prepare(t, data, nil).Storage }
	first := open()
	begun(t, first)
	must.Get(first.Store.PutValue(t.Context(), "a", []byte("1"), 0))(t)
	ended(t, first)
	second := open()
	begun(t, second)
	value, _, err := second.Store.GetValue(t.Context(), "a")
	if err != nil || string(value) != "1" || second.deployment.ID == "" || second.deployment.ID != first.deployment.ID {
		t.Errorf("value %q, error %v, identities %v and %v", value, err, first.deployment, second.deployment)
	}
	if err := second.confirmDeployment(t.Context()); err != nil {
		t.Error(err)
	}
	if len(second.reloadableSecrets()) > 0 {
		t.Error("a directory has no secret that changes")
	}
}

func TestListenersServe(t *testing.T) {
	t.Parallel()
	l := prepare(t, t.TempDir(), func(s *settings.Settings) { s.HTTP.AdminListen = "127.0.0.1:0" }).Listeners
	begun(t, l)
	says := func(text string) nethttp.Handler {
		return nethttp.HandlerFunc(func(w nethttp.ResponseWriter, _ *nethttp.Request) {
			w.Header().Set("X-Content-Type-Options", "nosniff")
			_, _ = io.WriteString(w, text)
		})
	}
	l.serveInBackground(l.api, says("api"))
	l.serveInBackground(l.admin, says("admin"))
	for url, want := range map[string]string{l.URL: "api", "http://" + l.AdminAddr.String(): "admin"} {
		if status, text := fetch(t, url+"/"); status != 200 || text != want {
			t.Errorf("%s answers %d %q, want %q", url, status, text, want)
		}
	}
	ended(t, l)
	for _, address := range []string{l.Addr.String(), l.AdminAddr.String()} {
		again, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", address)
		if err != nil {
			t.Errorf("after the stop: %v", err)
			continue
		}
		again.Close()
	}
	if len(l.failed) > 0 {
		t.Error("the stop is a failure:", <-l.failed)
	}
}

func TestMembersFindEachOther(t *testing.T) {
	t.Parallel()
	alone := prepare(t, t.TempDir(), nil).Members
	begun(t, alone)
	if alone.nodeCount() != 1 || len(alone.reloadableSecrets()) > 0 {
		t.Errorf("a node alone counts %d nodes", alone.nodeCount())
	}
	gossip := freeAddress(t)
	member := func(listen string, join ...string) *clusterMembership {
		m := prepare(t, t.TempDir(), func(s *settings.Settings) {
			s.Cluster.Listen, s.Cluster.PeerListen, s.Cluster.Join = listen, "127.0.0.1:0", join
		})
		begun(t, m.Listeners)
		begun(t, m.Members)
		return m.Members
	}
	one := member(gossip)
	two := member("127.0.0.1:0", gossip)
	wait.For(t, "both know two nodes", func() bool { return one.nodeCount() == 2 && two.nodeCount() == 2 })
	if api := one.announcedURL(); api != one.listeners.URL {
		t.Errorf("the API is announced at %s, want %s", api, one.listeners.URL)
	}
	ended(t, two)
	wait.For(t, "the first is alone again", func() bool { return one.nodeCount() == 1 })
}

func TestTracesNeedACollector(t *testing.T) {
	t.Parallel()
	off := prepare(t, t.TempDir(), nil).Tracing
	begun(t, off)
	if off.Tracer != nil || len(off.reloadableSecrets()) > 0 {
		t.Error("without a collector there are traces")
	}
	on := prepare(t, t.TempDir(), func(s *settings.Settings) { s.Tracing.Endpoint = "http://" + freeAddress(t) + "/v1/traces" }).Tracing
	begun(t, on)
	if on.Tracer == nil || len(on.reloadableSecrets()) != 1 {
		t.Error("with a collector there are no traces")
	}
	broken := prepare(t, t.TempDir(), func(s *settings.Settings) {
		s.Tracing.Endpoint, s.Tracing.Headers = "http://127.0.0.1:1/v1/traces", "no pair"
	}).Tracing
	wantErrors(t, "headers", broken.Start(t.Context()), "tracing.headers", "NAME=VALUE")
}

func TestMeterReadsUntilItStops(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var reads atomic.Int32
		m := &metricsSampler{partBase: partBase{nodeEnv: newNodeEnv(settings.Defaults(), slog.New(slog.DiscardHandler))}, read: func(now time.Time) (metricsSample, error) {
			reads.Add(1)
			return metricsSample{at: now}, nil
		}}
		begun(t, m)
		time.Sleep(2*apinodes.StatsStep + time.Millisecond)
		ended(t, m)
		time.Sleep(2 * apinodes.StatsStep)
		if n := reads.Load(); n != 3 {
			t.Errorf("%d readings in two steps, want 3", n)
		}
	})
}

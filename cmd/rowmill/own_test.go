package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/rowmill/rowmill/cmd/rowmill/settings"
	"github.com/rowmill/rowmill/internal/redistest"
)

// A client names parts of the service as its input. The node reads none, although all
// networks are allowed.
func TestOwnPartsAreNoInput(t *testing.T) {
	t.Parallel()
	m := start(t, t.TempDir(), func(s *settings.Settings) {
		s.HTTP.AdminListen = "127.0.0.1:0"
		s.Inputs.AllowLoopback, s.Inputs.AllowPrivateNetworks = true, true
	})
	for _, url := range []string{
		m.Listeners.URL + "/metrics",
		"http://" + m.Listeners.AdminAddr.String() + "/debug/pprof/heap?debug=1",
		m.Engines.Simulator.URL() + "/v1/models",
		strings.Replace(m.Engines.Simulator.URL(), "127.0.0.1", "localhost", 1) + "/metrics",
	} {
		code, out, said := runCommand(t.Context(), environ(m, m.API.FirstKey), "", "jobs", "submit", url, "--column", "a")
		if code == 0 || !strings.Contains(out+said, "this service itself or to one of its inference servers") {
			t.Errorf("%s: code %d:\n%s%s", url, code, out, said)
		}
	}
}

func TestOwnAddressesOfACluster(t *testing.T) {
	t.Parallel()
	records := redistest.Start(t)
	m := start(t, t.TempDir(), func(s *settings.Settings) {
		s.Store.URL, s.Objects.Shared = settings.Secret(records.URL()), true
		s.Cluster.Listen, s.Cluster.PeerListen, s.Cluster.Advertise = freeAddress(t), "127.0.0.1:0", "localhost:7946"
	})
	m.Settings.Engines = []settings.Engine{{URL: "https://gpu.example.org/v1"}, {URL: "http://[::1]:8000"}}
	own := m.Pipeline.ownAddresses()
	for _, want := range []string{
		m.Listeners.Addr.String(), m.Engines.Simulator.Addr().String(), m.Settings.Cluster.Listen, m.Members.peers.Addr().String(), "localhost:7946",
		"gpu.example.org:443", "[::1]:8000",
	} {
		if !slices.Contains(own, want) {
			t.Errorf("%s is missing: %v", want, own)
		}
	}
}

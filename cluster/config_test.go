package cluster

import (
	"context"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/internal/wait"
)

func TestConfigRefusals(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		want   string
		change func(*Config)
	}{
		{"set Advertise", func(c *Config) { c.Bind = "0.0.0.0:0" }},
		{"set Advertise", func(c *Config) { c.Bind = "[::]:0" }},
		{"set Advertise", func(c *Config) { c.Bind = ":0" }},
		{"not an address that other nodes can reach", func(c *Config) { c.Advertise = "0.0.0.0:7946" }},
		{`Bind "7946" is not HOST:PORT`, func(c *Config) { c.Bind = "7946" }},
		{"port \"70000\"", func(c *Config) { c.Advertise = "127.0.0.1:70000" }},
		{"look up nowhere", func(c *Config) { c.Advertise, c.Resolver = "nowhere:1", &names{} }},
		{`Node "my node"`, func(c *Config) { c.Node = "my node" }},
		{`Node ""`, func(c *Config) { c.Node = "" }},
		{"key 2 has 5 bytes", func(c *Config) { c.Keys = [][]byte{make([]byte, 16), []byte("short")} }},
		{"Label has 65 bytes", func(c *Config) { c.Label = strings.Repeat("x", 65) }},
		{`Join: address "nodeport" is not`, func(c *Config) { c.Join = []string{"nodeport"} }},
		{"with a port from 1", func(c *Config) { c.JoinDNS = "service:0" }},
		{"ProbeTimeout 1h0m0s", func(c *Config) { c.Timing.ProbeTimeout = time.Hour }},
		{"Peer (400)", func(c *Config) { c.Peer = strings.Repeat("p", 400) }},
		{"listen on 192.0.2.1:0", func(c *Config) { c.Bind = "192.0.2.1:0" }},
	} {
		cfg := quick("a")
		test.change(&cfg)
		c, err := Open(t.Context(), cfg)
		if err == nil {
			t.Errorf("accepted, want %q", test.want)
			_ = c.Close()
		} else if !strings.Contains(err.Error(), test.want) {
			t.Errorf("error %v, want %q", err, test.want)
		}
	}
}

func TestEndpoints(t *testing.T) {
	t.Parallel()
	var both names
	both.addrs.Store(&[]netip.Addr{netip.MustParseAddr("fd00::1"), netip.MustParseAddr("10.0.0.9")})
	for _, test := range []struct{ bind, advertise, wantBind, wantAdvertise string }{
		{"10.0.0.1:7946", "", "10.0.0.1:7946", "10.0.0.1:7946"},
		{"0.0.0.0:7946", "10.0.0.1:17946", "0.0.0.0:7946", "10.0.0.1:17946"},
		{":7946", "[fd00::2]:7946", "[::]:7946", "[fd00::2]:7946"},
		{"0.0.0.0:7946", "rowmill-headless:7946", "0.0.0.0:7946", "10.0.0.9:7946"},
	} {
		bind, advertise, err := Config{Bind: test.bind, Advertise: test.advertise, Resolver: &both}.endpoints(context.Background())
		if err != nil || bind.String() != test.wantBind || advertise.String() != test.wantAdvertise {
			t.Errorf("%q, %q: %v, %v, %v; want %s, %s", test.bind, test.advertise, bind, advertise, err, test.wantBind, test.wantAdvertise)
		}
	}
}

// TestForeignMember joins with a memberlist of another program.
func TestForeignMember(t *testing.T) {
	t.Parallel()
	log := &logBuffer{}
	cfg := quick("a")
	cfg.Logger = log.logger()
	a := open(t, cfg)
	b := open(t, quick("b", a.address()))
	foreign := memberlist.DefaultLocalConfig()
	foreign.Name, foreign.BindAddr, foreign.BindPort = "consul", "127.0.0.1", 0
	foreign.Logger = newGossipLog(quick("x").withDefaults().Logger)
	list := must.Get(memberlist.Create(foreign))(t)
	defer func() { _ = list.Shutdown() }()
	must.Get(list.Join([]string{a.address()}))(t)
	wait.For(t, "it is refused", func() bool { return log.count("not a Rowmill node") > 0 })
	wantNodes(t, []string{"a", "b"}, a, b)
}

// TestAdvertise gives an address other than the one it listens on.
func TestAdvertise(t *testing.T) {
	t.Parallel()
	cfg := quick("a")
	cfg.Bind, cfg.Advertise = "0.0.0.0:0", "127.0.0.1:0"
	log := &logBuffer{}
	cfg.Logger = log.logger()
	a := open(t, cfg)
	b := open(t, quick("b", a.address()))
	wantNodes(t, []string{"a", "b"}, a, b)
	if log.count("not encrypted") != 0 {
		t.Error("warned of gossip that stays on loopback")
	}
	cfg.Advertise = "192.0.2.7:7946"
	open(t, cfg)
	if log.count("not encrypted") != 1 {
		t.Error("no warning about gossip without keys")
	}
}

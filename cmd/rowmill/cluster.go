package main

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/url"

	"github.com/rowmill/rowmill/actors"
	"github.com/rowmill/rowmill/cluster"
	"github.com/rowmill/rowmill/cluster/peer"
	"github.com/rowmill/rowmill/cluster/peer/peerv1/peerv1connect"
	"github.com/rowmill/rowmill/cmd/rowmill/settings"
	"github.com/rowmill/rowmill/cmd/rowmill/terminal"
)

// openCluster listens for other nodes, looks for them and lets them know of
// this one. Nothing that they ask is answered before openPipeline; none of
// them need to be there yet.
func (m *Main) openCluster(ctx context.Context) error {
	set := m.Settings.Cluster
	if !set.Enabled() {
		return nil
	}
	for _, warning := range set.Exposure() {
		m.Logger.Warn("THE CLUSTER IS OPEN TO STRANGERS", "reason", warning)
	}
	keys, err := set.Keys()
	if err != nil {
		return fmt.Errorf("cluster.key: %w", err)
	}
	m.peers, err = peer.Listen(m.peerConfig())
	if err != nil {
		return fmt.Errorf("cluster: %w", err)
	}
	m.opened("peer listener", m.peers.Close)
	m.Cluster, err = cluster.Open(ctx, cluster.Config{
		Node: m.nodeName(), Bind: set.Listen, Advertise: set.Advertise,
		Join: set.Join, JoinDNS: set.JoinDNS, JoinFile: set.JoinFile, Keys: keys, Label: set.Label,
		Peer:    cmp.Or(set.PeerAdvertise, reachable(m.peers.Addr().String(), cmp.Or(set.Advertise, set.Listen))),
		API:     m.announced(),
		Engines: set.Role != settings.APIOnly, Owns: set.Role != settings.EnginesOnly,
		Protocol: actors.Protocol, Logger: m.Logger, Metrics: m.Registry,
	})
	if err != nil {
		return err
	}
	m.opened("cluster", func(ctx context.Context) error {
		if err := m.Cluster.Leave(ctx); err != nil {
			// The others find out by themselves, seconds later.
			m.Logger.Warn("the other nodes were not told that this one leaves", "err", err)
		}
		return m.Cluster.Close()
	})
	return nil
}

func (m *Main) peerConfig() peer.Config {
	set := m.Settings.Cluster
	return peer.Config{
		Listen: set.PeerListen, TLS: peer.TLS{CertFile: set.TLSCert, KeyFile: set.TLSKey, CAFile: set.TLSCA},
		Ready:  func() bool { return !m.Pipeline.Draining() },
		Logger: m.Logger, Metrics: m.Registry,
	}
}

// openPeers makes what asks the other nodes.
func (m *Main) openPeers() (actors.Peers, error) {
	config := m.peerConfig()
	config.Node = m.Cluster.Self().ID
	client, err := peer.NewClient(config)
	if err != nil {
		return nil, err
	}
	m.opened("peer client", func(context.Context) error { client.Close(); return nil })
	return peersOf{m.Cluster, client}, nil
}

// peersOf is the cluster as the pipeline knows it: who is there, and a way to
// ask them.
type peersOf struct {
	*cluster.Cluster
	client *peer.Client
}

var _ actors.Peers = peersOf{}

// Node is another node.
func (p peersOf) Node(address string) peerv1connect.NodeServiceClient { return p.client.Node(address) }

// announced is the base of the API as other machines reach this node.
func (m *Main) announced() string {
	u, err := url.Parse(m.URL)
	if err != nil {
		return m.URL // made by url, which writes them well
	}
	set := m.Settings.Cluster
	u.Host = reachable(m.Addr.String(), cmp.Or(set.Advertise, set.Listen))
	return u.String()
}

// reachable is the address of a listener for others: where it is on all
// addresses of the machine, the host is that of another address, advertised.
func reachable(address, advertised string) string {
	if !settings.IsUnspecified(address) {
		return address
	}
	_, port, err := net.SplitHostPort(address)
	host, _, hostErr := net.SplitHostPort(advertised)
	if err != nil || hostErr != nil {
		return address // not of a TCP listener
	}
	return net.JoinHostPort(host, port)
}

// checkCluster has a line for each node, and says who else could be one.
func (s service) checkCluster(ctx context.Context, say func(name, text string)) {
	m := s.node
	if m.Cluster == nil {
		return
	}
	for _, n := range s.Nodes(ctx) {
		text := fmt.Sprintf("role %s, %s, at %s, version %s, serves %s; owns %d jobs, %d of %d rows in flight",
			n.Role, n.State, n.URL, n.Version, cmp.Or(terminal.Few(n.Models), "no model"), n.Jobs, n.InFlight, n.Window)
		switch {
		case n.Self:
			text += "; this one"
		case n.Since == nil:
			text = fmt.Sprintf("role %s, at %s, has not said what it serves yet", n.Role, n.URL)
		}
		say("node "+n.ID, text)
	}
	gossip, requests := "encrypted", "with mutual TLS"
	if m.Settings.Cluster.Key == "" {
		gossip = "in the clear"
	}
	if m.Settings.Cluster.TLSCert == "" {
		requests = "without TLS"
	}
	say("cluster", fmt.Sprintf("gossip on %s %s, requests between nodes on %s %s", m.Settings.Cluster.Listen, gossip, m.peers.Addr(), requests))
	for _, warning := range m.Settings.Cluster.Exposure() {
		say("cluster", "OPEN TO STRANGERS: "+warning)
	}
}

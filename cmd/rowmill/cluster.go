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
)

// membership is the node's membership in the cluster; empty on a node without a
// cluster.
type membership struct {
	part
	listeners *listeners
	ready     func() bool // whether this node takes work from other nodes

	Cluster *cluster.Cluster // nil without a cluster
	peers   *peer.Server     // nil without a cluster
}

// Start listens for other nodes, looks for them and announces this one. Requests from
// other nodes wait until the pipeline has started. Start works before any other node
// runs.
func (m *membership) Start(ctx context.Context) error {
	set := m.Settings.Cluster
	if !set.Enabled() {
		return nil
	}
	for _, warning := range set.Exposure() {
		m.Logger.Warn("ANYONE ON THE NETWORK CAN REACH THE CLUSTER", "reason", warning)
	}
	keys, err := set.Keys()
	if err != nil {
		return fmt.Errorf("cluster.key: %w", err)
	}
	m.peers, err = peer.Listen(m.peerConfig())
	if err != nil {
		return fmt.Errorf("cluster: %w", err)
	}
	m.onStop("peer listener", m.peers.Close)
	m.Cluster, err = cluster.Open(ctx, cluster.Config{
		Node: m.nodeName(), Bind: set.Listen, Advertise: set.Advertise,
		Join: set.Join, JoinDNS: set.JoinDNS, JoinFile: set.JoinFile, Keys: keys, Label: set.Label,
		Peer:    cmp.Or(set.PeerAdvertise, reachable(m.peers.Addr().String(), cmp.Or(set.Advertise, set.Listen))),
		API:     m.announcedURL(),
		Engines: set.Role != settings.APIOnly, Owns: set.Role != settings.EnginesOnly,
		Protocol: actors.Protocol, Logger: m.Logger, Metrics: m.Registry,
	})
	if err != nil {
		return err
	}
	m.onStop("cluster", func(ctx context.Context) error {
		if err := m.Cluster.Leave(ctx); err != nil {
			// The other nodes notice it by themselves, seconds later.
			m.Logger.Warn("telling the other nodes that this node leaves failed; they will notice it", "err", err)
		}
		return m.Cluster.Close()
	})
	return nil
}

func (m *membership) peerConfig() peer.Config {
	set := m.Settings.Cluster
	return peer.Config{
		Listen: set.PeerListen, TLS: peer.TLS{CertFile: set.TLSCert, KeyFile: set.TLSKey, CAFile: set.TLSCA},
		Ready:  m.ready,
		Logger: m.Logger, Metrics: m.Registry,
	}
}

// client makes the client for requests to other nodes.
func (m *membership) client() (actors.Peers, error) {
	config := m.peerConfig()
	config.Node = m.Cluster.Self().ID
	client, err := peer.NewClient(config)
	if err != nil {
		return nil, err
	}
	m.onStop("peer client", func(context.Context) error { client.Close(); return nil })
	return peersOf{m.Cluster, client}, nil
}

// peersOf gives the pipeline the list of nodes and a client for requests to them.
type peersOf struct {
	*cluster.Cluster
	client *peer.Client
}

var _ actors.Peers = peersOf{}

// Node returns the client for another node.
func (p peersOf) Node(address string) peerv1connect.NodeServiceClient { return p.client.Node(address) }

// announcedURL returns the base URL under which other machines reach the API of this
// node.
func (m *membership) announcedURL() string {
	u, err := url.Parse(m.listeners.URL)
	if err != nil {
		return m.listeners.URL // package url wrote this one, so it is valid
	}
	set := m.Settings.Cluster
	u.Host = reachable(m.listeners.Addr.String(), cmp.Or(set.Advertise, set.Listen))
	return u.String()
}

// count returns the number of nodes, this one included.
func (m *membership) count() int {
	if m.Cluster == nil {
		return 1
	}
	return len(m.Cluster.Members())
}

func (m *membership) secrets() []secret {
	if m.Cluster == nil {
		return nil
	}
	return []secret{parsed("cluster.key", func(set settings.Settings) settings.Secret { return set.Cluster.Key },
		func(set settings.Settings) ([][]byte, error) { return set.Cluster.Keys() }, m.Cluster.SetKeys)}
}

// reachable returns the address under which other nodes reach a listener. If the
// listener is on all addresses of the machine, the host is that of advertised.
func reachable(address, advertised string) string {
	if !settings.IsUnspecified(address) {
		return address
	}
	_, port, err := net.SplitHostPort(address)
	host, _, hostErr := net.SplitHostPort(advertised)
	if err != nil || hostErr != nil {
		return address // not a TCP address
	}
	return net.JoinHostPort(host, port)
}

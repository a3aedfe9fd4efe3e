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

// clusterMembership is the part of a node that joins the cluster. Without a cluster it does
// nothing.
type clusterMembership struct {
	partBase
	listeners *listeners
	ready     func() bool // reports whether this node takes work from other nodes

	Cluster *cluster.Cluster // nil without a cluster
	peers   *peer.Server     // nil without a cluster
}

// Start listens for requests of other nodes, joins the cluster and announces this node.
// Requests from other nodes wait until the pipeline has started. Start also succeeds if
// no other node runs yet.
func (m *clusterMembership) Start(ctx context.Context) error {
	set := m.Settings.Cluster
	if !set.Enabled() {
		return nil
	}
	for _, warning := range set.ExposureWarnings() {
		m.Logger.Warn("ANYONE ON THE NETWORK CAN REACH THE CLUSTER", "reason", warning)
	}
	keys, err := set.GossipKeys()
	if err != nil {
		return fmt.Errorf("cluster.key: %w", err)
	}
	m.peers, err = peer.Listen(m.peerConfig())
	if err != nil {
		return fmt.Errorf("cluster: %w", err)
	}
	m.addCloser("peer listener", m.peers.Close)
	m.Cluster, err = cluster.Open(ctx, cluster.Config{
		Node: m.nodeName(), Bind: set.Listen, Advertise: set.Advertise,
		Join: set.Join, JoinDNS: set.JoinDNS, JoinFile: set.JoinFile, Keys: keys, Label: set.Label,
		Peer:    cmp.Or(set.PeerAdvertise, reachableAddress(m.peers.Addr().String(), cmp.Or(set.Advertise, set.Listen))),
		API:     m.announcedURL(),
		Engines: set.Role != settings.APIOnly, Owns: set.Role != settings.EnginesOnly,
		Protocol: actors.Protocol, Logger: m.Logger, Metrics: m.Registry,
	})
	if err != nil {
		return err
	}
	m.addCloser("cluster", func(ctx context.Context) error {
		if err := m.Cluster.Leave(ctx); err != nil {
			// The other nodes detect within seconds that this node does not answer.
			m.Logger.Warn("this node could not tell the other nodes that it leaves; they detect it within seconds", "err", err)
		}
		return m.Cluster.Close()
	})
	return nil
}

func (m *clusterMembership) peerConfig() peer.Config {
	set := m.Settings.Cluster
	return peer.Config{
		Listen: set.PeerListen, TLS: peer.TLS{CertFile: set.TLSCert, KeyFile: set.TLSKey, CAFile: set.TLSCA},
		Ready:  m.ready,
		Logger: m.Logger, Metrics: m.Registry,
	}
}

// newPeerClient creates a client for requests to other nodes.
func (m *clusterMembership) newPeerClient() (actors.Peers, error) {
	config := m.peerConfig()
	config.Node = m.Cluster.Self().ID
	client, err := peer.NewClient(config)
	if err != nil {
		return nil, err
	}
	m.addCloser("peer client", func(context.Context) error { client.Close(); return nil })
	return clusterPeers{m.Cluster, client}, nil
}

// clusterPeers implements actors.Peers: it has the list of nodes, and a client for requests
// to them.
type clusterPeers struct {
	*cluster.Cluster
	client *peer.Client
}

var _ actors.Peers = clusterPeers{}

// Node returns the client for requests to the node at address.
func (p clusterPeers) Node(address string) peerv1connect.NodeServiceClient {
	return p.client.Node(address)
}

// announcedURL returns the base URL at which other machines reach the API of this node.
func (m *clusterMembership) announcedURL() string {
	u, err := url.Parse(m.listeners.URL)
	if err != nil {
		return m.listeners.URL // does not happen: listeners makes only valid URLs
	}
	set := m.Settings.Cluster
	u.Host = reachableAddress(m.listeners.Addr.String(), cmp.Or(set.Advertise, set.Listen))
	return u.String()
}

// nodeCount returns the number of nodes in the cluster, including this node; 1 without a
// cluster.
func (m *clusterMembership) nodeCount() int {
	if m.Cluster == nil {
		return 1
	}
	return len(m.Cluster.Members())
}

func (m *clusterMembership) reloadableSecrets() []reloadableSecret {
	if m.Cluster == nil {
		return nil
	}
	return []reloadableSecret{newParsedSecret("cluster.key", func(set settings.Settings) settings.Secret { return set.Cluster.Key },
		func(set settings.Settings) ([][]byte, error) { return set.Cluster.GossipKeys() }, m.Cluster.SetKeys)}
}

// reachableAddress returns the address at which other nodes reach a listener. If the listener
// listens on all addresses of the machine, the host comes from advertised.
func reachableAddress(address, advertised string) string {
	if !settings.IsUnspecified(address) {
		return address
	}
	_, port, err := net.SplitHostPort(address)
	host, _, hostErr := net.SplitHostPort(advertised)
	if err != nil || hostErr != nil {
		return address // address has no port, so it is not a TCP address
	}
	return net.JoinHostPort(host, port)
}

package main

import (
	"cmp"
	"net"
	"net/url"
)

// ownAddresses is where this node and those beside it listen and where their
// rows run, HOST:PORT each: what no input may lead to. It is asked only once the
// pipeline is there.
func (m *Main) ownAddresses() []string {
	addresses := []string{m.Addr.String()}
	if m.AdminAddr != nil {
		addresses = append(addresses, m.AdminAddr.String())
	}
	for _, e := range m.Settings.Engines {
		addresses = append(addresses, hostPort(e.URL))
	}
	// A server that was found, or is simulated, has no URL in the settings. The pipeline
	// lists a server of the start a moment later, when its actor runs.
	for _, e := range m.Engines {
		addresses = append(addresses, m.host(e.Name()))
	}
	for _, e := range m.Pipeline.Engines() {
		addresses = append(addresses, m.host(e.Name))
	}
	if m.Cluster == nil {
		return addresses
	}
	set := m.Settings.Cluster
	addresses = append(addresses, set.Listen, set.Advertise, m.peers.Addr().String(), set.PeerAdvertise)
	for _, member := range m.Cluster.Members() {
		addresses = append(addresses, member.Peer, hostPort(member.API))
	}
	return addresses
}

// hostPort is HOST:PORT of a URL, the port of its scheme where it names none.
func hostPort(base string) string {
	u, err := url.Parse(base)
	if err != nil {
		return ""
	}
	usual := map[string]string{"http": "80", "https": "443"}[u.Scheme]
	return net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), usual))
}

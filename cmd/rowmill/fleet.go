package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/actors"
	"github.com/rowmill/rowmill/cluster/peer"
	"github.com/rowmill/rowmill/cmd/rowmill/terminal"
	"github.com/rowmill/rowmill/engine"
	"github.com/rowmill/rowmill/http"
)

// Nodes returns the live nodes by id.
func (s service) Nodes(context.Context) []http.Node {
	var nodes []http.Node
	for _, n := range s.System.Nodes() {
		node := http.Node{
			ID: n.ID, Name: n.Name, Self: n.Self, Role: role(n), State: http.NodeRunning,
			URL: n.API, Peer: n.Peer, Version: n.Version, Models: s.node.served(offers(n.Models)),
			Jobs: n.Jobs, Window: n.Window, InFlight: n.InFlight,
		}
		if n.Self {
			node.URL = s.node.announced()
		}
		if n.Draining {
			node.State = http.NodeDraining
		}
		if !n.Since.IsZero() {
			node.Since = &n.Since
		}
		nodes = append(nodes, node)
	}
	return nodes
}

// offers is what servers of a node offer together, by their names of it.
func offers(names []string) engine.Info {
	var info engine.Info
	for _, name := range names {
		info.Models = append(info.Models, engine.ServedModel{Name: name})
	}
	return info
}

func role(n actors.NodeStatus) string {
	switch {
	case !n.Owns:
		return http.NodeEngines
	case !n.Engines:
		return http.NodeAPI
	}
	return http.NodeBoth
}

// DrainNode drains a node.
func (s service) DrainNode(ctx context.Context, id string) error {
	err := s.System.DrainNode(ctx, id)
	var refusal *peer.Refusal
	if errors.Is(err, peer.ErrRefused) || errors.Is(err, peer.ErrUnreachable) || errors.As(err, &refusal) {
		return fmt.Errorf("%w: %w", http.ErrNodeAway, err)
	}
	return err
}

// remoteTimeout bounds each look at a server that nodes share, well below the
// patience of those who ask whether a node is ready.
const remoteTimeout = 500 * time.Millisecond

// checkStorage says where records and objects are, and what is wrong with it.
func (s service) checkStorage(ctx context.Context, say func(name, text string)) {
	m := s.node
	say("records", "at "+m.records())
	if m.durability != nil {
		ctx, cancel := context.WithTimeout(ctx, remoteTimeout)
		warnings, err := m.durability(ctx)
		cancel()
		if err != nil {
			say("records", "the server's settings cannot be read: "+short(err))
		}
		for _, warning := range warnings {
			say("records", "CAN BE LOST: "+warning)
		}
	}
	if m.folder != nil {
		say("objects", "at "+m.objects())
		return
	}
	ctx, cancel := context.WithTimeout(ctx, remoteTimeout)
	defer cancel()
	if _, err := m.Bucket.Stat(ctx, "ready"); err != nil && !errors.Is(err, rowmill.ErrNotFound) {
		say("objects", "CANNOT BE REACHED at "+m.objects()+": "+short(err))
		return
	}
	say("objects", "at "+m.objects())
}

// checkCluster has a line for each node, and says who else could be one.
func (s service) checkCluster(ctx context.Context, say func(name, text string)) {
	m := s.node
	if m.Cluster == nil {
		return
	}
	for _, n := range s.Nodes(ctx) {
		text := fmt.Sprintf("role %s, %s, at %s, version %s, serves %s; owns %d jobs, %d of %d rows in flight",
			n.Role, n.State, n.URL, n.Version, cmp.Or(terminal.Few(n.Models), "none of the catalog's models"), n.Jobs, n.InFlight, n.Window)
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

package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/actors/nodes"
	"github.com/rowmill/rowmill/cluster/peer"
	"github.com/rowmill/rowmill/engine"
	"github.com/rowmill/rowmill/engine/offer"
	"github.com/rowmill/rowmill/engine/openai"
	"github.com/rowmill/rowmill/http"
)

// Nodes returns the live nodes by id.
func (s service) Nodes(context.Context) []http.Node {
	var nodes []http.Node
	for _, n := range s.System.Nodes() {
		node := http.Node{
			ID: n.ID, Name: n.Name, Self: n.Self, Role: role(n), State: http.NodeRunning,
			URL: n.API, Peer: n.Peer, Version: n.Version, Models: s.node.served(offers(n.Servers)),
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

// Servers returns the inference servers that take rows now.
func (s service) Servers() (servers []offer.Server) {
	for _, n := range s.System.Nodes() {
		if n.Draining {
			continue
		}
		for _, e := range n.Servers {
			servers = append(servers, offer.Server{Node: n.Name, Name: e.Name, Kind: e.Kind, Counts: openai.Counts(e.Kind), Simulated: e.Simulated, Models: e.Models})
		}
	}
	return servers
}

// Counting says how this node counts prompts of a model. Embeddings come in
// groups, of which nothing is learned.
func (s service) Counting(m rowmill.Model) http.Counting {
	exact, off, compared := s.System.Counting(m)
	said := http.Counting{Exact: exact}
	if compared {
		said.MeanError = &off
	}
	return said
}

// offers is what servers of a node offer together.
func offers(servers []nodes.Engine) (info engine.Info) {
	for _, s := range servers {
		info.Models = append(info.Models, s.Models...)
	}
	return info
}

func role(n nodes.Status) string {
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

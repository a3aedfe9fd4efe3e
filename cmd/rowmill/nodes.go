package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/rowmill/rowmill/actors/nodes"
	"github.com/rowmill/rowmill/cluster/peer"
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

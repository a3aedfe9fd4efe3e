package main

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/rowmill/rowmill/actors"
	"github.com/rowmill/rowmill/actors/peerstest"
	"github.com/rowmill/rowmill/cluster"
	"github.com/rowmill/rowmill/cluster/peer"
	"github.com/rowmill/rowmill/internal/must"
)

// The conformance suite of the pipeline's peers, over real sockets.
func TestPeers_Conformance(t *testing.T) {
	t.Parallel()
	peerstest.Run(t, func(t *testing.T, test func(*testing.T)) { test(t) }, func(_ *testing.T, handleTimeout time.Duration) peerstest.Harness {
		n := &sockets{gossip: map[int]string{}, requests: map[int]string{}, handleTimeout: handleTimeout}
		return peerstest.Harness{Start: n.start, MaxWaiting: maxWaiting}
	})
}

// maxWaiting is how many requests may wait in a process for another process.
const maxWaiting = 256

// sockets holds the addresses of the nodes by number.
type sockets struct {
	gossip, requests map[int]string
	handleTimeout    time.Duration
}

func (n *sockets) start(t *testing.T, place int) peerstest.Process {
	t.Helper()
	requests, join := "127.0.0.1:0", []string(nil)
	for other, address := range n.gossip {
		if other == place {
			requests = n.requests[place]
		} else {
			join = append(join, address)
		}
	}
	server, err := peer.Listen(peer.Config{Listen: requests, HandleTimeout: n.handleTimeout})
	must.Succeed(t, err)
	var members *cluster.Cluster
	for range 5 { // another process may take an address that was free
		gossip := n.gossip[place]
		if gossip == "" {
			gossip = freeAddress(t)
		}
		members, err = cluster.Open(t.Context(), cluster.Config{
			Node: fmt.Sprintf("node-%d", place), Bind: gossip, Join: join,
			Peer: server.Addr().String(), API: fmt.Sprintf("http://127.0.0.1:808%d", place),
			Engines: place != 1, Owns: place != 2, Protocol: actors.Protocol,
			Timing: cluster.Timing{ // ten times faster than by default
				RejoinInterval: 300 * time.Millisecond, ProbeInterval: 100 * time.Millisecond, ProbeTimeout: 60 * time.Millisecond,
				GossipInterval: 20 * time.Millisecond, SyncInterval: time.Second, DeadTime: 200 * time.Millisecond, StreamTimeout: 2 * time.Second,
			},
		})
		if err == nil {
			n.requests[place], n.gossip[place] = server.Addr().String(), gossip
			break
		}
	}
	must.Succeed(t, err)
	client, err := peer.NewClient(peer.Config{HandleTimeout: n.handleTimeout, MaxWaiting: maxWaiting, Node: members.Self().ID})
	must.Succeed(t, err)
	kill := func() {
		_ = members.Close()
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		_ = server.Close(ended) // the error says that it did not wait
		client.Close()
	}
	t.Cleanup(kill)
	return peerstest.Process{
		Peers: clusterPeers{members, client}, Serve: server.SetHandler, Kill: kill,
		Leave: func() {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			if err := members.Leave(ctx); err != nil {
				t.Errorf("leave: %v", err)
			}
			if err := server.Close(ctx); err != nil {
				t.Errorf("close: %v", err)
			}
		},
	}
}

package actors

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"slices"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/actors/assign"
	"github.com/rowmill/rowmill/cluster"
	"github.com/rowmill/rowmill/cluster/peer"
	"github.com/rowmill/rowmill/engine"
)

// Protocol is the version of what nodes tell each other. Nodes of different
// versions share no rows.
const Protocol = peer.Protocol

// Peers are the other nodes of the cluster.
type Peers interface {
	// Self is this node.
	Self() cluster.Member
	// Members are the nodes that are alive as far as is known, this one
	// included.
	Members() []cluster.Member
	// Changed holds a token after Members or their states changed.
	Changed() <-chan struct{}
	// SetState spreads what this node says of itself; an error says that it is
	// too long.
	SetState(doc []byte) error
	// Ask sends a request to the node at an address and decodes its answer
	// into reply, unless that is nil. Errors are those of peer.Client.
	Ask(ctx context.Context, address string, e peer.Envelope, reply any) error
}

// A nodeState is what a node tells the others of itself.
type nodeState struct {
	Version  string        `json:"version"`
	Since    time.Time     `json:"since"` // when it started
	Draining bool          `json:"draining,omitempty"`
	Jobs     int           `json:"jobs"` // that it owns
	Engines  []engineState `json:"engines,omitempty"`
}

// An engineState is an engine of another node that is up.
type engineState struct {
	Name      string               `json:"name"`
	Kind      string               `json:"kind"`
	Simulated bool                 `json:"simulated,omitempty"`
	Window    int                  `json:"window"`
	InFlight  int                  `json:"in_flight"`
	Models    []engine.ServedModel `json:"models,omitempty"`
}

// views are the engines of another node, as a job looks at them.
func (s nodeState) views(member cluster.Member) []engineView {
	out := make([]engineView, 0, len(s.Engines))
	for _, e := range s.Engines {
		out = append(out, engineView{
			name: member.ID + "/" + e.Name, local: e.Name, address: member.Peer, up: !s.Draining,
			info: engine.Info{Kind: e.Kind, Simulated: e.Simulated, Models: e.Models},
		})
	}
	return out
}

// readState reads what a member last said; ok is false before it said
// anything.
func readState(m cluster.Member) (s nodeState, ok bool) {
	return s, len(m.State) > 0 && json.Unmarshal(m.State, &s) == nil
}

func rendezvous(job, member string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(member + "\x00" + job)) // never fails
	x := h.Sum64()
	x ^= x >> 32 // FNV leaves the high bits of short keys alike
	x *= 0xd6e8feb86659fd93
	return x ^ x>>32
}

// NodeStatus is what is known of one node of the cluster.
type NodeStatus struct {
	ID, Name, API, Peer, Version  string
	Self, Engines, Owns, Draining bool
	Models                        []string // that its engines serve, sorted
	Jobs                          int      // that it owns
	Window, InFlight              int      // rows, all its engines together
	Since                         time.Time
}

// Nodes returns the nodes of the cluster, this one alone where there is none.
func (s *System) Nodes() []NodeStatus {
	if s.cfg.Peers == nil {
		st := NodeStatus{ID: s.cfg.Node, Name: s.cfg.Node, Self: true, Engines: true, Owns: !s.cfg.OwnsNone, Draining: s.Draining()}
		st.fill(*s.state.Load())
		return []NodeStatus{st}
	}
	var out []NodeStatus
	for _, m := range s.cfg.Peers.Members() {
		st := NodeStatus{ID: m.ID, Name: m.Node, API: m.API, Peer: m.Peer, Self: m.Self, Engines: m.Engines, Owns: m.Owns}
		if m.Self {
			st.fill(*s.state.Load())
			st.Draining = s.Draining()
		} else if said, ok := readState(m); ok {
			st.fill(said)
		}
		out = append(out, st)
	}
	return out
}

func (st *NodeStatus) fill(s nodeState) {
	st.Version, st.Since, st.Draining, st.Jobs = s.Version, s.Since, s.Draining, s.Jobs
	for _, e := range s.Engines {
		st.Window += e.Window
		st.InFlight += e.InFlight
		for _, m := range e.Models {
			if !slices.Contains(st.Models, m.Name) {
				st.Models = append(st.Models, m.Name)
			}
		}
	}
	slices.Sort(st.Models)
}

// DrainNode makes a node drain and leave: the one with that id, or that name
// where only one has it; this one when id is empty. rowmill.ErrNotFound where
// there is none, rowmill.ErrConflict where several have the name.
func (s *System) DrainNode(ctx context.Context, id string) error {
	var found []NodeStatus
	for _, n := range s.Nodes() {
		if n.ID == id || id == "" && n.Self {
			found = []NodeStatus{n}
			break
		}
		if n.Name == id {
			found = append(found, n)
		}
	}
	switch {
	case len(found) == 0:
		return fmt.Errorf("node %q: %w", id, rowmill.ErrNotFound)
	case len(found) > 1:
		return fmt.Errorf("%d nodes are called %q, name one by its id: %w", len(found), id, rowmill.ErrConflict)
	case found[0].Self:
		s.askToDrain()
		return nil
	}
	return s.post.ask(ctx, found[0].Peer, kindDrain, "", 0, struct{}{}, nil)
}

// DrainAsked is closed once this node was told to drain, here or from another.
func (s *System) DrainAsked() <-chan struct{} { return s.drainAsked }

func (s *System) askToDrain() { s.askOnce.Do(func() { close(s.drainAsked) }) }

// answerTimeout bounds what another node waits for this one's actors: they
// answer at once, but for a worker that is set up or stopped first.
const answerTimeout = 10 * time.Second

// Answer serves what another node asks. It is the only way in; errors are
// *peer.Refusal.
func (s *System) Answer(ctx context.Context, e peer.Envelope) (any, error) {
	body, err := decode(e)
	if err != nil {
		return nil, err
	}
	wait := answerTimeout
	if deadline, ok := ctx.Deadline(); ok {
		wait = min(wait, time.Until(deadline))
	}
	answer, err := s.actors.Root.RequestFuture(s.node, fromPeer{body}, wait).Result()
	if err != nil {
		return nil, refuse(codeBusy, "the node did not answer in time")
	}
	switch answer := answer.(type) {
	case *peer.Refusal:
		return nil, answer
	case peerAccepted:
		return struct{}{}, nil
	default:
		return answer, nil
	}
}

// decode reads the body of an envelope.
func decode(e peer.Envelope) (body any, refusal error) {
	switch e.Kind {
	case kindInvite:
		body = new(invite)
	case kindHeartbeat:
		body = new(assign.Heartbeat)
	case kindAssignment:
		body = new(assign.Assignment)
	case kindDismiss:
		body = new(dismiss)
	case kindHint:
		body = new(hint)
	case kindDrain:
		return drainNode{}, nil
	default:
		return nil, refuse(peer.CodeUnknownKind, "kind %q means nothing here", e.Kind)
	}
	if err := json.Unmarshal(e.Body, body); err != nil {
		return nil, refuse(peer.CodeInvalid, "%s: %v", e.Kind, err)
	}
	switch m := body.(type) {
	case *invite:
		if m.Address == "" {
			return nil, refuse(peer.CodeInvalid, "invite: address is missing")
		}
	case *assign.Heartbeat:
		if m.Address == "" || m.Worker == "" || !m.WellFormed() {
			return nil, refuse(peer.CodeInvalid, "report: address, worker or row sets are missing")
		}
	case *hint:
		return *m, nil
	}
	return body, nil
}

// follow tells the node when members come and go.
func (s *System) follow() {
	defer s.all.Done()
	for {
		select {
		case <-s.life.Done():
			return
		case <-s.cfg.Peers.Changed():
			s.actors.Root.Send(s.node, membersChanged{})
		}
	}
}

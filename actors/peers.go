package actors

import (
	"context"
	"time"

	"github.com/rowmill/rowmill/actors/nodes"
	"github.com/rowmill/rowmill/cluster"
	"github.com/rowmill/rowmill/cluster/peer"
)

// Nodes returns the nodes of the cluster, this one alone where there is none.
func (s *System) Nodes() []nodes.Status {
	own := *s.state.Load()
	own.Draining = s.Draining()
	if s.cfg.Peers == nil {
		self := cluster.Member{ID: s.cfg.Node, Node: s.cfg.Node, Self: true, Engines: true, Owns: !s.cfg.Ownership.OwnsNone}
		return []nodes.Status{nodes.StatusOf(self, own)}
	}
	var out []nodes.Status
	for _, m := range s.cfg.Peers.Members() {
		said := own
		if !m.Self {
			said, _ = nodes.Read(m)
		}
		out = append(out, nodes.StatusOf(m, said))
	}
	return out
}

// DrainNode makes a node drain and leave, the one that nodes.Find finds.
func (s *System) DrainNode(ctx context.Context, id string) error {
	n, err := nodes.Find(s.Nodes(), id)
	switch {
	case err != nil:
		return err
	case n.Self:
		s.askToDrain()
		return nil
	}
	return s.transport.ask(ctx, n.Peer, kindDrain, "", 0, struct{}{}, nil)
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
	answer, err := s.actors.Root.RequestFuture(s.node, nodeRequest{body, true}, wait).Result()
	if err != nil {
		return nil, refuse(codeBusy, "the node did not answer in time")
	}
	switch answer := answer.(type) {
	case *peer.Refusal:
		return nil, answer
	case accepted:
		return struct{}{}, nil
	default:
		return answer, nil
	}
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

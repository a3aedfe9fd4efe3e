package actors

import (
	"context"
	"sync"
	"time"

	"github.com/rowmill/rowmill/actors/nodes"
	"github.com/rowmill/rowmill/actors/registry"
)

// A Reply is what one node answers to a question to all of them.
type Reply[T any] struct {
	Node   nodes.Status
	Answer T
	Err    error // it has not answered
}

// surveyTimeout is how long a node may take for an answer: it asks none of its
// actors.
const surveyTimeout = 3 * time.Second

// Actors lists the actors of all nodes, or of the one that nodes.Find finds.
// Nodes that do not answer are among the replies.
func (s *System) Actors(ctx context.Context, node string, f registry.Filter) ([]Reply[registry.Listing], error) {
	return survey(ctx, s, node, kindActors, listActors{f}, func() registry.Listing { return s.metrics.registry.List(f) })
}

// survey asks all nodes, or one, and answers for this one.
func survey[T any](ctx context.Context, s *System, node, kind string, question any, own func() T) ([]Reply[T], error) {
	asked := s.Nodes()
	if node != "" {
		one, err := nodes.Find(asked, node)
		if err != nil {
			return nil, err
		}
		asked = []nodes.Status{one}
	}
	ctx, cancel := context.WithTimeout(ctx, surveyTimeout)
	defer cancel()
	replies := make([]Reply[T], len(asked))
	var all sync.WaitGroup
	for i, n := range asked {
		replies[i].Node = n
		if n.Self {
			replies[i].Answer = own()
			continue
		}
		all.Go(func() { replies[i].Err = s.transport.ask(ctx, n.Peer, kind, "", 0, question, &replies[i].Answer) })
	}
	all.Wait()
	return replies, nil
}

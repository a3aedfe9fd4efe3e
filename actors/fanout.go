package actors

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/actors/nodes"
	"github.com/rowmill/rowmill/actors/registry"
	"github.com/rowmill/rowmill/cluster"
	"github.com/rowmill/rowmill/cluster/peer"
	"github.com/rowmill/rowmill/cluster/peer/peerv1"
	"github.com/rowmill/rowmill/internal/textfmt"
	"github.com/rowmill/rowmill/store"
)

// A NodeReply is the answer or the error of one node, after a question to all nodes.
type NodeReply[T any] struct {
	Node   nodes.Status
	Answer T
	Err    error // why the node has not answered; nil if it has
}

// fanOutTimeout is the timeout for a question to a node that the node answers without
// asking its actors.
const fanOutTimeout = 3 * time.Second

// Actors lists the actors of all nodes, or of one node by its id or name. A node that
// does not answer has a NodeReply with an error.
func (s *System) Actors(ctx context.Context, node string, f registry.Filter) ([]NodeReply[registry.Listing], error) {
	own := func(context.Context) (registry.Listing, error) { return s.actorsHere(f), nil }
	return fanOut(ctx, s, fanOutTimeout, node, own, func(ctx context.Context, address string) (registry.Listing, error) {
		return s.transport.listActors(ctx, address, f)
	})
}

// actorsHere lists the actors of this node. If rows wait for an engine, it puts the
// reason into the Trouble of the engine's actor.
func (s *System) actorsHere(f registry.Filter) registry.Listing {
	waits := make(map[string]string)
	for _, e := range s.Engines() {
		waits[e.Name] = strings.Join(e.Waits(), "; ")
	}
	l := s.metrics.registry.List(f)
	for i, a := range l.Actors {
		if why := waits[a.Engine]; why != "" && a.State == registry.Running {
			l.Actors[i].Trouble = &registry.Trouble{Text: textfmt.Shorten(why, maxWaits), At: s.cfg.Clock().UTC()}
		}
	}
	return l
}

// maxWaits is the largest size, in bytes, of the text that says why rows wait for an
// engine: enough for a few models and their times.
const maxWaits = 600

// Facts returns Config.Reports.Facts of all nodes, for operators, as JSON.
func (s *System) Facts(ctx context.Context) ([]NodeReply[json.RawMessage], error) {
	own := func(ctx context.Context) (json.RawMessage, error) { return json.Marshal(s.cfg.Reports.Facts(ctx)) }
	return fanOut(ctx, s, s.cfg.Reports.FactsTimeout, "", own, s.transport.fetchFacts)
}

// Figures returns Config.Reports.Figures of all nodes, or of one node by its id or name, for
// the API, as JSON.
func (s *System) Figures(ctx context.Context, node, kind string) ([]NodeReply[json.RawMessage], error) {
	own := func(ctx context.Context) (json.RawMessage, error) { return encodeFigures(ctx, s, kind) }
	return fanOut(ctx, s, fanOutTimeout, node, own, func(ctx context.Context, address string) (json.RawMessage, error) {
		return s.transport.fetchFigures(ctx, address, kind)
	})
}

// encodeFigures returns the figures of this node as JSON.
func encodeFigures(ctx context.Context, s *System, what string) (json.RawMessage, error) {
	own, err := s.cfg.Reports.Figures(ctx, what)
	if err != nil {
		return nil, err
	}
	return json.Marshal(own)
}

// fanOut sends a question to all nodes, or to one node if node is not empty, and
// returns their replies. It calls own for this node, and ask for every other node.
func fanOut[T any](ctx context.Context, s *System, timeout time.Duration, node string, own func(ctx context.Context) (T, error), ask func(ctx context.Context, address string) (T, error)) ([]NodeReply[T], error) {
	asked := s.Nodes()
	if node != "" {
		one, err := nodes.Find(asked, node)
		if err != nil {
			return nil, err
		}
		asked = []nodes.Status{one}
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	replies := make([]NodeReply[T], len(asked))
	var all sync.WaitGroup
	for i, n := range asked {
		replies[i].Node = n
		if n.Self {
			all.Go(func() { replies[i].Answer, replies[i].Err = own(ctx) })
			continue
		}
		all.Go(func() { replies[i].Answer, replies[i].Err = ask(ctx, n.Peer) })
	}
	all.Wait()
	return replies, nil
}

// whereTimeout is the timeout of the owner's answer to RowDistribution. It is short,
// because the owner only reads counts in memory.
const whereTimeout = time.Second

// RowDistribution asks the owner of a job how many rows each node has. It returns
// rowmill.ErrNotFound if the owner is not a member of the cluster, has not counted the
// rows yet, has lost the job meanwhile, or runs a version without this request.
func (s *System) RowDistribution(ctx context.Context, rec *store.Record) (w RowDistribution, err error) {
	owner, err := s.ownerOf(rec)
	if err != nil {
		return w, err
	}
	ctx, cancel := context.WithTimeout(ctx, whereTimeout)
	defer cancel()
	question := &peerv1.LocateRowsRequest{Job: rec.Job.ID}
	var res *peerv1.LocateRowsResponse
	if owner.Self {
		res, err = nodeService{s}.LocateRows(ctx, question)
	} else {
		res, err = askPeer(ctx, s.transport, owner.Peer, peerNode.LocateRows, question)
	}
	return readRowDistribution(res), notFoundIfUnknown(err)
}

// notFoundIfUnknown adds rowmill.ErrNotFound to the error of a question about a job, if the
// asked node does not know the job or the question.
func notFoundIfUnknown(err error) error {
	if code := refusalCode(err); code == codeUnknownJob || code == peer.CodeUnknownKind {
		return fmt.Errorf("%w: %w", rowmill.ErrNotFound, err)
	}
	return err
}

// ownerOf returns the node that the record names as the job's owner. On a single node
// it returns this node.
func (s *System) ownerOf(rec *store.Record) (cluster.Member, error) {
	if s.cfg.Peers == nil {
		return cluster.Member{Self: true}, nil
	}
	claim, _ := rec.OwnerClaim()
	for _, m := range s.cfg.Peers.Members() {
		if m.ID == claim.Process && (m.Self || m.Protocol == Protocol) {
			return m, nil
		}
	}
	return cluster.Member{}, fmt.Errorf("%w: the owner of job %s is not a member of the cluster now", rowmill.ErrNotFound, rec.Job.ID)
}

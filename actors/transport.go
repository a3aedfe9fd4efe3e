package actors

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/rowmill/rowmill/actors/assign"
	"github.com/rowmill/rowmill/actors/commit"
	"github.com/rowmill/rowmill/actors/nodes"
	"github.com/rowmill/rowmill/actors/registry"
	"github.com/rowmill/rowmill/cluster"
	"github.com/rowmill/rowmill/cluster/peer"
	"github.com/rowmill/rowmill/cluster/peer/peerv1"
	"github.com/rowmill/rowmill/cluster/peer/peerv1/peerv1connect"
)

// Protocol is the major version of what nodes tell each other, which members announce.
// Nodes of different ones share no rows.
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
	// Node is what can be asked of the node at an address. Errors are those of
	// peer.Client.
	Node(address string) peerv1connect.NodeServiceClient
}

// tellTimeout is how long a message to another node may take: many times what
// it takes a node that is well, and less than two reports.
const tellTimeout = 1500 * time.Millisecond

// A transport speaks with the other nodes.
type transport struct {
	peers    Peers // nil on a node that stands alone
	silences nodes.Silences
}

// peerNode is another node.
type peerNode = peerv1connect.NodeServiceClient

// ask asks the node at an address, and notes that it has answered.
func ask[Req, Res any](ctx context.Context, t *transport, address string, method func(peerNode, context.Context, *Req) (*Res, error), r *Req) (*Res, error) {
	res, err := method(t.peers.Node(address), ctx, r)
	if err == nil || code(err) != "" {
		t.silences.Answered(address)
	}
	return res, err
}

// tell says something that may be lost: a heartbeat, an assignment or a hint.
func (t *transport) tell(ctx context.Context, address string, message any) (err error) {
	ctx, cancel := context.WithTimeout(ctx, tellTimeout)
	defer cancel()
	switch m := message.(type) {
	case *assign.Heartbeat:
		_, err = ask(ctx, t, address, peerNode.Report, reportOf(m))
	case *assign.Assignment:
		_, err = ask(ctx, t, address, peerNode.Assign, assignmentOf(m))
	case *hint:
		_, err = ask(ctx, t, address, peerNode.Hint, m)
	default:
		err = fmt.Errorf("a %T is nothing to tell a node", m)
	}
	return err
}

func (t *transport) invite(ctx context.Context, address string, m *invite) (*invited, error) {
	res, err := ask(ctx, t, address, peerNode.Invite, invitationOf(m))
	return &invited{Working: res.GetWorking()}, err
}

func (t *transport) drain(ctx context.Context, address string) error {
	_, err := ask(ctx, t, address, peerNode.Drain, &peerv1.DrainRequest{})
	return err
}

func (t *transport) isDownloading(ctx context.Context, address, job string) (bool, error) {
	res, err := ask(ctx, t, address, peerNode.IsDownloading, &peerv1.IsDownloadingRequest{Job: job})
	return res.GetRunning(), err
}

func (t *transport) runErrand(ctx context.Context, address string, m mergeParts) (commit.ErrandState, error) {
	res, err := ask(ctx, t, address, peerNode.RunErrand, errandOf(&m))
	return commit.ErrandState{Done: res.GetDone(), Size: res.GetSize(), Failed: res.GetFailed()}, err
}

func (t *transport) listActors(ctx context.Context, address string, f registry.Filter) (registry.Listing, error) {
	res, err := ask(ctx, t, address, peerNode.ListActors, filterOf(f))
	return readListing(res), err
}

func (t *transport) facts(ctx context.Context, address string) (json.RawMessage, error) {
	res, err := ask(ctx, t, address, peerNode.GetFacts, &peerv1.GetFactsRequest{})
	return res.GetDocument(), err
}

func (t *transport) figures(ctx context.Context, address, what string) (json.RawMessage, error) {
	res, err := ask(ctx, t, address, peerNode.GetFigures, &peerv1.GetFiguresRequest{What: what})
	return res.GetDocument(), err
}

// spread says of this node how it is.
func (t *transport) spread(s nodes.State) error {
	doc, err := json.Marshal(s)
	if err != nil {
		return fmt.Errorf("encode state: %w", err)
	}
	return t.peers.SetState(doc)
}

// address is where others reach this node; empty on one that stands alone.
func (t *transport) address() string {
	if t.peers == nil {
		return ""
	}
	return t.peers.Self().Peer
}

// others are the other nodes that this one can speak with.
func (t *transport) others() []cluster.Member {
	if t.peers == nil {
		return nil
	}
	return speaking(t.peers.Members())
}

// speaking are those of the members that are others and that this node can speak
// with. It reuses the slice.
func speaking(members []cluster.Member) []cluster.Member {
	return slices.DeleteFunc(members, func(m cluster.Member) bool { return m.Self || m.Protocol != Protocol })
}

// unanswered says why another node did not do what it was asked.
func (t *transport) unanswered(log *slog.Logger, address string, err error) {
	switch {
	case code(err) != "":
		log.Debug("a node declines", "node", address, "err", err)
	case errors.Is(err, context.Canceled), !t.silences.Unanswered(address, errors.Is(err, peer.ErrRefused), time.Now()):
		log.Debug("a node has not answered", "node", address, "err", err)
	default:
		log.Warn("a node does not answer", "node", address, "err", err)
	}
}

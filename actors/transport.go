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

// Protocol is the major version of the messages between nodes. Each node tells it to
// the others; nodes with different versions do not run rows for each other.
const Protocol = peer.Protocol

// Peers is the membership of this node in a cluster, and the connection to the other
// nodes.
type Peers interface {
	// Self returns this node.
	Self() cluster.Member
	// Members returns the nodes that this node considers alive, including this node.
	Members() []cluster.Member
	// Changed returns a channel that holds a token after members or their states have
	// changed.
	Changed() <-chan struct{}
	// SetState sends this node's state to the other nodes. It returns an error if the
	// state is too long.
	SetState(doc []byte) error
	// Node returns the client of the node at an address. It returns the errors of
	// peer.Client.
	Node(address string) peerv1connect.NodeServiceClient
}

// tellTimeout is the timeout of a message to another node: many times the usual time,
// and less than two heartbeat intervals.
const tellTimeout = 1500 * time.Millisecond

// A peerTransport sends requests to the other nodes.
type peerTransport struct {
	peers    Peers // nil on a single node
	silences nodes.SilenceTracker
}

// peerNode is the client of another node.
type peerNode = peerv1connect.NodeServiceClient

// askPeer sends a request to the node at an address. If the node answers or refuses, it
// notes that the node is not silent.
func askPeer[Req, Res any](ctx context.Context, t *peerTransport, address string, method func(peerNode, context.Context, *Req) (*Res, error), r *Req) (*Res, error) {
	res, err := method(t.peers.Node(address), ctx, r)
	if err == nil || refusalCode(err) != "" {
		t.silences.RecordAnswer(address)
	}
	return res, err
}

// tellPeer sends a message that may be lost: a heartbeat, an assignment or a hint.
func (t *peerTransport) tellPeer(ctx context.Context, address string, message any) (err error) {
	ctx, cancel := context.WithTimeout(ctx, tellTimeout)
	defer cancel()
	switch m := message.(type) {
	case *assign.Heartbeat:
		_, err = askPeer(ctx, t, address, peerNode.Report, reportOf(m))
	case *assign.Assignment:
		_, err = askPeer(ctx, t, address, peerNode.Assign, assignmentOf(m))
	case *hint:
		_, err = askPeer(ctx, t, address, peerNode.Hint, m)
	default:
		err = fmt.Errorf("a %T is not a message that may be lost", m)
	}
	return err
}

func (t *peerTransport) invite(ctx context.Context, address string, m *invite) (*invited, error) {
	res, err := askPeer(ctx, t, address, peerNode.Invite, invitationOf(m))
	return &invited{Working: res.GetWorking()}, err
}

func (t *peerTransport) drain(ctx context.Context, address string) error {
	_, err := askPeer(ctx, t, address, peerNode.Drain, &peerv1.DrainRequest{})
	return err
}

func (t *peerTransport) isDownloading(ctx context.Context, address, job string) (bool, error) {
	res, err := askPeer(ctx, t, address, peerNode.IsDownloading, &peerv1.IsDownloadingRequest{Job: job})
	return res.GetRunning(), err
}

func (t *peerTransport) runCompaction(ctx context.Context, address string, m compactionRequest) (commit.CompactionState, error) {
	res, err := askPeer(ctx, t, address, peerNode.RunCompaction, compactionOf(&m))
	return commit.CompactionState{Done: res.GetDone(), Size: res.GetSize(), Failed: res.GetFailed()}, err
}

func (t *peerTransport) listActors(ctx context.Context, address string, f registry.Filter) (registry.Listing, error) {
	res, err := askPeer(ctx, t, address, peerNode.ListActors, filterOf(f))
	return readListing(res), err
}

func (t *peerTransport) fetchFacts(ctx context.Context, address string) (json.RawMessage, error) {
	res, err := askPeer(ctx, t, address, peerNode.GetFacts, &peerv1.GetFactsRequest{})
	return res.GetDocument(), err
}

func (t *peerTransport) fetchFigures(ctx context.Context, address, topic string) (json.RawMessage, error) {
	res, err := askPeer(ctx, t, address, peerNode.GetFigures, &peerv1.GetFiguresRequest{What: topic})
	return res.GetDocument(), err
}

// sendState sends this node's state to the other nodes.
func (t *peerTransport) sendState(s nodes.State) error {
	doc, err := json.Marshal(s)
	if err != nil {
		return fmt.Errorf("encode state: %w", err)
	}
	return t.peers.SetState(doc)
}

// ownAddress returns the address at which other nodes reach this node; empty on a single
// node.
func (t *peerTransport) ownAddress() string {
	if t.peers == nil {
		return ""
	}
	return t.peers.Self().Peer
}

// otherMembers returns the other nodes with the same version of Protocol.
func (t *peerTransport) otherMembers() []cluster.Member {
	if t.peers == nil {
		return nil
	}
	return filterCompatiblePeers(t.peers.Members())
}

// filterCompatiblePeers returns the other members with the same version of Protocol. It changes
// the slice members.
func filterCompatiblePeers(members []cluster.Member) []cluster.Member {
	return slices.DeleteFunc(members, func(m cluster.Member) bool { return m.Self || m.Protocol != Protocol })
}

// logUnanswered logs the error of a request to another node. While a node stays silent,
// only the first such line is a warning.
func (t *peerTransport) logUnanswered(log *slog.Logger, address string, err error) {
	switch {
	case refusalCode(err) != "":
		log.Debug("a node refused a request", "node", address, "err", err)
	case errors.Is(err, context.Canceled), !t.silences.RecordUnanswered(address, errors.Is(err, peer.ErrRefused), time.Now()):
		log.Debug("a node has not answered", "node", address, "err", err)
	default:
		log.Warn("a node does not answer", "node", address, "err", err)
	}
}

package actors

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/rowmill/rowmill/actors/assign"
	"github.com/rowmill/rowmill/actors/nodes"
	"github.com/rowmill/rowmill/cluster"
	"github.com/rowmill/rowmill/cluster/peer"
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

// tellTimeout is how long a message to another node may take: many times what
// it takes a node that is well, and less than two reports.
const tellTimeout = 1500 * time.Millisecond

// A transport speaks with the other nodes.
type transport struct {
	peers    Peers // nil on a node that stands alone
	silences nodes.Silences
}

func (t *transport) ask(ctx context.Context, address, kind, job string, epoch int64, body, reply any) error {
	doc, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("encode %s: %w", kind, err)
	}
	self := t.peers.Self()
	err = t.peers.Ask(ctx, address, peer.Envelope{Protocol: Protocol, From: self.ID, Kind: kind, Job: job, Epoch: epoch, Body: doc}, reply)
	if err == nil || code(err) != "" {
		t.silences.Answered(address)
	}
	if err != nil {
		return fmt.Errorf("%s to %s: %w", kind, address, err)
	}
	return nil
}

// tell is ask for a message that may be lost.
func (t *transport) tell(ctx context.Context, address, kind string, m message) error {
	ctx, cancel := context.WithTimeout(ctx, tellTimeout)
	defer cancel()
	return t.ask(ctx, address, kind, m.job, m.epoch, m.body, nil)
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
	case kindDownload:
		body = new(isDownloading)
	case kindHint:
		body = new(hint)
	case kindDrain:
		return drain{}, nil
	case kindFacts:
		return askFacts{}, nil
	case kindFigures:
		body = new(askFigures)
	case kindActors:
		body = new(listActors)
	case kindWhere:
		body = new(whereRows)
	case kindMerge:
		body = new(mergeParts)
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
	case *mergeParts:
		if m.Job == "" || m.Errand == nil || m.Errand.Key == "" {
			return nil, refuse(peer.CodeInvalid, "merge: job or errand is missing")
		}
	case *isDownloading:
		return *m, nil
	case *hint:
		return *m, nil
	case *askFigures:
		return *m, nil
	case *listActors:
		return *m, nil
	case *whereRows:
		return *m, nil
	}
	return body, nil
}

// Codes of refusals between nodes.
const (
	codeUnknownJob = "unknown_job" // nobody here has to do with it
	codeStale      = "stale"       // a later owner is known
	codeNoEngine   = "no_engine"   // nothing here serves the model
	codeDraining   = "draining"
	codeAway       = "storage_away" // it could neither read nor write rows
	codeBusy       = peer.CodeBusy  // ask again
	codeFull       = "full"         // as many jobs of others have workers as may
)

func refuse(code, format string, args ...any) *peer.Refusal {
	return &peer.Refusal{Code: code, Message: fmt.Sprintf(format, args...)}
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

// A message is what a link can carry: a heartbeat or an assignment.
type message struct {
	job   string
	epoch int64
	body  any
}

func asError(answer any, err error) error {
	if refused, ok := answer.(*peer.Refusal); ok {
		return refused
	}
	return err
}

// code is that of a refusal; empty for any other error.
func code(err error) string {
	var refused *peer.Refusal
	if errors.As(err, &refused) {
		return refused.Code
	}
	return ""
}

// answer responds to who waits for it.
func answer(c actor.Context, body any) {
	if c.Sender() != nil {
		c.Respond(body)
	}
}

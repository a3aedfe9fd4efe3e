package actors

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/rowmill/rowmill/actors/assign"
	"github.com/rowmill/rowmill/actors/nodes"
	"github.com/rowmill/rowmill/cluster"
	"github.com/rowmill/rowmill/cluster/peer"
	"github.com/rowmill/rowmill/cluster/peer/peerv1"
	"github.com/rowmill/rowmill/cluster/peer/peerv1/peerv1connect"
)

// heard is a network that keeps the last request.
type heard struct {
	peerv1connect.UnimplementedNodeServiceHandler
	members []cluster.Member
	state   string
	asked   any
	bound   time.Duration // of the last request
	err     error
}

func (h *heard) Self() cluster.Member                        { return cluster.Member{ID: "self-1"} }
func (h *heard) Members() []cluster.Member                   { return h.members }
func (h *heard) Changed() <-chan struct{}                    { return nil }
func (h *heard) SetState(doc []byte) error                   { h.state = string(doc); return h.err }
func (h *heard) Node(string) peerv1connect.NodeServiceClient { return h }
func (h *heard) note(ctx context.Context, request any) error {
	h.asked = request
	deadline, _ := ctx.Deadline()
	h.bound = time.Until(deadline)
	return h.err
}

func (h *heard) Report(ctx context.Context, r *peerv1.ReportRequest) (*peerv1.ReportResponse, error) {
	return &peerv1.ReportResponse{}, h.note(ctx, r)
}

func (h *heard) Assign(ctx context.Context, r *peerv1.AssignRequest) (*peerv1.AssignResponse, error) {
	return &peerv1.AssignResponse{}, h.note(ctx, r)
}

func (h *heard) Hint(ctx context.Context, r *peerv1.HintRequest) (*peerv1.HintResponse, error) {
	return &peerv1.HintResponse{}, h.note(ctx, r)
}

// slowPeers take some time for each hint.
type slowPeers struct {
	heard
	jobs []string
}

func (s *slowPeers) Node(string) peerv1connect.NodeServiceClient { return s }

func (s *slowPeers) Hint(_ context.Context, r *peerv1.HintRequest) (*peerv1.HintResponse, error) {
	s.jobs = append(s.jobs, r.GetJob())
	time.Sleep(tellTimeout / 2)
	return &peerv1.HintResponse{}, s.err
}

func TestMessagesHaveATimeout(t *testing.T) {
	t.Parallel()
	for name, message := range map[string]any{
		"report": &assign.Heartbeat{Job: "job-1"}, "assignment": &assign.Assignment{Job: "job-1"}, "hint": &hint{Job: "job-1"},
	} {
		h := &heard{}
		if err := (&peerTransport{peers: h}).tellPeer(t.Context(), "b:1", message); err != nil {
			t.Fatal(name, err)
		}
		if asked, is := h.asked.(interface{ GetJob() string }); !is || asked.GetJob() != "job-1" {
			t.Errorf("%s: sent %+v", name, h.asked)
		}
		if h.bound <= 0 || h.bound > tellTimeout {
			t.Errorf("%s: it may take %v", name, h.bound)
		}
	}
	if err := (&peerTransport{peers: &heard{}}).tellPeer(t.Context(), "b:1", drain{}); err == nil {
		t.Error("tell accepts a request that needs an answer")
	}
}

func TestMalformedMessagesAreRefused(t *testing.T) {
	t.Parallel()
	rows := assign.NewRowSet(bitmap(3, 5, 8)).Encode()
	of := func(holds []*peerv1.ShardRows, parts ...*peerv1.Part) *peerv1.ReportRequest {
		return &peerv1.ReportRequest{Address: "a:1", Worker: "w", Holds: holds, Parts: parts}
	}
	for name, test := range map[string]struct {
		report *peerv1.ReportRequest
		fine   bool
	}{
		"well formed":           {of([]*peerv1.ShardRows{{Shard: 1, Rows: rows}}, &peerv1.Part{Key: "k", Rows: rows}), true},
		"no address":            {&peerv1.ReportRequest{Worker: "w"}, false}, // no node to answer to
		"no worker":             {&peerv1.ReportRequest{Address: "a:1"}, false},
		"no rows":               {of([]*peerv1.ShardRows{{Shard: 1}}), false},
		"no set of rows":        {of([]*peerv1.ShardRows{{Shard: 1, Rows: rows[:len(rows)-1]}}), false},
		"a part without rows":   {of(nil, &peerv1.Part{Key: "k"}), false},
		"a part without a name": {of(nil, &peerv1.Part{Rows: rows}), false},
	} {
		if _, err := readReport(test.report); test.fine && err != nil || !test.fine && refusalCode(err) != peer.CodeInvalid {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := readInvitation(&peerv1.InviteRequest{Job: "j"}); refusalCode(err) != peer.CodeInvalid {
		t.Errorf("an invite without an address: %v", err)
	}
	spans := []*peerv1.Span{{To: 9, Except: []byte("no set")}}
	if _, err := readAssignment(&peerv1.AssignRequest{Batches: []*peerv1.Batch{{Spans: spans}}}); refusalCode(err) != peer.CodeInvalid {
		t.Errorf("an assignment with a malformed set: %v", err)
	}
	if _, err := readCompaction(&peerv1.RunCompactionRequest{Job: "j"}); refusalCode(err) != peer.CodeInvalid {
		t.Errorf("no compaction: %v", err)
	}
}

func TestNodesWithAnotherProtocolAreLeftOut(t *testing.T) {
	t.Parallel()
	if (&peerTransport{}).otherMembers() != nil {
		t.Error("a single node has others")
	}
	h := &heard{members: []cluster.Member{{ID: "self-1", Self: true, Protocol: Protocol}, {ID: "b", Protocol: Protocol}, {ID: "c", Protocol: Protocol + 1}}}
	if others := (&peerTransport{peers: h}).otherMembers(); len(others) != 1 || others[0].ID != "b" {
		t.Errorf("the others are %+v", others)
	}
}

func TestSpread(t *testing.T) {
	t.Parallel()
	h := &heard{err: errors.New("too long")}
	if err := (&peerTransport{peers: h}).sendState(nodes.State{Version: "v1", Jobs: 2}); !errors.Is(err, h.err) {
		t.Error("spread hides that the state is too long:", err)
	}
	if s, ok := nodes.DecodeState(cluster.Member{State: []byte(h.state)}); !ok || s.Version != "v1" || s.Jobs != 2 {
		t.Errorf("spread %s", h.state)
	}
	if err := (&peerTransport{peers: h}).tellPeer(t.Context(), "b:1", &hint{}); !errors.Is(err, h.err) || !strings.Contains(err.Error(), "too long") {
		t.Error("tell hides why the message did not arrive:", err)
	}
}

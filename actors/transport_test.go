package actors

import (
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/rowmill/rowmill/actors/assign"
	"github.com/rowmill/rowmill/actors/nodes"
	"github.com/rowmill/rowmill/cluster"
	"github.com/rowmill/rowmill/cluster/peer"
)

// heard are peers that note what they are asked.
type heard struct {
	members []cluster.Member
	state   string
	asked   peer.Envelope
	bound   time.Duration // of the last request
	err     error
}

func (h *heard) Self() cluster.Member      { return cluster.Member{ID: "self-1"} }
func (h *heard) Members() []cluster.Member { return h.members }
func (h *heard) Changed() <-chan struct{}  { return nil }
func (h *heard) SetState(doc []byte) error { h.state = string(doc); return h.err }
func (h *heard) Ask(ctx context.Context, _ string, e peer.Envelope, _ any) error {
	h.asked = e
	deadline, _ := ctx.Deadline()
	h.bound = time.Until(deadline)
	return h.err
}

// slowPeers take a while for each request.
type slowPeers struct {
	heard
	jobs []string
}

func (s *slowPeers) Ask(_ context.Context, _ string, e peer.Envelope, _ any) error {
	s.jobs = append(s.jobs, e.Job)
	time.Sleep(tellTimeout / 2)
	return s.err
}

func TestWhatIsSentIsWhatIsRead(t *testing.T) {
	t.Parallel()
	rows := assign.NewRowSet(bitmap(3, 5, 8))
	for kind, body := range map[string]any{
		kindInvite: &invite{Job: "job-1", Epoch: 2, Address: "a:1", Session: "s", Context: 4096, MaxTokens: 100, Sample: 7},
		kindHeartbeat: &assign.Heartbeat{
			Job: "job-1", Epoch: 2, Worker: "w", Number: 9, Address: "a:1", Fresh: true,
			Holds: []assign.ShardRows{{Shard: 1, Rows: rows}}, Parts: []assign.Part{{Key: "k", Shard: 1, Rows: rows, Size: 5}},
			Want: true, Refused: map[string]string{"gpu": "no"}, Fault: &assign.Fault{Row: -1, Message: "m"},
		},
		kindAssignment: &assign.Assignment{Job: "job-1", Epoch: 2, Worker: "w", Exhausted: true, Acked: []string{"k"}, Stop: true},
		kindDismiss:    &dismiss{Job: "job-1", Epoch: 2},
		kindHint:       hint{Job: "job-1", Cancelled: true},
		kindDrain:      drain{},
		kindWhere:      whereRows{Job: "job-1"},
	} {
		h := &heard{}
		if err := (&transport{peers: h}).tell(t.Context(), "b:1", kind, message{"job-1", 2, body}); err != nil {
			t.Fatal(kind, err)
		}
		if h.asked.Kind != kind || h.asked.Protocol != Protocol || h.asked.From != "self-1" || h.asked.Job != "job-1" || h.asked.Epoch != 2 {
			t.Errorf("%s: sent %+v", kind, h.asked)
		}
		if h.bound <= 0 || h.bound > tellTimeout {
			t.Errorf("%s: it may take %v", kind, h.bound)
		}
		got, refused := decode(h.asked)
		if refused != nil {
			t.Fatal(kind, refused)
		}
		sent, _ := json.Marshal(body)
		read, _ := json.Marshal(got)
		if string(sent) != string(read) || reflect.TypeOf(got) != reflect.TypeOf(body) {
			t.Errorf("%s: sent %s, read %s (%T)", kind, sent, read, got)
		}
	}
}

func TestWhatANodeRefusesToRead(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ kind, body, code string }{
		{"dance", `{}`, peer.CodeUnknownKind},
		{kindInvite, `{`, peer.CodeInvalid},
		{kindInvite, `{"job":"j"}`, peer.CodeInvalid}, // nobody could be answered
		{kindHeartbeat, `{"worker":"w"}`, peer.CodeInvalid},
		{kindHeartbeat, `{"address":"a:1"}`, peer.CodeInvalid},
		{kindHeartbeat, `{"address":"a:1","worker":"w","holds":[{"shard":1}]}`, peer.CodeInvalid},
		{kindHeartbeat, `{"address":"a:1","worker":"w","parts":[{"key":"k"}]}`, peer.CodeInvalid},
	} {
		_, err := decode(peer.Envelope{Kind: test.kind, Body: json.RawMessage(test.body)})
		if code(err) != test.code {
			t.Errorf("%s %s: %v, want code %s", test.kind, test.body, err, test.code)
		}
	}
}

func TestOnlyOthersOfTheSameProtocolAreSpokenWith(t *testing.T) {
	t.Parallel()
	if (&transport{}).others() != nil {
		t.Error("a node that stands alone has others")
	}
	h := &heard{members: []cluster.Member{{ID: "self-1", Self: true, Protocol: Protocol}, {ID: "b", Protocol: Protocol}, {ID: "c", Protocol: Protocol + 1}}}
	if others := (&transport{peers: h}).others(); len(others) != 1 || others[0].ID != "b" {
		t.Errorf("the others are %+v", others)
	}
}

func TestSpread(t *testing.T) {
	t.Parallel()
	h := &heard{err: errors.New("too long")}
	if err := (&transport{peers: h}).spread(nodes.State{Version: "v1", Jobs: 2}); !errors.Is(err, h.err) {
		t.Error("that a state is too long is not told", err)
	}
	if s, ok := nodes.Read(cluster.Member{State: []byte(h.state)}); !ok || s.Version != "v1" || s.Jobs != 2 {
		t.Errorf("spread %s", h.state)
	}
	if err := (&transport{peers: h}).tell(t.Context(), "b:1", kindHint, message{body: hint{}}); !errors.Is(err, h.err) || !strings.Contains(err.Error(), "hint to b:1") {
		t.Error("why a message did not arrive is not told:", err)
	}
}

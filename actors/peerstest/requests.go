package peerstest

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/rowmill/rowmill/cluster/peer"
	"github.com/rowmill/rowmill/cluster/peer/peerv1"
	"github.com/rowmill/rowmill/cluster/peer/peerv1/peerv1connect"
	"github.com/rowmill/rowmill/internal/must"
)

// testAsk verifies that each process gets the answer of the process that it asks, also
// of itself.
func testAsk(s *suite) {
	at := func(place int) handler {
		return func(_ context.Context, said string) (string, error) {
			if said == "nothing" {
				return "", nil
			}
			return fmt.Sprint(place, " was told ", said), nil
		}
	}
	processes := []Process{s.startServing(0, at(0)), s.startServing(1, at(1)), s.startServing(2, at(2))}
	for from, p := range processes {
		for to, o := range processes { // including itself
			if reply, err := s.ask(p, o.Self().Peer, "news"); err != nil || reply != fmt.Sprint(to, " was told news") {
				s.Errorf("process %d asks process %d: %q, %v, want the answer of that process", from, to, reply, err)
			}
		}
	}
	if reply, err := s.ask(processes[0], processes[1].Self().Peer, "nothing"); err != nil || reply != "" {
		s.Errorf("an empty reply: %q, %v, want \"\" and no error", reply, err)
	}
}

// maxBody is the maximum size of a message in bytes: the default of peer.Config.
const maxBody = 1 << 20

// sentence returns a text of n bytes that cannot be compressed.
func sentence(n int) string {
	random := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{byte(n)}).Read(random) // never fails
	return base64.StdEncoding.EncodeToString(random)[:n]
}

// testWholeBodies verifies that texts of all kinds arrive unchanged.
func testWholeBodies(s *suite) {
	one, two := s.Start(s.T, 0), s.startServing(1, echo)
	for _, said := range []string{
		"", "x", "<a href=\"x\">&amp;</a>", "line\nline\x00\u2028\u2029", "日本語 🜲 \u00e9 e\u0301",
		sentence(maxBody - 1000),
	} {
		if reply, err := s.ask(one, two.Self().Peer, said); err != nil || reply != said {
			s.Errorf("%d bytes beginning with %.20q came back as %d bytes, %v, want the same bytes", len(said), said, len(reply), err)
		}
	}
}

// remembering is a handler that stores the last requests and the last answer. The
// answer has a field that this version of the protocol does not know.
type remembering struct {
	peerv1connect.UnimplementedNodeServiceHandler
	assigned *peerv1.AssignRequest
	asked    *peerv1.GetFiguresRequest
	answered *peerv1.GetFiguresResponse
}

func (r *remembering) Assign(_ context.Context, assigned *peerv1.AssignRequest) (*peerv1.AssignResponse, error) {
	r.assigned = assigned
	return &peerv1.AssignResponse{}, nil
}

func (r *remembering) GetFigures(_ context.Context, asked *peerv1.GetFiguresRequest) (*peerv1.GetFiguresResponse, error) {
	r.asked, r.answered = asked, &peerv1.GetFiguresResponse{Document: []byte("answer")}
	r.answered.ProtoReflect().SetUnknown(later())
	return r.answered, nil
}

// testBodiesAreCopies verifies that sender and receiver do not share memory: a sender
// that changes a message after sending it does not change the receiver's copy, and vice
// versa.
func testBodiesAreCopies(s *suite) {
	one, two := s.Start(s.T, 0), s.Start(s.T, 1)
	there := &remembering{}
	two.Serve(there)
	at := one.Node(two.Self().Peer)
	except := []byte("question")
	must.Get(at.Assign(s.Context(), &peerv1.AssignRequest{Batches: []*peerv1.Batch{{Spans: []*peerv1.Span{{Except: except}}}}}))(s)
	got := must.Get(at.GetFigures(s.Context(), &peerv1.GetFiguresRequest{}))(s)
	copy(except, "QUESTION")
	copy(there.answered.GetDocument(), "ANSWER")
	if kept := there.assigned.GetBatches()[0].GetSpans()[0].GetExcept(); string(kept) != "question" || string(got.GetDocument()) != "answer" {
		s.Errorf("the handler has %s and the sender has %s, want question and answer", kept, got.GetDocument())
	}
}

// testTooLarge verifies that a request and an answer above the maximum size are
// refused.
func testTooLarge(s *suite) {
	handled := 0
	one, two := s.Start(s.T, 0), s.startServing(1, func(context.Context, string) (string, error) {
		handled++
		return sentence(maxBody), nil
	})
	_, err := s.ask(one, two.Self().Peer, sentence(maxBody))
	s.wantRefusal(err, peer.CodeTooLarge)
	if handled > 0 {
		s.Error("the handler got a request that is too large, want none")
	}
	s.wantRefusal(s.askHello(one, two.Self().Peer), peer.CodeInternal)
}

// later returns an encoded field that this version does not know, as a node of a later
// version may send it.
func later() []byte {
	return protowire.AppendString(protowire.AppendTag(nil, 9999, protowire.BytesType), "news")
}

// testUnknownFields verifies that fields and requests of a newer version do no harm.
func testUnknownFields(s *suite) {
	one, two := s.Start(s.T, 0), s.Start(s.T, 1)
	there := &remembering{}
	two.Serve(there)
	asked := &peerv1.GetFiguresRequest{What: "colours"}
	asked.ProtoReflect().SetUnknown(later())
	got, err := one.Node(two.Self().Peer).GetFigures(s.Context(), asked)
	if more := there.asked.ProtoReflect().GetUnknown(); err != nil || string(got.GetDocument()) != "answer" || string(more) != string(later()) {
		s.Errorf("got %s, %v, and the receiver got the unknown fields %q; want answer and the fields that were sent", got.GetDocument(), err, more)
	}
	_, err = one.Node(two.Self().Peer).ListActors(s.Context(), &peerv1.ListActorsRequest{})
	var refusal *peer.Refusal
	if !errors.As(err, &refusal) || refusal.Code != peer.CodeUnknownKind {
		s.Errorf("a request that is not known there: %v, want a refusal with code %s", err, peer.CodeUnknownKind)
	}
}

// testRefusals verifies that the caller gets the code of a handler's refusal, and no
// details of other errors.
func testRefusals(s *suite) {
	one, two := s.Start(s.T, 0), s.startServing(1, func(_ context.Context, said string) (string, error) {
		switch said {
		case "stale":
			return "", &peer.Refusal{Code: "stale", Message: "epoch 4 is known"}
		case "wrapped":
			return "not said", fmt.Errorf("adopt: %w", &peer.Refusal{Code: "stale", Message: "epoch 4 is known"})
		case "fails":
			return "", fmt.Errorf("disk on fire: %w", peer.ErrRefused)
		}
		return "", &peer.Refusal{Code: peer.CodeUnknownKind, Message: said}
	})
	for _, test := range []struct{ said, code, message string }{
		{"stale", "stale", "epoch 4 is known"},
		{"wrapped", "stale", "epoch 4 is known"},
		{"fails", peer.CodeInternal, ""},
		{"never_heard_of", peer.CodeUnknownKind, "never_heard_of"},
	} {
		reply, err := s.ask(one, two.Self().Peer, test.said)
		message := s.wantRefusal(err, test.code)
		if reply != "" {
			s.Errorf("%s: a refusal with the reply %q, want no reply", test.said, reply)
		}
		if test.message != "" && message != test.message {
			s.Errorf("%s: message %q, want %q", test.said, message, test.message)
		}
		if strings.Contains(message, "on fire") {
			s.Errorf("%s: the refusal tells the sender the inner error, want only a code: %s", test.said, message)
		}
	}
}

// testUnencodable verifies that a text that cannot be encoded is not sent, and that the
// error says nothing about the other process.
func testUnencodable(s *suite) {
	handled := 0
	one, two := s.Start(s.T, 0), s.startServing(1, func(context.Context, string) (string, error) { handled++; return "", nil })
	_, err := s.ask(one, two.Self().Peer, "\xff")
	var refusal *peer.Refusal
	if err == nil || errors.Is(err, peer.ErrUnreachable) || errors.Is(err, peer.ErrRefused) || errors.As(err, &refusal) || handled > 0 {
		s.Errorf("a text that is not UTF-8: %v, handled %d times; want an error of the sender and no call", err, handled)
	}
}

// testStarting verifies that a process that does not serve yet is listed, refuses
// requests, and can send requests.
func testStarting(s *suite) {
	one, two := s.startServing(0, echo), s.Start(s.T, 1)
	s.waitUntilAllListed(one, two) // process two is listed before it serves
	s.wantRefusal(s.askHello(one, two.Self().Peer), peer.CodeStarting)
	if err := s.askHello(two, one.Self().Peer); err != nil {
		s.Errorf("a process that does not serve yet asks another: %v, want an answer", err)
	}
	two.Serve(service{handler: echo})
	if err := s.askHello(one, two.Self().Peer); err != nil {
		s.Errorf("ask a process after Serve: %v, want an answer", err)
	}
}

// testNobodyListens verifies that the error for an ended process is ErrRefused, and
// that no invalid address gives this error.
func testNobodyListens(s *suite) {
	one, two := s.Start(s.T, 0), s.startServing(1, echo)
	address := two.Self().Peer
	two.Kill()
	s.deserted(one, address)
	// ErrRefused proves that a process has ended: only the machine of the process can send it.
	for _, nowhere := range []string{"", "::::", "127.0.0.1:port"} {
		if err := s.askHello(one, nowhere); err == nil || errors.Is(err, peer.ErrRefused) {
			s.Errorf("address %q: %v, want another error than ErrRefused", nowhere, err)
		}
	}
}

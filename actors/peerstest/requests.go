package peerstest

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/rowmill/rowmill/cluster/peer"
)

func testAsk(s *suite) {
	handler := func(place int) peer.Handler {
		return func(_ context.Context, e peer.Envelope) (any, error) {
			if e.Kind == "nothing" {
				return nil, nil
			}
			return map[string]any{"place": place, "got": e}, nil
		}
	}
	processes := []Process{s.serving(0, handler(0)), s.serving(1, handler(1)), s.serving(2, handler(2))}
	sent := peer.Envelope{From: "one-1a", Kind: "adopt_shard", Job: "job-9", Epoch: 1<<62 + 1, Body: json.RawMessage(`{"shard":2}`)}
	for from, p := range processes {
		for to, o := range processes { // itself is one of them
			var reply struct {
				Place int
				Got   peer.Envelope
			}
			if err := s.ask(p, o.Self().Peer, sent, &reply); err != nil {
				s.Fatalf("%d asks %d: %v", from, to, err)
			}
			got := reply.Got
			if reply.Place != to || got.Protocol != peer.Protocol || got.From != sent.From || got.Kind != sent.Kind || got.Job != sent.Job || got.Epoch != sent.Epoch || string(got.Body) != string(sent.Body) {
				s.Errorf("%d asks %d: %d got %+v, %s", from, to, reply.Place, got, got.Body)
			}
		}
	}
	untouched := "as before"
	for _, kind := range []string{"adopt_shard", "nothing"} {
		if err := s.ask(processes[0], processes[1].Self().Peer, peer.Envelope{Kind: kind}, nil); err != nil {
			s.Errorf("%s, and no reply is wanted: %v", kind, err)
		}
	}
	if err := s.ask(processes[0], processes[1].Self().Peer, peer.Envelope{Kind: "nothing"}, &untouched); err != nil || untouched != "as before" {
		s.Errorf("a reply of nothing: %q, %v", untouched, err)
	}
}

// maxBody is the default of peer.Config.
const maxBody = 1 << 20

// sentence is a text of n bytes that does not repeat itself.
func sentence(n int) string {
	random := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{byte(n)}).Read(random) // never fails
	return base64.StdEncoding.EncodeToString(random)[:n]
}

func testWholeBodies(s *suite) {
	one, two := s.Start(s.T, 0), s.serving(1, echo)
	for _, said := range []string{
		"", "x", "<a href=\"x\">&amp;</a>", "line\nline\x00\u2028\u2029", "日本語 🜲 \u00e9 e\u0301",
		sentence(maxBody - 1000),
	} {
		body, err := json.Marshal(said)
		if err != nil {
			s.Fatal(err)
		}
		var reply string
		if err := s.ask(one, two.Self().Peer, peer.Envelope{Kind: "say", Body: body}, &reply); err != nil || reply != said {
			s.Errorf("%d bytes beginning with %.20q came back as %d, %v", len(said), said, len(reply), err)
		}
	}
	var reply json.RawMessage
	const exact = `{"a":9007199254740993,"b":[1e400,-0.0,null,{}],"a":1}`
	if err := s.ask(one, two.Self().Peer, peer.Envelope{Kind: "say", Body: json.RawMessage(exact)}, &reply); err != nil || string(reply) != exact {
		s.Errorf("%s came back as %s, %v", exact, reply, err)
	}
}

// What one side does to its memory the other does not see.
func testBodiesAreCopies(s *suite) {
	var kept json.RawMessage
	reply := json.RawMessage(`"answer"`)
	one, two := s.Start(s.T, 0), s.serving(1, func(_ context.Context, e peer.Envelope) (any, error) {
		kept = e.Body
		return reply, nil
	})
	body := json.RawMessage(`"question"`)
	var got json.RawMessage
	if err := s.ask(one, two.Self().Peer, peer.Envelope{Kind: "say", Body: body}, &got); err != nil {
		s.Fatal(err)
	}
	copy(body, `"QUESTION"`)
	copy(reply, `"ANSWER"`)
	if string(kept) != `"question"` || string(got) != `"answer"` {
		s.Errorf("the handler holds %s, the asker %s", kept, got)
	}
}

func testTooLarge(s *suite) {
	handled := 0
	one, two := s.Start(s.T, 0), s.serving(1, func(context.Context, peer.Envelope) (any, error) {
		handled++
		return sentence(maxBody), nil
	})
	body, err := json.Marshal(sentence(maxBody))
	if err != nil {
		s.Fatal(err)
	}
	s.refused(s.ask(one, two.Self().Peer, peer.Envelope{Kind: "say", Body: body}, nil), peer.CodeTooLarge)
	if handled > 0 {
		s.Error("a request that is too large was handled")
	}
	s.refused(s.ask(one, two.Self().Peer, peer.Envelope{Kind: "say"}, nil), peer.CodeInternal)
}

// Nodes of a newer version say more than this one knows.
func testUnknownFields(s *suite) {
	one, two := s.Start(s.T, 0), s.serving(1, func(_ context.Context, e peer.Envelope) (any, error) {
		return map[string]any{"rows": 7, "news": map[string]any{"body": e.Body}}, nil
	})
	var reply struct{ Rows int }
	body := json.RawMessage(`{"job":"job-9","colour":"green"}`)
	if err := s.ask(one, two.Self().Peer, peer.Envelope{Kind: "say", Body: body}, &reply); err != nil || reply.Rows != 7 {
		s.Errorf("a reply with more than is asked for: %+v, %v", reply, err)
	}
	var all struct {
		News struct{ Body json.RawMessage }
	}
	if err := s.ask(one, two.Self().Peer, peer.Envelope{Kind: "say", Body: body}, &all); err != nil || string(all.News.Body) != string(body) {
		s.Errorf("%s arrives as %s, %v", body, all.News.Body, err)
	}
	var wrong struct{ Rows string }
	err := s.ask(one, two.Self().Peer, peer.Envelope{Kind: "say"}, &wrong)
	var refusal *peer.Refusal
	if err == nil || errors.Is(err, peer.ErrUnreachable) || errors.Is(err, peer.ErrRefused) || errors.As(err, &refusal) {
		s.Errorf("a reply of another form: %v, want an error of decoding", err)
	}
}

func testRefusals(s *suite) {
	one, two := s.Start(s.T, 0), s.serving(1, func(_ context.Context, e peer.Envelope) (any, error) {
		switch e.Kind {
		case "stale":
			return nil, &peer.Refusal{Code: "stale", Message: "epoch 4 is known"}
		case "wrapped":
			return "not said", fmt.Errorf("adopt: %w", &peer.Refusal{Code: "stale", Message: "epoch 4 is known"})
		case "fails":
			return nil, fmt.Errorf("disk on fire: %w", peer.ErrRefused)
		case "unspeakable":
			return func() {}, nil
		}
		return nil, &peer.Refusal{Code: peer.CodeUnknownKind, Message: e.Kind}
	})
	for _, test := range []struct{ kind, code, message string }{
		{"stale", "stale", "epoch 4 is known"},
		{"wrapped", "stale", "epoch 4 is known"},
		{"fails", peer.CodeInternal, ""},
		{"unspeakable", peer.CodeInternal, ""},
		{"never_heard_of", peer.CodeUnknownKind, "never_heard_of"},
	} {
		reply := "as before"
		message := s.refused(s.ask(one, two.Self().Peer, peer.Envelope{Kind: test.kind}, &reply), test.code)
		if reply != "as before" {
			s.Errorf("%s: refused, and answered %q", test.kind, reply)
		}
		if test.message != "" && message != test.message {
			s.Errorf("%s: message %q, want %q", test.kind, message, test.message)
		}
		if strings.Contains(message, "on fire") {
			s.Errorf("%s: the inner error travels: %s", test.kind, message)
		}
	}
}

func testMalformed(s *suite) {
	handled := 0
	one, two := s.Start(s.T, 0), s.serving(1, func(context.Context, peer.Envelope) (any, error) { handled++; return nil, nil })
	for _, kind := range []string{"No Kind", "", strings.Repeat("k", 65)} {
		s.refused(s.ask(one, two.Self().Peer, peer.Envelope{Kind: kind}, nil), peer.CodeInvalid)
	}
	if err := s.ask(one, two.Self().Peer, peer.Envelope{Kind: "say", Body: json.RawMessage(`{"half`)}, nil); err == nil {
		s.Error("a body that is no JSON was sent")
	}
	if handled > 0 {
		s.Errorf("%d malformed requests were handled", handled)
	}
	// What version a request is of is for the network to say.
	if err := s.ask(one, two.Self().Peer, peer.Envelope{Protocol: peer.Protocol + 1, Kind: "say"}, nil); err != nil || handled != 1 {
		s.Errorf("%v, handled %d times", err, handled)
	}
}

func testStarting(s *suite) {
	one, two := s.serving(0, echo), s.Start(s.T, 1)
	s.knows(one, two) // it can be met before it answers
	s.refused(s.ask(one, two.Self().Peer, peer.Envelope{Kind: "say"}, nil), peer.CodeStarting)
	if err := s.ask(two, one.Self().Peer, peer.Envelope{Kind: "say"}, nil); err != nil {
		s.Errorf("it cannot ask either: %v", err)
	}
	two.Serve(echo)
	if err := s.ask(one, two.Self().Peer, peer.Envelope{Kind: "say"}, nil); err != nil {
		s.Errorf("it serves: %v", err)
	}
}

func testNobodyListens(s *suite) {
	one, two := s.Start(s.T, 0), s.serving(1, echo)
	address := two.Self().Peer
	two.Kill()
	s.deserted(one, address)
	// ErrRefused is proof that a process is gone, which only its machine gives.
	for _, nowhere := range []string{"", "::::", "127.0.0.1:port"} {
		if err := s.ask(one, nowhere, peer.Envelope{Kind: "say"}, nil); err == nil || errors.Is(err, peer.ErrRefused) {
			s.Errorf("address %q: %v, want another error than ErrRefused", nowhere, err)
		}
	}
}

// Package peerstest is the conformance suite of actors.Peers: it tests what a network
// between nodes must guarantee. Each implementation must pass Run. The package knows no
// particular implementation.
//
// A request reaches the process at its address unchanged, or it fails. The
// error is a *peer.Refusal with its code, ErrRefused for a refused connection, or
// ErrUnreachable for an unknown outcome. When the context of a request ends, the caller
// stops waiting, and the handler's context ends too. A process that does not answer delays
// only requests to itself. When a process starts, ends or changes its state, all others
// see the change and get a token in Changed. A process that restarts at an address is a
// new member and replaces the old one.
package peerstest

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/rowmill/rowmill/actors"
	"github.com/rowmill/rowmill/cluster"
	"github.com/rowmill/rowmill/cluster/peer"
	"github.com/rowmill/rowmill/cluster/peer/peerv1"
	"github.com/rowmill/rowmill/cluster/peer/peerv1/peerv1connect"
)

// A Harness is a network for a test, without processes at first.
type Harness struct {
	// Start starts a process at place 0, 1 or 2. The process finds the processes at the other
	// places. A place has one process at a time, and all processes at a place have the same
	// address. The process does not serve requests yet.
	Start func(t *testing.T, place int) Process

	// MaxWaiting is the setting of the same name in peer.Config. It is a parameter because a
	// busy machine with real sockets cannot answer 4,096 requests within the timeout.
	MaxWaiting int
}

// A Process is a process on the network.
type Process struct {
	actors.Peers
	Serve func(peerv1connect.NodeServiceHandler) // makes the process answer requests with this handler
	// Leave informs the other processes, answers requests that have arrived, and ends the
	// process.
	Leave func()
	Kill  func() // ends the process at once; its machine continues to run
}

// Run runs the suite. Each test runs inside within: a synctest bubble, or a plain call.
// fresh makes a network on which a request takes at most handleTimeout, as in
// peer.Config; the other limits have their defaults. The processes end with the test
// that called fresh.
func Run(t *testing.T, within func(*testing.T, func(*testing.T)), fresh func(t *testing.T, handleTimeout time.Duration) Harness) {
	for _, test := range []struct {
		name string
		run  func(*suite)
	}{
		{"Ask", testAsk},
		{"WholeBodies", testWholeBodies},
		{"BodiesAreCopies", testBodiesAreCopies},
		{"TooLarge", testTooLarge},
		{"UnknownFields", testUnknownFields},
		{"Refusals", testRefusals},
		{"Unencodable", testUnencodable},
		{"Starting", testStarting},
		{"NobodyListens", testNobodyListens},
		{"CancelledBefore", testCancelledBefore},
		{"Cancelled", testCancelled},
		{"Deadline", testDeadline},
		{"HandleTimeout", testHandleTimeout},
		{"Concurrency", testConcurrency},
		{"StuckPeer", testStuckPeer},
		{"Meet", testMeet},
		{"State", testState},
		{"StateTooLong", testStateTooLong},
		{"Leave", testLeave},
		{"LeaveUnderWay", testLeaveUnderWay},
		{"Kill", testKill},
		{"KillUnderWay", testKillUnderWay},
		{"StartAgain", testStartAgain},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			limit := 30 * time.Second
			if test.name == "HandleTimeout" {
				limit = time.Second
			}
			within(t, func(t *testing.T) { test.run(&suite{t, fresh(t, limit), limit}) })
		})
	}
}

// A suite is one test with its own network.
type suite struct {
	*testing.T
	Harness
	limit time.Duration // maximum duration of a request
}

// patience is far longer than a busy machine needs for any step. It ends a test that
// would hang.
const patience = 20 * time.Second

// A handler returns the answer to a text. The tests send texts in place of all requests
// between nodes.
type handler func(ctx context.Context, said string) (string, error)

// service lets a handler answer GetFigures, the only request between nodes that takes a
// text and returns bytes.
type service struct {
	peerv1connect.UnimplementedNodeServiceHandler
	handler handler
}

// GetFigures calls the handler.
func (s service) GetFigures(ctx context.Context, r *peerv1.GetFiguresRequest) (*peerv1.GetFiguresResponse, error) {
	answer, err := s.handler(ctx, r.GetWhat())
	return &peerv1.GetFiguresResponse{Document: []byte(answer)}, err
}

// startServing starts a process at a place and makes it serve h.
func (s *suite) startServing(place int, h handler) Process {
	s.Helper()
	p := s.Start(s.T, place)
	p.Serve(service{handler: h})
	return p
}

// echo is a handler that returns the text itself.
func echo(_ context.Context, said string) (string, error) { return said, nil }

// say sends a text to the process at an address, and returns the answer.
func say(ctx context.Context, from Process, address, text string) (string, error) {
	res, err := from.Node(address).GetFigures(ctx, &peerv1.GetFiguresRequest{What: text})
	return string(res.GetDocument()), err
}

// ask is say with a timeout that a working network never reaches.
func (s *suite) ask(from Process, address, text string) (string, error) {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), patience)
	defer cancel()
	return say(ctx, from, address, text)
}

// hello sends "hello" to the process at an address, and returns only the error.
func hello(ctx context.Context, from Process, address string) error {
	_, err := say(ctx, from, address, "hello")
	return err
}

// askHello is hello with a timeout that a working network never reaches.
func (s *suite) askHello(from Process, address string) error {
	s.Helper()
	_, err := s.ask(from, address, "hello")
	return err
}

// wantRefusal verifies that err is only a refusal with this code, and returns the message
// of the refusal.
func (s *suite) wantRefusal(err error, code string) (message string) {
	s.Helper()
	var refusal *peer.Refusal
	if !errors.As(err, &refusal) || refusal.Code != code || errors.Is(err, peer.ErrUnreachable) || errors.Is(err, peer.ErrRefused) {
		s.Fatalf("error %v, want a refusal with code %s", err, code)
	}
	return refusal.Message
}

// wantUnreachable verifies that err is only ErrUnreachable: the outcome of the request is
// unknown.
func (s *suite) wantUnreachable(err error) {
	s.Helper()
	var refusal *peer.Refusal
	if !errors.Is(err, peer.ErrUnreachable) || errors.Is(err, peer.ErrRefused) || errors.As(err, &refusal) {
		s.Errorf("error %v, want ErrUnreachable alone", err)
	}
}

// deserted verifies that connections to an address are refused. The first few requests
// may still use old connections.
func (s *suite) deserted(from Process, address string) {
	s.Helper()
	for range 8 {
		err := s.askHello(from, address)
		if errors.Is(err, peer.ErrRefused) && !errors.Is(err, peer.ErrUnreachable) {
			return
		}
		s.wantUnreachable(err)
	}
	s.Error("asking an address without a process returns ErrUnreachable only, want ErrRefused after some attempts")
}

// waitForToken waits until a channel has a token or is closed. event describes what that
// means, for the error message.
func (s *suite) waitForToken(channel <-chan struct{}, event string) {
	s.Helper()
	select {
	case <-channel:
	case <-time.After(patience):
		s.Fatalf("not within %v: %s", patience, event)
	}
}

// waitForMembers waits until the condition is true for the members that process p
// lists. The test fails if the members change without a token in p.Changed. what
// describes the condition.
func (s *suite) waitForMembers(p Process, what string, condition func([]cluster.Member) bool) {
	s.Helper()
	late := time.After(patience)
	for {
		members := p.Members()
		s.wellFormed(p, members)
		if condition(members) {
			return
		}
		select {
		case <-p.Changed():
		case <-late:
			s.Fatalf("process %s does not learn within %v: %s; it lists %v", p.Self().ID, patience, what, ids(p.Members()))
		}
	}
}

// wellFormed verifies that a list of members is sorted, has p itself once, and has each
// address once.
func (s *suite) wellFormed(p Process, members []cluster.Member) {
	s.Helper()
	self, addresses := 0, map[string]bool{}
	for _, m := range members {
		if m.Self {
			self++
		}
		if m.Self != (m.ID == p.Self().ID) {
			s.Errorf("process %s lists %s with Self %v, want Self only for itself", p.Self().ID, m.ID, m.Self)
		}
		if addresses[m.Peer] {
			s.Errorf("process %s lists two members at %s, want one: %v", p.Self().ID, m.Peer, ids(members))
		}
		addresses[m.Peer] = true
	}
	if self != 1 || !slices.IsSorted(ids(members)) {
		s.Errorf("%s lists itself %d times among %v, want once, and all sorted", p.Self().ID, self, ids(members))
	}
}

// ids returns the ids of members.
func ids(members []cluster.Member) (list []string) {
	for _, m := range members {
		list = append(list, m.ID)
	}
	return list
}

// waitUntilAllListed waits until each of the given processes lists exactly these processes.
func (s *suite) waitUntilAllListed(all ...Process) {
	s.Helper()
	var want []string
	for _, p := range all {
		want = append(want, p.Self().ID)
	}
	slices.Sort(want)
	for _, p := range all {
		s.waitForMembers(p, "members "+text(want), func(members []cluster.Member) bool { return slices.Equal(ids(members), want) })
	}
}

// member returns the member with this id.
func member(members []cluster.Member, id string) (cluster.Member, bool) {
	i := slices.IndexFunc(members, func(m cluster.Member) bool { return m.ID == id })
	if i < 0 {
		return cluster.Member{}, false
	}
	return members[i], true
}

// waitForState waits until the processes in by know this state of the process of.
func (s *suite) waitForState(subject Process, state []byte, observers ...Process) {
	s.Helper()
	id := subject.Self().ID
	for _, p := range observers {
		s.waitForMembers(p, "a state of "+id, func(members []cluster.Member) bool {
			m, here := member(members, id)
			return here && string(m.State) == string(state) && (m.State == nil) == (state == nil)
		})
	}
}

// text returns a value as JSON.
func text(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

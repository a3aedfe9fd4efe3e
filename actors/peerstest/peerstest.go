// Package peerstest is the conformance suite of actors.Peers: what the pipeline
// may rely on of its network, and of what is known there of the others. A
// network passes Run or is none. It knows no network.
//
// The promise is this. A request reaches the process at its address, whole, or
// it fails, and the error says what is known: a *peer.Refusal with its code,
// that nobody listens, or that it cannot be told. The end of a context ends the
// wait, and the handler hears of it. A peer that does not answer holds up what
// goes to itself and nothing else. A process that comes, goes or says something
// is heard of by all others, with a token in Changed; one that starts again at
// an address is another, and takes the place of the one before.
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

// Harness is a network without processes.
type Harness struct {
	// Start starts a process at a place, 0 to 2, which looks for those at the
	// others. A place has one process at a time and is one address for all of
	// them. It serves nothing yet.
	Start func(t *testing.T, place int) Process

	// MaxWaiting is that of the clients, as peer.Config has it: real sockets on a busy
	// machine do not answer 4,096 in the time of a request.
	MaxWaiting int
}

// Process is a process on the network.
type Process struct {
	actors.Peers
	Serve func(peerv1connect.NodeServiceHandler)
	Leave func() // ends it as one that was told to end: others hear of it, and what it answers is answered
	Kill  func() // ends it on the spot, while its machine goes on
}

// Run runs the suite: each test inside of within, a bubble or nothing at all. A
// request on the network that fresh makes takes handleTimeout at most, as that
// of peer.Config; the other limits are the defaults there. What was started is
// ended with the test that fresh was called for.
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

// A suite is one test with its network.
type suite struct {
	*testing.T
	Harness
	limit time.Duration // of a request
}

// patience is far beyond what a busy machine needs, and ends a test that would
// hang.
const patience = 20 * time.Second

// A handler answers what it is told: it stands for all that a node can be asked.
type handler func(ctx context.Context, said string) (string, error)

// service has a handler answer the one request of the contract that takes a text and
// is answered by bytes.
type service struct {
	peerv1connect.UnimplementedNodeServiceHandler
	handler handler
}

// GetFigures calls the handler.
func (s service) GetFigures(ctx context.Context, r *peerv1.GetFiguresRequest) (*peerv1.GetFiguresResponse, error) {
	answer, err := s.handler(ctx, r.GetWhat())
	return &peerv1.GetFiguresResponse{Document: []byte(answer)}, err
}

// serving starts a process that answers.
func (s *suite) serving(place int, h handler) Process {
	s.Helper()
	p := s.Start(s.T, place)
	p.Serve(service{handler: h})
	return p
}

// echo answers with what it was told.
func echo(_ context.Context, said string) (string, error) { return said, nil }

// say asks the process at another's address.
func say(ctx context.Context, from Process, address, text string) (string, error) {
	res, err := from.Node(address).GetFigures(ctx, &peerv1.GetFiguresRequest{What: text})
	return string(res.GetDocument()), err
}

// ask is say with a patience that no working network uses up.
func (s *suite) ask(from Process, address, text string) (string, error) {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), patience)
	defer cancel()
	return say(ctx, from, address, text)
}

// hello is say where the answer does not matter.
func hello(ctx context.Context, from Process, address string) error {
	_, err := say(ctx, from, address, "hello")
	return err
}

// asks is ask where the answer does not matter.
func (s *suite) asks(from Process, address string) error {
	s.Helper()
	_, err := s.ask(from, address, "hello")
	return err
}

// refused checks that an error is a refusal with that code and nothing else, and
// returns what it says.
func (s *suite) refused(err error, code string) (message string) {
	s.Helper()
	var refusal *peer.Refusal
	if !errors.As(err, &refusal) || refusal.Code != code || errors.Is(err, peer.ErrUnreachable) || errors.Is(err, peer.ErrRefused) {
		s.Fatalf("error %v, want a refusal with code %s", err, code)
	}
	return refusal.Message
}

// unreachable checks that an error leaves open what became of the peer.
func (s *suite) unreachable(err error) {
	s.Helper()
	var refusal *peer.Refusal
	if !errors.Is(err, peer.ErrUnreachable) || errors.Is(err, peer.ErrRefused) || errors.As(err, &refusal) {
		s.Errorf("error %v, want ErrUnreachable alone", err)
	}
}

// deserted checks that nobody listens at an address. The first requests may
// still find old connections.
func (s *suite) deserted(from Process, address string) {
	s.Helper()
	for range 8 {
		err := s.asks(from, address)
		if errors.Is(err, peer.ErrRefused) && !errors.Is(err, peer.ErrUnreachable) {
			return
		}
		s.unreachable(err)
	}
	s.Error("ErrRefused never comes where nobody listens")
}

// heard waits until something happens.
func (s *suite) heard(what <-chan struct{}, that string) {
	s.Helper()
	select {
	case <-what:
	case <-time.After(patience):
		s.Fatalf("not within %v: %s", patience, that)
	}
}

// until waits for a change after which something is true of what a process
// knows: one without a token fails.
func (s *suite) until(p Process, what string, holds func([]cluster.Member) bool) {
	s.Helper()
	late := time.After(patience)
	for {
		members := p.Members()
		s.wellFormed(p, members)
		if holds(members) {
			return
		}
		select {
		case <-p.Changed():
		case <-late:
			s.Fatalf("%s does not hear of it within %v: %s; it knows %v", p.Self().ID, patience, what, ids(p.Members()))
		}
	}
}

// wellFormed checks what is true of members at any time.
func (s *suite) wellFormed(p Process, members []cluster.Member) {
	s.Helper()
	self, addresses := 0, map[string]bool{}
	for _, m := range members {
		if m.Self {
			self++
		}
		if m.Self != (m.ID == p.Self().ID) {
			s.Errorf("%s lists %s with Self %v", p.Self().ID, m.ID, m.Self)
		}
		if addresses[m.Peer] {
			s.Errorf("%s lists two members at %s: %v", p.Self().ID, m.Peer, ids(members))
		}
		addresses[m.Peer] = true
	}
	if self != 1 || !slices.IsSorted(ids(members)) {
		s.Errorf("%s lists itself %d times among %v, want once, and all sorted", p.Self().ID, self, ids(members))
	}
}

func ids(members []cluster.Member) (list []string) {
	for _, m := range members {
		list = append(list, m.ID)
	}
	return list
}

// knows waits until each of some processes knows of all of them, and of no
// other.
func (s *suite) knows(all ...Process) {
	s.Helper()
	var want []string
	for _, p := range all {
		want = append(want, p.Self().ID)
	}
	slices.Sort(want)
	for _, p := range all {
		s.until(p, "members "+text(want), func(members []cluster.Member) bool { return slices.Equal(ids(members), want) })
	}
}

// member is what a process knows of another.
func member(members []cluster.Member, id string) (cluster.Member, bool) {
	i := slices.IndexFunc(members, func(m cluster.Member) bool { return m.ID == id })
	if i < 0 {
		return cluster.Member{}, false
	}
	return members[i], true
}

// says waits until processes have heard what another says of itself.
func (s *suite) says(of Process, state []byte, by ...Process) {
	s.Helper()
	id := of.Self().ID
	for _, p := range by {
		s.until(p, "a state of "+id, func(members []cluster.Member) bool {
			m, here := member(members, id)
			return here && string(m.State) == string(state) && (m.State == nil) == (state == nil)
		})
	}
}

// text is a value as JSON.
func text(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

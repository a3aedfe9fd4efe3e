package peerstest

import (
	"bytes"
	"context"
	"errors"

	"github.com/rowmill/rowmill/cluster"
	"github.com/rowmill/rowmill/cluster/peer"
	"github.com/rowmill/rowmill/internal/must"
)

// testMeet verifies that processes find each other and list each other's data
// correctly.
func testMeet(s *suite) {
	one := s.Start(s.T, 0)
	s.waitUntilAllListed(one)
	two := s.Start(s.T, 1)
	s.waitUntilAllListed(one, two)
	three := s.Start(s.T, 2)
	s.waitUntilAllListed(one, two, three)
	for _, p := range []Process{one, two, three} {
		self := p.Self()
		if !self.Self || self.ID == "" || self.Peer == "" || self.API == "" || self.Started.IsZero() || self.Protocol != peer.Protocol || self.State != nil {
			s.Errorf("Self returns %+v, want Self, ID, Peer, API, Started and Protocol, and no State", self)
		}
		for _, o := range []Process{one, two, three} {
			got, _ := member(o.Members(), self.ID)
			want := self
			want.Self = o.Self().ID == self.ID
			if !got.Started.Equal(want.Started) {
				s.Errorf("process %s was started at %v, and another process lists it as started at %v", self.ID, want.Started, got.Started)
			}
			got.Started = want.Started
			if text(got) != text(want) {
				s.Errorf("process %s is %+v, and another process lists it as %+v", self.ID, want, got)
			}
		}
	}
}

// testState verifies that all processes learn the last state that a process has set.
func testState(s *suite) {
	one, two := s.Start(s.T, 0), s.Start(s.T, 1)
	s.waitUntilAllListed(one, two)
	said := []byte(`{"jobs":1}`)
	say := func(p Process, doc []byte) {
		s.Helper()
		must.Succeed(s, p.SetState(doc))
	}
	say(one, said)
	copy(said, `{"JOBS":9}`) // the caller may reuse its memory
	if got := string(one.Self().State); got != `{"jobs":1}` {
		s.Errorf("Self has the state %s, want {\"jobs\":1}", got)
	}
	s.waitForState(one, []byte(`{"jobs":1}`), one, two)
	three := s.Start(s.T, 2)
	s.waitForState(one, []byte(`{"jobs":1}`), three) // process one has set its state before process three started
	s.waitForState(two, nil, one, three)
	for _, doc := range []string{`{"jobs":2,"news":true}`, `{"jobs":1}`} {
		say(one, []byte(doc))
		say(two, []byte(doc))
		s.waitForState(one, []byte(doc), two, three)
		s.waitForState(two, []byte(doc), one, three)
	}
	for range 20 {
		say(three, []byte(`{"draining":false}`))
	}
	say(three, []byte(`{"draining":true}`)) // only the last state must arrive
	s.waitForState(three, []byte(`{"draining":true}`), one, two)
	s.waitUntilAllListed(one, two, three)
}

// maxState is the maximum size of a state in bytes: the default of cluster.Config.
const maxState = 16 << 10

// testStateTooLong verifies that a state above the maximum size is refused and changes
// nothing.
func testStateTooLong(s *suite) {
	one, two := s.Start(s.T, 0), s.Start(s.T, 1)
	most := bytes.Repeat([]byte("x"), maxState)
	must.Succeed(s, one.SetState(most))
	s.waitForState(one, most, one, two)
	if err := one.SetState(append(most, 'x')); err == nil {
		s.Error("SetState accepts a state that is too long, want an error")
	}
	s.waitForState(one, most, one, two)
}

// testLeave verifies that other processes forget a process that has left.
func testLeave(s *suite) { testMemberEnds(s, func(p Process) { p.Leave() }) }

// testKill verifies that other processes forget a process that was killed.
func testKill(s *suite) { testMemberEnds(s, func(p Process) { p.Kill() }) }

// testMemberEnds ends one of three processes, and verifies that the others forget this
// process and no other process.
func testMemberEnds(s *suite, end func(Process)) {
	one, two, three := s.startServing(0, echo), s.startServing(1, echo), s.startServing(2, echo)
	s.waitUntilAllListed(one, two, three)
	address := two.Self().Peer
	if err := s.askHello(one, address); err != nil {
		s.Error(err)
	}
	end(two)
	s.deserted(one, address)
	s.waitUntilAllListed(one, three)
	if err := s.askHello(one, three.Self().Peer); err != nil {
		s.Errorf("ask a process that has not ended: %v, want no error", err)
	}
}

// testLeaveUnderWay verifies that a process that leaves answers the requests that have
// already reached it.
func testLeaveUnderWay(s *suite) {
	h := newStuck()
	one, two := s.Start(s.T, 0), s.startServing(1, h.handle)
	s.waitUntilAllListed(one, two)
	answered, left := make(chan error, 1), make(chan struct{})
	go func() { answered <- s.askHello(one, two.Self().Peer) }()
	s.waitForToken(h.inside, "the request arrives")
	go func() { defer close(left); two.Leave() }()
	s.waitUntilAllListed(one)
	close(h.release)
	if err := <-answered; err != nil {
		s.Errorf("a request that arrived before Leave: %v, want an answer", err)
	}
	s.waitForToken(left, "the process has left")
}

// testKillUnderWay verifies that a caller gets ErrUnreachable if the other process
// crashes before it answers: the caller cannot know whether the request was processed.
func testKillUnderWay(s *suite) {
	h := newStuck()
	one, two := s.Start(s.T, 0), s.startServing(1, h.handle)
	failed := make(chan error, 1)
	go func() { failed <- hello(s.Context(), one, two.Self().Peer) }()
	s.waitForToken(h.inside, "the request arrives")
	two.Kill()
	s.wantUnreachable(<-failed)
}

// testStartAgain verifies that a process that restarts at an address is a new member,
// and that others forget the old one.
func testStartAgain(s *suite) {
	one, former, three := s.startServing(0, echo), s.startServing(1, echo), s.Start(s.T, 2)
	s.waitUntilAllListed(one, former, three)
	was := former.Self()
	must.Succeed(s, former.SetState([]byte(`{"jobs":1}`)))
	s.waitForState(former, []byte(`{"jobs":1}`), one, three)
	must.Succeed(s, s.askHello(one, was.Peer))
	former.Kill()
	again := s.Start(s.T, 1)
	is := again.Self()
	if is.ID == was.ID || is.Peer != was.Peer || is.Node != was.Node || !is.Started.After(was.Started) {
		s.Errorf("the process %+v has started again as %+v, want another ID, the same Peer and Node, and a later Started", was, is)
	}
	// When a process lists the new process, it does not list the old one (waitForMembers checks
	// this), and the new process does not have the old one's state.
	for _, p := range []Process{one, three} {
		s.waitForMembers(p, "the new process", func(members []cluster.Member) bool {
			m, here := member(members, is.ID)
			if here && m.State != nil {
				s.Errorf("a process that has set no state is listed with the state %s, want none", m.State)
			}
			return here
		})
	}
	s.waitUntilAllListed(one, again, three)
	// The first request may use a connection that is already broken.
	err := s.askHello(one, is.Peer)
	if errors.Is(err, peer.ErrUnreachable) {
		err = s.askHello(one, is.Peer)
	}
	s.wantRefusal(err, peer.CodeStarting)
	again.Serve(service{handler: func(context.Context, string) (string, error) { return "again", nil }})
	if reply, err := s.ask(one, was.Peer, "hello"); err != nil || reply != "again" {
		s.Errorf("ask the process that has started again: %q, %v, want \"again\"", reply, err)
	}
}

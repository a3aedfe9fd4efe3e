package storetest

import (
	"fmt"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/store"
)

// wantEvents compares the events of a job without their times. The times must be in order.
func (s *suite) wantEvents(when, id string, want ...store.JobEvent) {
	s.Helper()
	events := s.get(id).Events
	var last int64
	for i := range events {
		if events[i].At < last || events[i].At == 0 {
			s.Errorf("%s: event %d has the time %d, and the event before has %d", when, i, events[i].At, last)
		}
		last, events[i].At = events[i].At, 0
	}
	s.wantSame(when+": events", want, events)
}

// testEvents checks that claims and releases of a job are recorded as events.
func testEvents(s *suite) {
	id := s.create("a")
	s.wantEvents("it was never claimed", id)
	claimed := func(process string, lost bool) store.JobEvent {
		return store.JobEvent{What: store.EventClaimed, Node: "node " + process, Process: process, Lost: lost}
	}
	first, dies := s.adopt(id, "p1")
	if owner, ok := s.owner(id); !ok || owner.Process != "p1" || owner.At != first.Epoch {
		s.Errorf("the owner is %+v, %t; want process p1", owner, ok)
	}
	s.update(first, func(r *store.Record) error { // as the owner of the job does
		r.AddEvent(store.JobEvent{At: first.Epoch, What: store.EventWaits, Reason: "a \"server\"\n, another", Until: first.Epoch + 5})
		return moveThrough(r, rowmill.StatusStarting)
	})
	waited := store.JobEvent{What: store.EventWaits, Reason: "a \"server\"\n, another", Until: first.Epoch + 5}
	dies()
	second, _ := s.adopt(id, "p2")
	s.wantEvents("its owner died", id, claimed("p1", false), waited, claimed("p2", true))
	s.Advance(10 * time.Millisecond)
	s.must(s.Release(s.Context(), second))
	if owner, ok := s.owner(id); ok {
		s.Errorf("after the release the owner is %+v, want none", owner)
	}
	third, _ := s.adopt(id, "p3")
	all := []store.JobEvent{claimed("p1", false), waited, claimed("p2", true), {What: store.EventReleased}, claimed("p3", false)}
	s.wantEvents("it was given back", id, all...)
	s.must(s.CommitParts(s.Context(), third, []store.Part{{Key: "p", Rows: 1, Accepted: []byte("set"), Totals: store.RowTotals{Rows: 1}}}))
	s.must(s.Cancel(s.Context(), id, s.start, nil))
	s.wantEvents("it has ended", id, all...)
}

// owner returns the result of Record.OwnerClaim for a job.
func (s *suite) owner(id string) (store.JobEvent, bool) {
	s.Helper()
	rec := s.get(id)
	return rec.OwnerClaim()
}

// testEventsBounded checks the limit of the list of events, and that events of waits are
// dropped first.
func testEventsBounded(s *suite) {
	id := s.create("a")
	f, dies := s.adopt(id, "p1")
	s.update(f, func(r *store.Record) error {
		for i := range store.MaxEvents {
			r.AddEvent(store.JobEvent{At: f.Epoch, What: store.EventWaits, Reason: fmt.Sprint(i)})
		}
		return nil
	})
	dies()
	const more = 3
	for i := range more {
		_, dies := s.adopt(id, fmt.Sprint("p", i+2))
		dies()
	}
	events := s.get(id).Events
	if n := len(events); n != store.MaxEvents || events[0].Process != "p1" || events[1].Reason != fmt.Sprint(more+1) || events[n-1].Process != fmt.Sprint("p", more+1) {
		s.Errorf("%d events are kept, want %d, with waits dropped first: %+v", n, store.MaxEvents, events)
	}
	for i := range store.MaxEvents {
		_, dies := s.adopt(id, fmt.Sprint("q", i))
		dies()
	}
	events = s.get(id).Events
	if n := len(events); n != store.MaxEvents || events[0].Process != "q0" || events[n-1].Process != fmt.Sprint("q", store.MaxEvents-1) {
		s.Errorf("%d events are kept: %+v", n, events)
	}
}

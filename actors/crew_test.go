package actors

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/RoaringBitmap/roaring/v2"
	"pgregory.net/rapid"

	"github.com/rowmill/rowmill/shard"
)

// A hand is a worker of the model: a duty and what a worker does with its
// rows, without engines.
type hand struct {
	*duty
	name      string
	unsent    holdings // could be given back
	finished  holdings // not written
	exhausted bool
	parts     int
	leaves    bool
	stopped   bool
}

func (h *hand) report() *report {
	r := &report{
		Job: "job", Worker: h.name, Address: "there", Want: h.unsent.count() < 500 && !h.leaves,
		Hungry: len(h.unsent) == 0, Ready: int(h.unsent.count()), Ports: 1, Leaves: h.leaves,
	}
	h.write(r)
	r.Left = h.leaves && h.free()
	return r
}

func (h *hand) obeyOrders(o *orders) {
	spans, _, back, ok := h.obey(o)
	if !ok || o.Worker != h.name {
		return
	}
	if o.Stop {
		h.stopped = true
		return
	}
	h.exhausted = o.Exhausted
	for _, s := range spans {
		h.unsent.add(s.Shard, s.rows())
	}
	h.surrender(back)
}

func (h *hand) surrender(n int) {
	for shard, rows := range h.unsent {
		if n <= 0 {
			return
		}
		some := rows.Clone()
		if last, err := rows.Select(uint32(n)); err == nil {
			some.RemoveRange(uint64(last), 1<<32)
		}
		n -= int(some.GetCardinality())
		h.unsent.remove(shard, some)
		h.giveBack(shard, some)
	}
}

// write makes a part of the finished rows of some shard.
func (h *hand) writePart() {
	for shard, rows := range h.finished {
		h.parts++
		set := newRowSet(rows)
		h.wrote(partReport{Key: fmt.Sprintf("%s-%d", h.name, h.parts), Shard: shard, Rows: set})
		delete(h.finished, shard)
		return
	}
}

// A site is a job in the model; its ledger outlives owners.
type site struct {
	t      *rapid.T
	shards []shard.Info
	ledger *ledger
	crew   *crew
	epoch  int64
	hands  []*hand
	made   int
	late   []*report      // that may still arrive
	runs   map[string]int // by row: how often it was run
	lost   map[string]bool
}

func carry[T any](t *rapid.T, m T) T {
	doc, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	var out T
	if err := json.Unmarshal(doc, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

func (s *site) newOwner() {
	s.epoch++
	s.crew = newCrew(newPlan(s.shards, s.ledger.done()), s.ledger.keys())
	s.crew.dealing = s.epoch == 1
}

func (s *site) newHand() {
	s.made++
	s.hands = append(s.hands, &hand{
		duty: newDuty(s.epoch, fmt.Sprint(s.epoch)), name: fmt.Sprint("w", s.made), unsent: make(holdings), finished: make(holdings),
	})
}

// exchange lets a worker report and obey, with either message lost on the way.
func (s *site) exchange(h *hand, loseReport, loseOrders bool) {
	r := carry(s.t, h.report())
	if loseReport || r.Epoch != s.epoch {
		s.late = append(s.late, r)
		return
	}
	m, parts := s.crew.hear(r, time.Unix(0, 0))
	if m == nil {
		h.stopped = true
		s.forgo(h)
		return
	}
	for _, p := range parts {
		s.settle(h.name, p)
	}
	if r.Left {
		unseen := 0
		for _, d := range m.unseen {
			for _, sp := range d.Spans {
				unseen += sp.count()
			}
		}
		if n := s.crew.remove(m); int(n) != unseen {
			s.t.Fatalf("a worker left with %d rows, of which it knew all but %d", n, unseen)
		}
		h.stopped = true
		return
	}
	s.crew.serve()
	if o := carry(s.t, s.sign(s.crew.orders(m))); !loseOrders {
		h.obeyOrders(o)
	}
}

func (s *site) sign(o *orders) *orders {
	o.Epoch = s.epoch
	return o
}

func (s *site) settle(worker string, p partReport) {
	record, open, ok := s.ledger.propose(p)
	if ok {
		s.ledger.committed(record)
		open = nil
	}
	s.crew.settle(worker, p, open)
}

// forgo notes that rows of a worker may run again.
func (s *site) forgo(h *hand) {
	for shard, rows := range h.holds {
		for _, rel := range rows.ToArray() {
			s.lost[fmt.Sprint(shard, "/", rel)] = true
		}
	}
}

// run lets a worker run some of its rows.
func (s *site) run(h *hand, n int) {
	for shard, rows := range h.unsent {
		some := roaring.New()
		for _, rel := range rows.ToArray() {
			if n--; n < 0 {
				break
			}
			some.Add(rel)
			key := fmt.Sprint(shard, "/", rel)
			if s.runs[key]++; s.runs[key] > 1 && !s.lost[key] {
				s.t.Fatalf("row %s was run twice although no worker was lost that had it", key)
			}
		}
		h.unsent.remove(shard, some)
		h.finished.add(shard, some)
		return
	}
}

// Whatever is lost on the way, whoever dies, owners included: every row is
// committed once, and only rows of workers that were lost run again.
func TestCrewAndDutiesLoseNoRow(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := &site{t: t, runs: make(map[string]int), lost: make(map[string]bool)}
		for range rapid.IntRange(1, 4).Draw(t, "shards") {
			s.shards = append(s.shards, shard.Info{Rows: rapid.IntRange(1, 400).Draw(t, "rows"), Bytes: 1 << 20})
		}
		var err error
		if s.ledger, err = newLedger(s.shards, nil); err != nil {
			t.Fatal(err)
		}
		s.newOwner()
		s.newHand()
		for range rapid.IntRange(0, 150).Draw(t, "steps") {
			s.step()
		}
		for _, h := range s.hands { // from here on nothing is lost
			h.adopt(s.epoch, fmt.Sprint(s.epoch))
		}
		for range 3 {
			for _, h := range s.hands {
				if !h.stopped {
					s.exchange(h, false, false)
				}
			}
		}
		s.crew.dealing = true
		s.newHand()
		for i := 0; !s.allDone(); i++ {
			if i > 2000 {
				t.Fatalf("%d of %d rows done, the plan has %d", s.ledger.totals.Rows, s.ledger.rows, s.crew.plan.left)
			}
			for _, h := range s.hands {
				if !h.stopped {
					s.exchange(h, false, false)
					s.run(h, 300)
					h.writePart()
				}
			}
		}
	})
}

func (s *site) allDone() bool {
	for i := range s.ledger.shards {
		sh := &s.ledger.shards[i]
		if !sh.complete && int(sh.done.GetCardinality()) != sh.rows {
			return false
		}
	}
	return true
}

func (s *site) step() {
	t := s.t
	h := s.hands[rapid.IntRange(0, len(s.hands)-1).Draw(t, "worker")]
	if h.stopped {
		h = s.hands[len(s.hands)-1]
	}
	if h.stopped {
		s.newHand()
		return
	}
	switch rapid.IntRange(0, 12).Draw(t, "step") {
	case 12: // a report arrives after those that were made later
		if len(s.late) > 0 {
			r := s.late[rapid.IntRange(0, len(s.late)-1).Draw(t, "late")]
			if r.Epoch == s.epoch && s.crew.members[r.Worker] != nil {
				if m, parts := s.crew.hear(carry(t, r), time.Unix(0, 0)); m != nil {
					for _, p := range parts {
						s.settle(r.Worker, p)
					}
				}
			}
		}
	case 0, 1, 2:
		s.exchange(h, rapid.Bool().Draw(t, "report lost"), rapid.Bool().Draw(t, "orders lost"))
	case 3, 4:
		s.exchange(h, false, false)
	case 5, 6:
		s.run(h, rapid.IntRange(1, 200).Draw(t, "rows"))
	case 7:
		h.writePart()
	case 8:
		if len(s.hands) < 4 {
			s.newHand()
		}
	case 9: // the owner takes it for dead; it may live
		if m := s.crew.members[h.name]; m != nil && rapid.Bool().Draw(t, "dies") {
			s.forgo(h)
			s.crew.remove(m)
		}
	case 10: // another owner, which hears some of the workers in time
		if !rapid.Bool().Draw(t, "owner dies") {
			return
		}
		s.newOwner()
		for _, h := range s.hands {
			if h.stopped {
				continue
			}
			if rapid.IntRange(0, 3).Draw(t, "heard") == 0 {
				s.forgo(h)
				continue
			}
			h.adopt(s.epoch, fmt.Sprint(s.epoch))
			s.exchange(h, false, rapid.Bool().Draw(t, "answer lost"))
		}
		s.crew.dealing = true
	case 11:
		h.leaves = true
		h.surrender(int(h.unsent.count()))
	}
}

// An owner that stood still has not heard its workers: that is no sign that
// they are lost.
func TestCrewExcusesWhoCouldNotBeHeard(t *testing.T) {
	t.Parallel()
	k := newCrew(newPlan([]shard.Info{{Rows: 10}}, make([]*roaring.Bitmap, 1)), nil)
	start := time.Unix(1000, 0)
	h := &hand{duty: newDuty(1, "s"), name: "w", unsent: make(holdings), finished: make(holdings)}
	k.hear(h.report(), start)
	late := start.Add(time.Minute)
	if len(k.silent(late.Add(-time.Second))) != 1 {
		t.Fatal("a worker that was not heard for a minute is not silent")
	}
	k.excuse(late)
	if len(k.silent(late.Add(-time.Second))) != 0 {
		t.Error("a worker that could not be heard is taken for lost")
	}
}

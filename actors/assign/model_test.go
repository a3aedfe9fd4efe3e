package assign

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/RoaringBitmap/roaring/v2"
	"pgregory.net/rapid"

	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/internal/shard"
	"github.com/rowmill/rowmill/store"
)

// A hand is a worker in the model: the worker's side of the protocol, and simple rules
// for its rows in place of engines.
type hand struct {
	*Worker
	name      string
	unsent    RowsByShard // could still be given back
	finished  RowsByShard // not written yet
	exhausted bool
	parts     int
	leaves    bool
	stopped   bool
}

func (h *hand) report() *Heartbeat {
	r := &Heartbeat{
		Job: "job", Worker: h.name, Address: "there", Want: h.unsent.Count() < 500 && !h.leaves,
		Hungry: h.unsent.Count() == 0, Ready: int(h.unsent.Count()), Engines: 1, Leaves: h.leaves,
	}
	h.FillHeartbeat(r)
	r.Left = h.leaves && h.Idle()
	return r
}

func (h *hand) obeyOrders(o *Assignment) {
	spans, _, back, ok := h.ApplyAssignment(o)
	if !ok {
		return
	}
	if o.Stop {
		h.stopped = true
		return
	}
	h.exhausted = o.Exhausted
	for _, s := range spans {
		h.unsent.Add(s.Shard, s.Rows())
	}
	h.surrender(back)
}

func (h *hand) surrender(n int) {
	for shard, rows := range h.unsent.shards {
		if n <= 0 {
			return
		}
		some := rows.Clone()
		if last, err := rows.Select(uint32(n)); err == nil {
			some.RemoveRange(uint64(last), 1<<32)
		}
		n -= int(some.GetCardinality())
		h.unsent.remove(shard, some)
		h.GiveBack(shard, some)
	}
}

// writePart makes a part from the finished rows of a shard.
func (h *hand) writePart() {
	for shard, rows := range h.finished.shards {
		h.parts++
		set := NewRowSet(rows)
		h.MarkWritten(Part{Key: fmt.Sprintf("%s-%d", h.name, h.parts), Shard: shard, Rows: set})
		h.finished.remove(shard, set.Bitmap)
		return
	}
}

// A site is a job in the model. Its records survive a change of owner.
type site struct {
	t       *rapid.T
	shards  []shard.ManifestEntry
	groups  []byte           // of the first rows of the job
	copies  *shard.RowCopies // nil if there are none
	records []store.Part
	pending []PartProposal // not committed yet
	owner   *Owner
	listed  []byte // the encoded list of copies
	copied  []Part // parts with copies that the owner has begun to write
	read    int    // number of shards that the owner knows: the first owner reads the input while rows run
	epoch   int64
	hands   []*hand
	made    int
	late    []*Heartbeat   // heartbeats that may still arrive
	runs    map[string]int // by row: number of runs
	lost    map[string]bool
}

// MarshalText encodes a set as text for JSON.
func (s RowSet) MarshalText() ([]byte, error) {
	return []byte(base64.StdEncoding.EncodeToString(s.Encode())), nil
}

// UnmarshalText decodes the text.
func (s *RowSet) UnmarshalText(text []byte) error {
	raw, err := base64.StdEncoding.DecodeString(string(text))
	if err != nil {
		return err
	}
	*s, err = DecodeRowSet(raw)
	return err
}

// carry returns a message as another node receives it: encoded and decoded.
func carry[T any](t *rapid.T, m T) T {
	doc := must.Get(json.Marshal(m))(t)
	var out T
	must.Succeed(t, json.Unmarshal(doc, &out))
	return out
}

func (s *site) newOwner() {
	s.epoch++
	s.pending, s.copied = nil, nil // commits that were pending when the owner died may never happen
	var err error
	if s.epoch > 1 {
		s.read = len(s.shards)
	}
	whole := s.read == len(s.shards)
	if !whole { // the owner learns about shards while the input is read
		s.owner, err = NewOwner(nil, nil)
	} else {
		s.owner, err = NewOwner(s.shards, s.records)
	}
	must.Succeed(s.t, err)
	if n := s.read; !whole {
		s.read = 0
		s.readOn(n)
	}
	s.owner.SetRowGroups(s.groups)
	if whole {
		s.owner.SetCopies(s.copies)
	}
	s.owner.Assigning = s.epoch == 1
}

// readOn appends up to n more shards to the owner.
func (s *site) readOn(n int) {
	n = min(n, len(s.shards)-s.read)
	var copies []*roaring.Bitmap
	for i := s.read; i < s.read+n; i++ {
		copies = append(copies, s.copiesOf(i))
	}
	s.owner.Append(s.shards[s.read:s.read+n], copies)
	if s.read += n; n > 0 && s.read == len(s.shards) {
		s.owner.SetCopies(s.copies)
	}
}

// copiesOf returns the copies in a shard; nil if there are none.
func (s *site) copiesOf(n int) *roaring.Bitmap {
	if s.copies == nil {
		return nil
	}
	return s.copies.Rows(n)
}

// drawCopies makes some rows equal to earlier rows.
func (s *site) drawCopies() {
	var list bytes.Buffer
	w := shard.NewRowCopiesWriter(&list)
	one := rapid.IntRange(1, 6).Draw(s.t, "of so many rows one is a copy")
	far := rapid.Int64Range(1, 900).Draw(s.t, "originals are so far before")
	var originals []int64
	for n, info := range s.shards {
		rows, distances := roaring.New(), []int64(nil)
		for rel := range info.Rows {
			row := info.First + int64(rel)
			if h := (row*2654435761 + 12345) % 1000; len(originals) > 0 && h%int64(one) == 0 {
				from := originals[max(0, int64(len(originals))-1-h*far/1000)]
				rows.Add(uint32(rel))
				distances = append(distances, row-from)
				continue
			}
			originals = append(originals, row)
		}
		if !rows.IsEmpty() {
			must.Succeed(s.t, w.Add(n, rows, distances))
		}
	}
	must.Succeed(s.t, w.Close())
	s.listed = list.Bytes()
	var err error
	if s.copies, err = shard.ReadRowCopies(bytes.NewReader(s.listed), int64(len(s.listed)), s.shards); err != nil {
		s.t.Fatal(err)
	}
}

// copy starts to write the copies of a shard with committed originals.
func (s *site) copy() {
	n, rows, ok := s.owner.NextCopyableShard()
	if !ok {
		return
	}
	originals := must.Get(s.copies.ReadOriginals(bytes.NewReader(s.listed), n))(s.t)
	for i, rel := range s.copies.Rows(n).ToArray() {
		m := s.copies.ShardOf(originals[i])
		if rows.Contains(rel) && !s.owner.states.committed.has(m, int(originals[i]-s.shards[m].First)) {
			s.t.Fatalf("row %d of shard %d is to be copied from row %d, which is not done", rel, n, originals[i])
		}
	}
	s.made++
	s.copied = append(s.copied, Part{Key: fmt.Sprint("copies-", s.made), Shard: n, Rows: NewRowSet(rows)})
}

// writtenCopies reports the written copies to the owner.
func (s *site) writtenCopies() {
	for _, p := range s.copied {
		if made := s.owner.ProposeCopies(p); !made.Repeat {
			s.pending = append(s.pending, made)
		}
	}
	s.copied = nil
}

func (s *site) newHand() {
	s.made++
	name := fmt.Sprint("w", s.made)
	s.hands = append(s.hands, &hand{Worker: NewWorker(name, s.epoch, fmt.Sprint(s.epoch)), name: name})
}

// exchange sends a worker's report to the owner and applies the answer. Each message may
// be lost.
func (s *site) exchange(h *hand, loseReport, loseOrders bool) {
	r := carry(s.t, h.report())
	if loseReport || r.Epoch != s.epoch {
		s.late = append(s.late, r)
		return
	}
	a := s.hear(r)
	if a == nil {
		h.stopped = true
		s.forgo(h)
		return
	}
	if r.Left {
		unseen := 0
		for _, b := range a.unconfirmed {
			for _, sp := range b.Spans {
				unseen += sp.Count()
			}
		}
		if n := s.owner.Remove(a); int(n) != unseen {
			s.t.Fatalf("a worker left with %d rows and did not know %d of them", n, unseen)
		}
		h.stopped = true
		return
	}
	s.owner.AssignRows()
	if o := carry(s.t, s.sign(s.owner.Assignment(a))); !loseOrders {
		h.obeyOrders(o)
	}
}

func (s *site) hear(r *Heartbeat) *Assignee {
	a, parts := s.owner.HandleHeartbeat(r, time.Unix(0, 0))
	for _, p := range parts {
		if !p.Repeat {
			s.pending = append(s.pending, p)
			continue
		}
		// After a late heartbeat a worker may still run rows that other workers have
		// finished. If such rows are in a part, the owner drops the whole part.
		for _, rel := range p.Rows.ToArray() {
			s.lost[fmt.Sprint(p.Shard, "/", rel)] = true
		}
	}
	return a
}

// commit records the pending proposals.
func (s *site) commit() {
	if s.read < len(s.shards) { // nothing is recorded before the whole input is read
		return
	}
	for _, p := range s.pending {
		s.records = append(s.records, p.Record)
		s.owner.MarkCommitted(p.Worker, p.Part, time.Unix(0, 0))
	}
	s.pending = nil
}

func (s *site) sign(o *Assignment) *Assignment {
	o.Epoch = s.epoch
	return o
}

// forgo notes that the rows of a worker may run again.
func (s *site) forgo(h *hand) {
	for _, rows := range h.holds() {
		for _, rel := range rows.Rows.ToArray() {
			s.lost[fmt.Sprint(rows.Shard, "/", rel)] = true
		}
	}
}

// run makes a worker finish up to n of its rows.
func (s *site) run(h *hand, n int) {
	for shard, rows := range h.unsent.shards {
		some := roaring.New()
		for _, rel := range rows.ToArray() {
			if n--; n < 0 {
				break
			}
			some.Add(rel)
			h.MarkFinished(shard, int(rel))
			key := fmt.Sprint(shard, "/", rel)
			if rows := s.copiesOf(shard); rows != nil && rows.Contains(rel) {
				s.t.Fatalf("row %s was run, which is a copy", key)
			}
			if s.runs[key]++; s.runs[key] > 1 && !s.lost[key] {
				s.t.Fatalf("row %s was run twice although no worker was lost that had it", key)
			}
		}
		h.unsent.remove(shard, some)
		h.finished.Add(shard, some)
		return
	}
}

// Messages may be lost, and workers and owners may die. Still every row is committed
// once, and only rows of lost workers run again.
func TestOwnerAndWorkersLoseNoRow(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := &site{t: t, runs: make(map[string]int), lost: make(map[string]bool)}
		for range rapid.IntRange(1, 4).Draw(t, "shards") {
			info := shard.ManifestEntry{Rows: rapid.IntRange(1, 400).Draw(t, "rows"), Bytes: 1 << 20}
			if n := len(s.shards); n > 0 {
				info.First = s.shards[n-1].First + int64(s.shards[n-1].Rows)
			}
			s.shards = append(s.shards, info)
		}
		if rapid.Bool().Draw(t, "dealt") { // in shares, in all shards or the first ones
			s.groups = make([]byte, rapid.IntRange(1, 1600).Draw(t, "rows with groups"))
			for i := range s.groups {
				s.groups[i] = byte(i * 37)
			}
			for i := range s.shards {
				s.shards[i].Bytes = rapid.Int64Range(1<<20, 8<<20).Draw(t, "bytes")
			}
		}
		if rapid.Bool().Draw(t, "equal rows") {
			s.drawCopies()
		}
		s.read = rapid.IntRange(0, len(s.shards)).Draw(t, "shards read at first")
		s.newOwner()
		s.newHand()
		for range rapid.IntRange(0, 150).Draw(t, "steps") {
			s.step()
			s.check()
		}
		s.readOn(len(s.shards))
		for _, h := range s.hands { // no message is lost from here on
			h.SwitchOwner(s.epoch, fmt.Sprint(s.epoch))
		}
		s.commit()
		for range 3 {
			for _, h := range s.hands {
				if !h.stopped {
					s.exchange(h, false, false)
				}
			}
		}
		s.owner.Assigning = true
		s.newHand()
		for i := 0; !s.allDone(); i++ {
			if i > 2000 {
				t.Fatalf("%d rows done, %d free", s.owner.states.committed.Count(), s.owner.states.free.Count())
			}
			for _, h := range s.hands {
				if !h.stopped {
					s.exchange(h, false, false)
					s.run(h, 300)
					h.writePart()
				}
			}
			s.copy()
			s.writtenCopies()
			s.commit()
			s.check()
		}
		recorded := int64(0)
		for _, p := range s.records {
			recorded += p.Rows
		}
		if all := s.owner.states.committed.Count(); recorded != all {
			t.Fatalf("%d rows were recorded for %d", recorded, all)
		}
	})
}

func (s *site) allDone() bool {
	for n, info := range s.shards {
		if s.owner.states.committed.countOf(n) != info.Rows {
			return false
		}
	}
	return true
}

// check verifies that each row is in exactly one state at the owner, and that no
// worker has a row in two states.
func (s *site) check() {
	whole, shared := 0, int64(0)
	for n, info := range s.shards[:s.read] {
		if s.owner.states.committed.countOf(n) == info.Rows {
			whole++
		}
		if count, all := s.owner.states.count(n); count != info.Rows || int(all.GetCardinality()) != info.Rows {
			s.t.Fatalf("the owner has %d of %d rows of shard %d in %d states", all.GetCardinality(), info.Rows, n, count)
		}
		for _, h := range s.hands {
			if count, all := h.states.count(n); count != int(all.GetCardinality()) {
				s.t.Fatalf("worker %s has %d rows of shard %d in %d states", h.name, all.GetCardinality(), n, count)
			}
		}
	}
	if complete, _ := s.owner.CountCompleteShards(); complete != whole {
		s.t.Fatalf("the owner knows %d complete shards, want %d", complete, whole)
	}
	for _, share := range s.owner.ProgressByNode(time.Unix(0, 0)) {
		shared += share.Assigned
	}
	b := s.owner.states
	if most := b.assignedCount + b.written.Count(); shared < b.assignedCount || shared > most { // some written rows belong to workers that were removed
		s.t.Fatalf("workers share %d rows, want %d to %d", shared, b.assignedCount, most)
	}
}

// count returns the number of rows of a shard over all states, with repetitions, and
// their set.
func (b *rowStates) count(shard int) (count int, all *roaring.Bitmap) {
	all = roaring.New()
	states := []*RowsByShard{&b.free, &b.copies, &b.finished, &b.written, &b.committed}
	for _, rows := range b.assigned {
		states = append(states, rows)
	}
	for _, rows := range states {
		if set := rows.inShard(shard); set != nil {
			count += rows.countOf(shard)
			all.Or(set)
		}
	}
	return count, all
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
	switch rapid.IntRange(0, 17).Draw(t, "step") {
	case 16:
		s.copy()
	case 17:
		s.writtenCopies()
	case 15:
		s.readOn(rapid.IntRange(1, 2).Draw(t, "shards read"))
	case 13, 14:
		s.commit()
	case 12: // a report arrives after newer ones
		if len(s.late) > 0 {
			r := s.late[rapid.IntRange(0, len(s.late)-1).Draw(t, "late")]
			if r.Epoch == s.epoch && s.owner.workers[r.Worker] != nil {
				s.hear(carry(t, r))
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
	case 9: // the owner declares the worker lost, but it may still run
		if a := s.owner.workers[h.name]; a != nil && rapid.Bool().Draw(t, "dies") {
			s.forgo(h)
			s.owner.Remove(a)
		}
	case 10: // a new owner, which hears from some of the workers in time
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
			h.SwitchOwner(s.epoch, fmt.Sprint(s.epoch))
			s.exchange(h, false, rapid.Bool().Draw(t, "answer lost"))
		}
		s.owner.Assigning = true
	case 11:
		h.leaves = true
		h.surrender(int(h.unsent.Count()))
	}
}

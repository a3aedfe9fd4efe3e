package actors

import (
	"maps"
	"slices"
	"time"

	"github.com/RoaringBitmap/roaring/v2"
)

// A crew is the owner's side of what it has agreed with the workers of its
// job: who has which rows, and who gets more. It knows no actors; duty is the
// other side.
type crew struct {
	plan    *plan
	dealing bool // every earlier worker has been heard, or waited for long enough
	members map[string]*member
	nodes   int             // that could work for the job, as far as is known
	retired map[string]bool // workers that must let go of what they have
	known   map[string]bool // keys of the parts of earlier owners
}

// A member is a worker of the job as its owner knows it.
type member struct {
	worker  string
	link    *courier
	address string // of its node; empty for this one
	heard   time.Time
	last    *report // its newest, what it holds and gives back apart

	holds  holdings // dealt to it, not settled and not given back
	dealt  int64    // number of the last deal
	unseen []deal   // those that it has not said it received
	parts  map[string]*reportedPart
	batch  int64 // number of the last batch of rows taken back
	recall recall
}

// A reportedPart is a part that a worker has reported and not yet forgotten.
type reportedPart struct {
	partReport
	settled bool
}

func newCrew(p *plan, known map[string]bool) *crew {
	return &crew{plan: p, members: make(map[string]*member), retired: make(map[string]bool), known: known}
}

// hear takes a report in. It returns the parts in it that are new, to be
// committed. nil is for a worker that has to stop.
func (k *crew) hear(r *report, now time.Time) (m *member, parts []partReport) {
	if k.retired[r.Worker] || !k.possible(r) {
		return nil, nil
	}
	if m = k.members[r.Worker]; m == nil {
		if m = k.join(r); m == nil {
			k.retired[r.Worker] = true
			return nil, nil
		}
	}
	m.heard = now
	if m.last != nil && r.Number <= m.last.Number { // overtaken on its way
		return m, nil
	}
	newest := *r
	newest.Holds, newest.Back, newest.Parts = nil, nil, nil
	m.last = &newest
	m.unseen = slices.DeleteFunc(m.unseen, func(d deal) bool { return d.Number <= r.Received })
	if r.Batch > m.batch {
		m.batch = r.Batch
		for n, rows := range held(r.Back) {
			if have := m.holds[n]; have != nil {
				rows.And(have)
				m.holds.remove(n, rows)
				k.plan.giveBack(n, rows)
			}
		}
	}
	reported := make(map[string]bool, len(r.Parts))
	for _, p := range r.Parts {
		reported[p.Key] = true
		switch {
		case m.parts[p.Key] != nil:
		case k.known[p.Key]: // committed by an earlier owner
			m.parts[p.Key] = &reportedPart{p, true}
			m.holds.remove(p.Shard, p.Rows.Bitmap)
		default:
			m.parts[p.Key] = &reportedPart{p, false}
			parts = append(parts, p)
		}
	}
	for key, p := range m.parts {
		if p.settled && !reported[key] {
			delete(m.parts, key)
		}
	}
	return m, parts
}

// possible reports whether all rows of a report are of the job.
func (k *crew) possible(r *report) bool {
	exist := func(shard int, rows rowSet) bool {
		return shard >= 0 && shard < len(k.plan.shards) && int(rows.Maximum()) < k.plan.shards[shard].Rows
	}
	return !slices.ContainsFunc(r.Parts, func(p partReport) bool { return !exist(p.Shard, p.Rows) }) &&
		!slices.ContainsFunc(slices.Concat(r.Holds, r.Back), func(s shardRows) bool { return !exist(s.Shard, s.Rows) })
}

// join takes in a worker that was not known. It returns nil where rows that it
// has were dealt to another meanwhile.
func (k *crew) join(r *report) *member {
	m := &member{worker: r.Worker, address: r.Address, holds: make(holdings), parts: make(map[string]*reportedPart)}
	if !r.Fresh { // it has orders of ours that we know nothing of
		return nil
	}
	holds := held(r.Holds)
	if !k.plan.take(holds) {
		return nil
	}
	for n, rows := range holds {
		m.holds.add(n, rows)
	}
	k.members[r.Worker] = m
	return m
}

// settle notes that a part is committed, or was dropped because of rows that
// were done already; open are then those of its rows that were not.
func (k *crew) settle(worker string, p partReport, open *roaring.Bitmap) *member {
	if open != nil {
		k.plan.giveBack(p.Shard, open)
	}
	m := k.members[worker]
	if m == nil {
		return nil
	}
	m.holds.remove(p.Shard, p.Rows.Bitmap)
	if part := m.parts[p.Key]; part != nil {
		part.settled = true
	}
	return m
}

// orders are what a worker is told.
func (k *crew) orders(m *member) *orders {
	o := &orders{
		Worker: m.worker, Deals: slices.Clone(m.unseen), Exhausted: k.plan.exhausted(),
		Taken: m.batch, Recall: m.recall,
	}
	for _, key := range slices.Sorted(maps.Keys(m.parts)) {
		if m.parts[key].settled {
			o.Settled = append(o.Settled, key)
		}
	}
	return o
}

// spansPerDeal is how many spans a worker gets at a time: the one it works on
// and the next ones.
const spansPerDeal = 4

// serve deals rows to those who have room, and recalls some where a worker
// has nothing to do and another has rows waiting. It returns whose orders have
// changed.
func (k *crew) serve() (changed []*member) {
	if !k.dealing {
		return nil
	}
	var hungry []*member
	for _, m := range k.byNeed() {
		if m.last == nil || m.last.Leaves || len(m.unseen) > 0 || m.last.Ports == 0 || !m.last.Want {
			continue
		}
		if k.deal(m) {
			changed = append(changed, m)
		} else if m.last.Hungry {
			hungry = append(hungry, m)
		}
	}
	return append(changed, k.recallFor(len(hungry))...)
}

// deal gives a worker its next spans; false when there are none.
func (k *crew) deal(m *member) bool {
	var spans []span
	for most := k.most(m); most > 0 && len(spans) < spansPerDeal; {
		s, ok := k.plan.deal(m.worker, most)
		if !ok {
			break
		}
		m.holds.add(s.Shard, s.rows())
		spans = append(spans, s)
		most -= s.count()
	}
	if len(spans) == 0 {
		return false
	}
	m.dealt++
	m.unseen = append(m.unseen, deal{m.dealt, spans})
	return true
}

// most is how many rows a worker may be dealt now. One that has something to do
// gets no more than an equal share of all that is not done, with those who are
// on their way: when the owner dies nobody evens out who has how much.
func (k *crew) most(m *member) int {
	workers := max(k.working(), k.nodes)
	most := k.plan.share(workers)
	if m.last.Hungry || workers < 2 {
		return most
	}
	open := k.plan.left
	for _, other := range k.members {
		open += other.holds.count()
	}
	if fair := open/int64(workers) - m.holds.count(); fair >= leastDeal {
		return int(min(int64(most), fair))
	}
	return 0
}

// working is how many workers have engines and stay.
func (k *crew) working() (n int) {
	for _, m := range k.members {
		if m.last != nil && m.last.Ports > 0 && !m.last.Leaves {
			n++
		}
	}
	return n
}

// recallFor asks those back for rows who have most waiting, so that as many
// hungry workers get an equal share; and for all rows of a worker that has no
// engine while others have.
func (k *crew) recallFor(hungry int) (changed []*member) {
	var most *member
	for _, m := range k.sorted() {
		if m.last == nil || m.last.Leaves || m.last.Recalled < m.recall.Number || m.last.Ready == 0 {
			continue
		}
		if m.last.Ports == 0 && k.working() > 0 {
			m.recall = recall{m.recall.Number + 1, m.last.Ready}
			changed = append(changed, m)
			continue
		}
		if most == nil || m.last.Ready > most.last.Ready {
			most = m
		}
	}
	if hungry == 0 || len(changed) > 0 || most == nil || most.last.Ready < leastRecall || !k.plan.exhausted() {
		return changed
	}
	most.recall = recall{most.recall.Number + 1, most.last.Ready * hungry / (hungry + 1)}
	return append(changed, most)
}

// leastRecall is how many rows must wait with a worker to be worth a message.
const leastRecall = 2

// remove lets a worker go and gives its rows to others, but for those of parts
// that are being committed: settle says what becomes of them. It returns how
// many rows will be run again.
func (k *crew) remove(m *member) (again int64) {
	for _, p := range m.parts {
		m.holds.remove(p.Shard, p.Rows.Bitmap)
	}
	again = m.holds.count()
	for n, rows := range m.holds {
		k.plan.giveBack(n, rows)
	}
	k.plan.forget(m.worker)
	delete(k.members, m.worker)
	k.retired[m.worker] = true
	return again
}

// excuse takes all workers for heard at a time: before it nobody listened.
func (k *crew) excuse(at time.Time) {
	for _, m := range k.members {
		if m.heard.Before(at) {
			m.heard = at
		}
	}
}

// silent returns the workers on other nodes that have not been heard of since
// then.
func (k *crew) silent(since time.Time) (out []*member) {
	for _, m := range k.sorted() {
		if m.address != "" && m.heard.Before(since) {
			out = append(out, m)
		}
	}
	return out
}

// at is the worker on the node at an address; nil where there is none.
func (k *crew) at(address string) *member {
	for _, m := range k.members {
		if m.address == address {
			return m
		}
	}
	return nil
}

// byNeed are the members, those who have nothing to do first.
func (k *crew) byNeed() []*member {
	out := k.sorted()
	slices.SortStableFunc(out, func(a, b *member) int {
		switch hungry := a.last != nil && a.last.Hungry; {
		case hungry == (b.last != nil && b.last.Hungry):
			return 0
		case hungry:
			return -1
		}
		return 1
	})
	return out
}

// sorted are the members in an order that does not change.
func (k *crew) sorted() []*member {
	out := make([]*member, 0, len(k.members))
	for _, worker := range slices.Sorted(maps.Keys(k.members)) {
		out = append(out, k.members[worker])
	}
	return out
}

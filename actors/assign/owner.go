package assign

import (
	"maps"
	"slices"
	"time"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/rowmill/rowmill/internal/shard"
	"github.com/rowmill/rowmill/store"
)

// An Owner is what the owner of a job has agreed with its workers: the book of
// all rows, and who gets more.
type Owner struct {
	Assigning bool // every earlier worker has been heard, or waited for long enough
	Nodes     int  // that could work for the job, as far as is known

	rows    int64 // of all shards
	book    *book
	plan    *plan
	workers map[string]*Assignee
	sorted  []*Assignee            // the same, by name
	at      map[string][]*Assignee // the same, by address
	counts  counts                 // of them
	due     []*Assignee            // to be looked at by Serve
	dueAll  bool                   // the same of all of them: rows have become free
	retired map[string]bool        // workers that must let go of what they have
	split   time.Time              // since when some workers' nodes can use the bucket, and some cannot
	known   map[string]bool        // keys of the parts of earlier owners
	copies  copies

	suspects suspects // rows that were given back

	complete int              // shards of which all rows are committed
	nodes    map[string]*pace // by address
	paces    map[string]*pace // the same by worker, those that are gone included
}

// A Proposal is a part that a worker has reported.
type Proposal struct {
	Worker string
	Part
	Record store.Part // to be committed
	Repeat bool       // some of its rows are done already: it is dropped as a whole
}

// NewOwner takes up a job with these shards, of which parts are recorded.
func NewOwner(shards []shard.Info, parts []store.Part) (*Owner, error) {
	b, err := newBook(shards, parts)
	if err != nil {
		return nil, err
	}
	o := &Owner{
		rows: rowsIn(shards), book: b, plan: newPlan(shards, &b.free),
		workers: make(map[string]*Assignee), at: make(map[string][]*Assignee), retired: make(map[string]bool), known: make(map[string]bool),
		nodes: make(map[string]*pace), paces: make(map[string]*pace), suspects: make(suspects),
	}
	for n := range shards {
		if o.whole(n) {
			o.complete++
		}
	}
	for _, p := range parts {
		o.known[p.Key] = true
	}
	return o, nil
}

// Group has the rows of which it is given the group, the first of the job, dealt by
// groups: order.Groups says which a row has. What workers have is theirs.
func (o *Owner) Group(groups []byte) {
	if len(groups) > 0 {
		o.plan.deal = newDeal(o.plan.shards, o.plan.free, groups)
	}
}

// Append takes in shards that follow those there are, while the input of a job is
// still being read, and which of their rows are copies: of each shard, nil for none.
func (o *Owner) Append(shards []shard.Info, copies []*roaring.Bitmap) {
	for i, info := range shards {
		o.book.free.Add(len(o.plan.shards)+i, span(0, info.Rows))
		if i < len(copies) {
			o.book.set(len(o.plan.shards)+i, copies[i])
		}
	}
	o.plan.grow(shards)
	o.rows += rowsIn(shards)
	o.dueAll = true
}

func rowsIn(shards []shard.Info) (rows int64) {
	for _, s := range shards {
		rows += int64(s.Rows)
	}
	return rows
}

// Shards is how many shards there are, as far as is known.
func (o *Owner) Shards() int { return len(o.plan.shards) }

// Hear takes a heartbeat in. It returns the parts in it that are new. A nil
// worker has to stop.
func (o *Owner) Hear(h *Heartbeat, now time.Time) (a *Assignee, parts []Proposal) {
	if o.retired[h.Worker] || !o.possible(h) {
		return nil, nil
	}
	behind := false
	if a = o.workers[h.Worker]; a == nil {
		if a = o.join(h); a == nil {
			o.retired[h.Worker] = true
			return nil, nil
		}
		o.paces[h.Worker] = o.pace(a, now)
		behind = o.behind(h)
	}
	a.heard = now
	if a.last != nil && h.Number <= a.last.Number { // overtaken on its way
		return a, nil
	}
	newest := *h
	newest.Holds, newest.Back, newest.Parts, newest.Suspects = nil, nil, nil, nil
	a.last = &newest
	a.unseen = slices.DeleteFunc(a.unseen, func(b Batch) bool { return b.Number <= h.Received })
	if h.Batch > a.taken {
		a.taken = h.Batch
		for _, s := range h.Back {
			o.release(a.Worker, s.Shard, s.Rows.Bitmap)
		}
		for _, s := range h.Suspects {
			o.suspects.add(s)
		}
	}
	parts = o.hearParts(a, h.Parts)
	if behind && h.Ready > 0 {
		o.recall(a, h.Ready)
	}
	o.look(a)
	return a, parts
}

// behind reports whether rows that a worker holds are done by others, as after its node
// stood still: it has to let go of what it has not begun, and gets what is left of that.
func (o *Owner) behind(h *Heartbeat) bool {
	var own Rows
	for _, p := range h.Parts {
		own.Add(p.Shard, p.Rows.Bitmap)
	}
	return slices.ContainsFunc(h.Holds, func(s ShardRows) bool {
		done := o.book.committed.in(s.Shard, s.Rows.Bitmap)
		if mine := own.of(s.Shard); mine != nil {
			done.AndNot(mine)
		}
		return !done.IsEmpty()
	})
}

// Stranded are the workers whose nodes have not been able to use the bucket for
// as long as patience in which those of others were: what they have finished
// should not wait for them any longer. It is to be asked from time to time.
func (o *Owner) Stranded(patience time.Duration, now time.Time) (stranded []*Assignee) {
	for _, a := range o.sorted {
		if a.away() >= patience && patience > 0 {
			stranded = append(stranded, a)
		}
	}
	switch away := o.Away(); {
	case away == 0 || away == len(o.workers): // nobody is better off than others
		o.split = time.Time{}
	case o.split.IsZero():
		o.split = now
	}
	if o.split.IsZero() || now.Sub(o.split) < patience {
		return nil
	}
	return stranded
}

// Away is how many workers' nodes cannot use the bucket.
func (o *Owner) Away() int { return o.counts.away }

// Waits is what all workers that have servers are kept waiting for, or the first
// of them where that differs; empty where one is not.
func (o *Owner) Waits() (waits string) {
	for _, a := range o.sorted {
		switch {
		case a.last == nil || a.last.Ports == 0:
		case a.last.Waits == "":
			return ""
		case waits == "":
			waits = a.last.Waits
		}
	}
	return waits
}

// Done reports whether all rows are.
func (o *Owner) Done() bool { return o.book.committed.Count() == o.rows }

func (o *Owner) hearParts(a *Assignee, parts []Part) (fresh []Proposal) {
	named := make(map[string]bool, len(parts))
	for _, p := range parts {
		named[p.Key] = true
		switch {
		case a.parts[p.Key] != nil:
		case o.known[p.Key]:
			a.parts[p.Key] = &reported{p, true}
		default:
			proposal := o.propose(a, p)
			a.parts[p.Key] = &reported{p, proposal.Repeat}
			fresh = append(fresh, proposal)
		}
	}
	maps.DeleteFunc(a.parts, func(key string, p *reported) bool { return p.acked && !named[key] })
	return fresh
}

// propose turns a reported part into the record to commit, unless rows of it
// are in another part.
func (o *Owner) propose(a *Assignee, p Part) Proposal {
	if o.book.past(p.Shard, p.Rows.Bitmap) {
		o.release(a.Worker, p.Shard, p.Rows.Bitmap)
		return Proposal{Worker: a.Worker, Part: p, Repeat: true}
	}
	return o.proposal(a.Worker, p)
}

// proposal is a part of rows that are in no other.
func (o *Owner) proposal(worker string, p Part) Proposal {
	o.book.write(p.Shard, p.Rows.Bitmap)
	rec := store.Part{Key: p.Key, Shard: p.Shard, Rows: int64(p.Rows.GetCardinality()), Totals: p.Totals, Size: p.Size}
	if rec.Complete = rec.Rows == int64(o.plan.shards[p.Shard].Rows); !rec.Complete {
		rec.Accepted, _ = p.Rows.ToBytes() // writing to memory cannot fail
	}
	return Proposal{Worker: worker, Part: p, Record: rec}
}

// possible reports whether all rows of a heartbeat are of the job.
func (o *Owner) possible(h *Heartbeat) bool {
	return o.plan.possibleAll(h.Holds) && o.plan.possibleAll(h.Back) && h.suspectsGivenBack() &&
		!slices.ContainsFunc(h.Parts, func(p Part) bool { return !o.plan.possible(p.Shard, p.Rows.Bitmap) })
}

// join takes in a worker that was not known. It returns nil where rows that it
// has were assigned to another meanwhile.
func (o *Owner) join(h *Heartbeat) *Assignee {
	if !h.Fresh { // it has assignments of ours that we know nothing of
		return nil
	}
	holds := rowsOf(h.Holds)
	for n, rows := range holds.shards {
		o.plan.touch(n)
		free, done := o.book.free.in(n, rows), o.book.committed.in(n, rows)
		free.Or(o.book.copies.in(n, rows))
		if free.GetCardinality()+done.GetCardinality() != rows.GetCardinality() {
			return nil
		}
	}
	for n, rows := range holds.shards {
		have := o.book.free.in(n, rows)
		have.Or(o.book.copies.in(n, rows))
		o.book.assign(h.Worker, n, have)
	}
	a := &Assignee{Worker: h.Worker, Address: h.Address, parts: make(map[string]*reported)}
	o.workers[h.Worker] = a
	o.at[a.Address] = append(o.at[a.Address], a)
	at, _ := slices.BinarySearchFunc(o.sorted, a, byName)
	o.sorted = slices.Insert(o.sorted, at, a)
	return a
}

// release frees rows of a worker, which others may get.
func (o *Owner) release(worker string, shard int, rows *roaring.Bitmap) {
	o.book.release(worker, shard, rows)
	o.plan.touch(shard)
	o.dueAll = true
}

// look notes what has changed with a worker, and that it is to be served.
func (o *Owner) look(a *Assignee) {
	o.count(a, a.counts())
	o.due = append(o.due, a)
}

// count replaces what the owner's counts have of a worker.
func (o *Owner) count(a *Assignee, now counts) {
	o.counts = o.counts.plus(a.counted, -1).plus(now, 1)
	a.counted = now
}

// Committed notes that a part is recorded now. It returns its worker, nil where
// that is gone.
func (o *Owner) Committed(worker string, p Part, now time.Time) *Assignee {
	o.commit(worker, p, now)
	a := o.workers[worker]
	if a == nil {
		return nil
	}
	if a.parts[p.Key] != nil {
		a.parts[p.Key].acked = true
	}
	o.due = append(o.due, a) // it has fewer rows than before
	return a
}

// Assignment is what a worker is told.
func (o *Owner) Assignment(a *Assignee) *Assignment {
	m := &Assignment{
		Worker: a.Worker, Batches: slices.Clone(a.unseen), Exhausted: o.Exhausted(), Taken: a.taken, Revoke: a.revoked,
	}
	for _, key := range slices.Sorted(maps.Keys(a.parts)) {
		if a.parts[key].acked {
			m.Acked = append(m.Acked, key)
		}
	}
	return m
}

// Remove lets a worker go and frees its rows, but for those of parts that it
// has reported. It returns how many rows will be run again.
func (o *Owner) Remove(a *Assignee) (again int64) {
	o.plan.forget(a.Worker)
	delete(o.workers, a.Worker)
	if there := slices.DeleteFunc(o.at[a.Address], func(b *Assignee) bool { return b == a }); len(there) > 0 {
		o.at[a.Address] = there
	} else {
		delete(o.at, a.Address)
	}
	if at, found := slices.BinarySearchFunc(o.sorted, a, byName); found {
		o.sorted = slices.Delete(o.sorted, at, at+1)
	}
	o.count(a, counts{})
	o.retired[a.Worker] = true
	o.dueAll = true
	for n := range o.book.of(a.Worker).shards {
		o.plan.touch(n)
	}
	return o.book.releaseAll(a.Worker)
}

// Excuse takes all workers for heard at a time: before it nobody listened.
func (o *Owner) Excuse(at time.Time) {
	for _, a := range o.workers {
		if a.heard.Before(at) {
			a.heard = at
		}
	}
}

// Silent are the workers on other nodes that have not been heard of since then.
func (o *Owner) Silent(since time.Time) []*Assignee {
	return slices.DeleteFunc(o.Workers(), func(a *Assignee) bool { return a.Address == "" || !a.heard.Before(since) })
}

// At is the worker on the node at an address; nil where there is none.
func (o *Owner) At(address string) *Assignee {
	if there := o.at[address]; len(there) > 0 {
		return there[0]
	}
	return nil
}

// Exhausted reports whether no row is free.
func (o *Owner) Exhausted() bool { return o.plan.exhausted() }

// Free is how many rows no worker has, of those that are known.
func (o *Owner) Free() int64 { return o.book.free.Count() }

// Workers are all workers, in an order that does not change.
func (o *Owner) Workers() []*Assignee { return slices.Clone(o.sorted) }

// A Place is where a row is.
type Place struct {
	State  State  `json:"state"`
	Worker string `json:"worker,omitempty"` // it is assigned to
}

// Where says where a row of the job is, by its number in the input.
func (o *Owner) Where(row int64) (p Place) {
	n, found := slices.BinarySearchFunc(o.plan.shards, row, func(s shard.Info, row int64) int {
		switch {
		case row < s.First:
			return 1
		case row >= s.First+int64(s.Rows):
			return -1
		}
		return 0
	})
	p.State = Elsewhere
	if found {
		p.State, p.Worker = o.book.where(n, int(row-o.plan.shards[n].First))
	}
	return p
}

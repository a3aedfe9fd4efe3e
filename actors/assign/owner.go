package assign

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/rowmill/rowmill/shard"
	"github.com/rowmill/rowmill/store"
)

// An Owner is what the owner of a job has agreed with its workers: the book of
// all rows, and who gets more.
type Owner struct {
	Assigning bool // every earlier worker has been heard, or waited for long enough
	Nodes     int  // that could work for the job, as far as is known

	shards  []shard.Info
	book    *book
	plan    *plan
	workers map[string]*Assignee
	retired map[string]bool // workers that must let go of what they have
	split   time.Time       // since when some workers' nodes can use the bucket, and some cannot
	known   map[string]bool // keys of the parts of earlier owners
}

// An Assignee is a worker of the job as its owner knows it.
type Assignee struct {
	Worker  string
	Address string // of its node; empty for the owner's own

	heard   time.Time
	last    *Heartbeat // its newest, but for the rows it names
	sent    int64      // number of the last batch of spans
	unseen  []Batch    // those that it has not said it received
	parts   map[string]*reported
	taken   int64 // number of the last batch of rows taken back
	revoked Revocation
}

// A reported part is one of which a worker has not heard yet that it may forget
// it.
type reported struct {
	Part
	acked bool
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
		shards: shards, book: b, plan: newPlan(shards, &b.free),
		workers: make(map[string]*Assignee), retired: make(map[string]bool), known: make(map[string]bool),
	}
	for _, p := range parts {
		o.known[p.Key] = true
	}
	return o, nil
}

// Hear takes a heartbeat in. It returns the parts in it that are new. A nil
// worker has to stop.
func (o *Owner) Hear(h *Heartbeat, now time.Time) (a *Assignee, parts []Proposal) {
	if o.retired[h.Worker] || !o.possible(h) {
		return nil, nil
	}
	if a = o.workers[h.Worker]; a == nil {
		if a = o.join(h); a == nil {
			o.retired[h.Worker] = true
			return nil, nil
		}
	}
	a.heard = now
	if a.last != nil && h.Number <= a.last.Number { // overtaken on its way
		return a, nil
	}
	newest := *h
	newest.Holds, newest.Back, newest.Parts = nil, nil, nil
	a.last = &newest
	a.unseen = slices.DeleteFunc(a.unseen, func(b Batch) bool { return b.Number <= h.Received })
	if h.Batch > a.taken {
		a.taken = h.Batch
		for _, s := range h.Back {
			o.book.release(a.Worker, s.Shard, s.Rows.Bitmap)
		}
	}
	return a, o.hearParts(a, h.Parts)
}

// Stranded are the workers whose nodes have not been able to use the bucket for
// as long as patience in which those of others were: what they have finished
// should not wait for them any longer. It is to be asked from time to time.
func (o *Owner) Stranded(patience time.Duration, now time.Time) (stranded []*Assignee) {
	for _, a := range o.Workers() {
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
func (o *Owner) Away() (count int) {
	for _, a := range o.workers {
		if a.away() > 0 {
			count++
		}
	}
	return count
}

// Waits is what all workers that have servers are kept waiting for, or the first
// of them where that differs; empty where one is not.
func (o *Owner) Waits() (waits string) {
	for _, a := range o.Workers() {
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
func (o *Owner) Done() bool {
	rows := int64(0)
	for _, s := range o.shards {
		rows += int64(s.Rows)
	}
	return o.book.committed.Count() == rows
}

func (a *Assignee) away() time.Duration {
	if a.last == nil {
		return 0
	}
	return time.Duration(a.last.Away) * time.Millisecond
}

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
		o.book.release(a.Worker, p.Shard, p.Rows.Bitmap)
		return Proposal{Worker: a.Worker, Part: p, Repeat: true}
	}
	o.book.write(p.Shard, p.Rows.Bitmap)
	rec := store.Part{Key: p.Key, Shard: p.Shard, Rows: int64(p.Rows.GetCardinality()), Totals: p.Totals, Size: p.Size}
	if rec.Complete = rec.Rows == int64(o.shards[p.Shard].Rows); !rec.Complete {
		rec.Accepted, _ = p.Rows.ToBytes() // writing to memory cannot fail
	}
	return Proposal{Worker: a.Worker, Part: p, Record: rec}
}

// possible reports whether all rows of a heartbeat are of the job.
func (o *Owner) possible(h *Heartbeat) bool {
	return o.plan.possibleAll(h.Holds) && o.plan.possibleAll(h.Back) &&
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
		free, done := o.book.free.In(n, rows), o.book.committed.In(n, rows)
		if free.GetCardinality()+done.GetCardinality() != rows.GetCardinality() {
			return nil
		}
	}
	for n, rows := range holds.shards {
		o.book.assign(h.Worker, n, o.book.free.In(n, rows))
	}
	a := &Assignee{Worker: h.Worker, Address: h.Address, parts: make(map[string]*reported)}
	o.workers[h.Worker] = a
	return a
}

// Committed notes that a part is recorded. It returns its worker, nil where
// that is gone.
func (o *Owner) Committed(worker string, p Part) *Assignee {
	o.book.commit(p.Shard, p.Rows.Bitmap)
	a := o.workers[worker]
	if a != nil && a.parts[p.Key] != nil {
		a.parts[p.Key].acked = true
	}
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

// spansPerBatch is how many spans a worker gets at a time: the one it works on
// and the next ones.
const spansPerBatch = 4

// Serve assigns rows to those who have room, and revokes some where a worker
// has nothing to do and another has rows waiting. It returns whose assignments
// have changed.
func (o *Owner) Serve() (changed []*Assignee) {
	if !o.Assigning {
		return nil
	}
	hungry := 0
	for _, a := range o.byNeed() {
		if a.last == nil || a.last.Leaves || len(a.unseen) > 0 || a.last.Ports == 0 || !a.last.Want {
			continue
		}
		if o.assign(a) {
			changed = append(changed, a)
		} else if a.last.Hungry {
			hungry++
		}
	}
	return append(changed, o.revoke(hungry)...)
}

// assign gives a worker its next spans; false when there are none.
func (o *Owner) assign(a *Assignee) bool {
	var spans []Span
	for most := o.most(a); most > 0 && len(spans) < spansPerBatch; {
		s, ok := o.plan.span(a.Worker, most)
		if !ok {
			break
		}
		o.book.assign(a.Worker, s.Shard, s.Rows())
		spans = append(spans, s)
		most -= s.Count()
	}
	if len(spans) == 0 {
		return false
	}
	a.sent++
	a.unseen = append(a.unseen, Batch{a.sent, spans})
	return true
}

// most is how many rows a worker may get now. One that has something to do gets
// no more than an equal share of all that is not written, with those who are on
// their way: when the owner dies nobody evens out who has how much.
func (o *Owner) most(a *Assignee) int {
	workers := max(o.Working(), o.Nodes)
	most := o.plan.share(workers)
	if a.last.Hungry || workers < 2 {
		return most
	}
	open := o.book.free.Count()
	for _, rows := range o.book.assigned {
		open += rows.Count()
	}
	if fair := open/int64(workers) - o.book.of(a.Worker).Count(); fair >= leastBatch {
		return int(min(int64(most), fair))
	}
	return 0
}

// Working is how many workers have engines and stay.
func (o *Owner) Working() (n int) {
	for _, a := range o.workers {
		if a.last != nil && a.last.Ports > 0 && !a.last.Leaves {
			n++
		}
	}
	return n
}

// leastRevoked is how many rows must wait with a worker to be worth a message.
const leastRevoked = 2

// revoke asks those back for rows who have most waiting, so that as many hungry
// workers get an equal share; and for all rows of a worker that has no engine
// while others have.
func (o *Owner) revoke(hungry int) (changed []*Assignee) {
	var most *Assignee
	for _, a := range o.Workers() {
		if a.last == nil || a.last.Leaves || a.last.Recalled < a.revoked.Number || a.last.Ready == 0 {
			continue
		}
		if a.last.Ports == 0 && o.Working() > 0 {
			a.revoked = Revocation{a.revoked.Number + 1, a.last.Ready}
			changed = append(changed, a)
			continue
		}
		if most == nil || a.last.Ready > most.last.Ready {
			most = a
		}
	}
	if hungry == 0 || len(changed) > 0 || most == nil || most.last.Ready < leastRevoked || !o.Exhausted() {
		return changed
	}
	most.revoked = Revocation{most.revoked.Number + 1, most.last.Ready * hungry / (hungry + 1)}
	return append(changed, most)
}

// Remove lets a worker go and frees its rows, but for those of parts that it
// has reported. It returns how many rows will be run again.
func (o *Owner) Remove(a *Assignee) (again int64) {
	o.plan.forget(a.Worker)
	delete(o.workers, a.Worker)
	o.retired[a.Worker] = true
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
	for _, a := range o.workers {
		if a.Address == address {
			return a
		}
	}
	return nil
}

// Exhausted reports whether no row is free.
func (o *Owner) Exhausted() bool { return o.plan.exhausted() }

// Workers are all workers, in an order that does not change.
func (o *Owner) Workers() []*Assignee {
	return slices.SortedFunc(maps.Values(o.workers), func(a, b *Assignee) int { return cmp.Compare(a.Worker, b.Worker) })
}

// byNeed are the workers, those who have nothing to do first.
func (o *Owner) byNeed() []*Assignee {
	all := o.Workers()
	slices.SortStableFunc(all, func(a, b *Assignee) int {
		switch hungry := a.last != nil && a.last.Hungry; {
		case hungry == (b.last != nil && b.last.Hungry):
			return 0
		case hungry:
			return -1
		}
		return 1
	})
	return all
}

// A Place is where a row is.
type Place struct {
	State  State  `json:"state"`
	Worker string `json:"worker,omitempty"` // it is assigned to
}

// Where says where a row of the job is, by its number in the input.
func (o *Owner) Where(row int64) (p Place) {
	n, found := slices.BinarySearchFunc(o.shards, row, func(s shard.Info, row int64) int {
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
		p.State, p.Worker = o.book.where(n, int(row-o.shards[n].First))
	}
	return p
}

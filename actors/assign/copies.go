package assign

import (
	"github.com/RoaringBitmap/roaring/v2"

	"github.com/rowmill/rowmill/internal/shard"
)

// copies tracks the rows that get the answer of an equal row. They are never assigned:
// the owner writes them, one shard at a time.
type copies struct {
	of      *shard.Copies // nil if there are none
	settled int           // in each shard before this one, all rows are committed or copies
	next    int           // the shards before this one have no more copies to write
}

// copiesAhead is the number of shards that a call of Copyable examines. Most originals
// are in the shard of their copies, or in a shard shortly before it.
const copiesAhead = 64

// Copies sets the copies of the whole input; nil means none. Rows that workers already
// have stay with them.
func (o *Owner) Copies(of *shard.Copies) {
	o.copies = copies{of: of}
	for n := range o.plan.shards {
		var rows *roaring.Bitmap
		if of != nil {
			rows = of.Rows(n)
		}
		o.states.setCopies(n, rows)
	}
	o.dueAll = true
}

// Copyable returns a shard, and its copies that can be written now: all their originals
// are committed. ok is false if there is no such shard.
func (o *Owner) Copyable() (n int, rows *roaring.Bitmap, ok bool) {
	c := &o.copies
	if c.of == nil || o.states.copies.Count() == 0 {
		return 0, nil, false
	}
	for c.settled < len(o.plan.shards) && o.answered(c.settled) {
		c.settled++
	}
	for c.next < len(o.plan.shards) && o.states.copies.of(c.next) == nil {
		c.next++
	}
	for n = c.next; n < min(c.next+copiesAhead, len(o.plan.shards)); n++ {
		if rows := o.states.copies.of(n); rows != nil && c.of.Last(n) < c.settled {
			return n, rows.Clone(), true
		}
	}
	return 0, nil, false
}

// answered reports whether all rows of shard n are committed, except copies.
func (o *Owner) answered(n int) bool {
	rows, done, copied := uint64(o.plan.shards[n].Rows), o.states.committed.of(n), o.copies.of.Rows(n) //nolint:gosec // a number of rows
	if done == nil {
		done = new(roaring.Bitmap)
	}
	if copied == nil {
		return done.GetCardinality() == rows
	}
	return done.GetCardinality()+copied.GetCardinality() >= rows && done.OrCardinality(copied) == rows
}

// Copied returns the proposal for a part with copies of a shard. It is a repeat if one of
// these rows is no longer a copy, because a worker has the row.
func (o *Owner) Copied(p Part) Proposal {
	if o.states.copies.in(p.Shard, p.Rows.Bitmap).GetCardinality() != p.Rows.GetCardinality() {
		return Proposal{Part: p, Repeat: true}
	}
	return o.proposal("", p)
}

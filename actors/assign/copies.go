package assign

import (
	"github.com/RoaringBitmap/roaring/v2"

	"github.com/rowmill/rowmill/internal/shard"
)

// copies are rows that are not assigned, but get the answers of others. The owner
// has them written itself, a shard at a time.
type copies struct {
	of      *shard.Copies // nil for none
	settled int           // of all shards before it every row but copies is committed
	next    int           // no shard before it has copies that are not written
}

// copiesAhead is how many shards are looked through for one whose copies can be
// written: the originals of most are of its own or of those just before.
const copiesAhead = 64

// Copies says which rows are copies, once that is known of the whole input; nil for
// none. What workers have is theirs.
func (o *Owner) Copies(of *shard.Copies) {
	o.copies = copies{of: of}
	for n := range o.plan.shards {
		var rows *roaring.Bitmap
		if of != nil {
			rows = of.Rows(n)
		}
		o.book.set(n, rows)
	}
	o.dueAll = true
}

// Copyable returns the copies of a shard whose originals are all committed; false
// where there are none now.
func (o *Owner) Copyable() (n int, rows *roaring.Bitmap, ok bool) {
	c := &o.copies
	if c.of == nil || o.book.copies.Count() == 0 {
		return 0, nil, false
	}
	for c.settled < len(o.plan.shards) && o.answered(c.settled) {
		c.settled++
	}
	for c.next < len(o.plan.shards) && o.book.copies.of(c.next) == nil {
		c.next++
	}
	for n = c.next; n < min(c.next+copiesAhead, len(o.plan.shards)); n++ {
		if rows := o.book.copies.of(n); rows != nil && c.of.Last(n) < c.settled {
			return n, rows.Clone(), true
		}
	}
	return 0, nil, false
}

// answered reports whether every row of a shard but copies is committed.
func (o *Owner) answered(n int) bool {
	rows, done, copied := uint64(o.plan.shards[n].Rows), o.book.committed.of(n), o.copies.of.Rows(n) //nolint:gosec // a number of rows
	if done == nil {
		done = new(roaring.Bitmap)
	}
	if copied == nil {
		return done.GetCardinality() == rows
	}
	return done.GetCardinality()+copied.GetCardinality() >= rows && done.OrCardinality(copied) == rows
}

// Copied turns a part with the copies of a shard into the record to commit, unless a
// worker has one of them after all.
func (o *Owner) Copied(p Part) Proposal {
	if o.book.copies.in(p.Shard, p.Rows.Bitmap).GetCardinality() != p.Rows.GetCardinality() {
		return Proposal{Part: p, Repeat: true}
	}
	return o.proposal("", p)
}

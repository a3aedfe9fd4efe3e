package assign

import (
	"github.com/RoaringBitmap/roaring/v2"

	"github.com/rowmill/rowmill/internal/shard"
)

// copyTracker tracks the copies: rows with the same text as an earlier row, the original. A
// copy gets the answer of its original. No worker runs copies: the owner writes them,
// one shard at a time.
type copyTracker struct {
	of      *shard.RowCopies // the copies of the whole input; nil if there are none
	settled int              // in all shards before this shard, each row is committed or a copy
	next    int              // no shard before this shard has copies that must still be written
}

// copiesAhead is the number of shards that one call of NextCopyableShard examines. Most
// originals are in the same shard as their copies, or a few shards earlier.
const copiesAhead = 64

// SetCopies sets which rows of the whole input are copies; of is nil if none are. A row
// that a worker already has stays with the worker, even if the row is a copy.
func (o *Owner) SetCopies(copies *shard.RowCopies) {
	o.copies = copyTracker{of: copies}
	for n := range o.plan.shards {
		var rows *roaring.Bitmap
		if copies != nil {
			rows = copies.Rows(n)
		}
		o.states.setCopies(n, rows)
	}
	o.dueAll = true
}

// NextCopyableShard returns a shard and its copies, if the owner can write these copies now: all
// their originals are committed. ok is false if there is no such shard.
func (o *Owner) NextCopyableShard() (n int, rows *roaring.Bitmap, ok bool) {
	c := &o.copies
	if c.of == nil || o.states.copies.Count() == 0 {
		return 0, nil, false
	}
	for c.settled < len(o.plan.shards) && o.isShardAnswered(c.settled) {
		c.settled++
	}
	for c.next < len(o.plan.shards) && o.states.copies.inShard(c.next) == nil {
		c.next++
	}
	for n = c.next; n < min(c.next+copiesAhead, len(o.plan.shards)); n++ {
		if rows := o.states.copies.inShard(n); rows != nil && c.of.LastOriginalShard(n) < c.settled {
			return n, rows.Clone(), true
		}
	}
	return 0, nil, false
}

// isShardAnswered reports whether every row of shard n is committed or a copy.
func (o *Owner) isShardAnswered(n int) bool {
	rows, done, copied := uint64(o.plan.shards[n].Rows), o.states.committed.inShard(n), o.copies.of.Rows(n) //nolint:gosec // a number of rows
	if done == nil {
		done = new(roaring.Bitmap)
	}
	if copied == nil {
		return done.GetCardinality() == rows
	}
	return done.GetCardinality()+copied.GetCardinality() >= rows && done.OrCardinality(copied) == rows
}

// ProposeCopies returns the proposal to commit part p, which holds copies of a shard. The
// proposal is a Repeat if a row of the part is no longer a copy, because a worker has
// got the row.
func (o *Owner) ProposeCopies(p Part) PartProposal {
	if o.states.copies.intersect(p.Shard, p.Rows.Bitmap).GetCardinality() != p.Rows.GetCardinality() {
		return PartProposal{Part: p, Repeat: true}
	}
	return o.acceptPart("", p)
}

package assign

import (
	"slices"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/rowmill/rowmill/internal/shard"
)

// A partition assigns rows so that rows with the same prefix run on one worker at about
// the same time. Each row has a group: rows with the same prefix are in the same group
// (see order.PrefixGrouper). A block is a range of consecutive shards. The rows of a block are
// divided into shares: a share has all rows of some groups. A worker gets all rows of
// one share, from all shards of the block, and then the next share. Blocks follow the
// order of the input. When every share of a block has a worker, the next block begins.
// At the end of a job several workers get rows of the same share.
type partition struct {
	free   *RowsByShard // the free rows of the job, shared with the plan
	shards []shard.ManifestEntry
	groups []byte // the group of each row, by the row's number in the job
	blocks []partitionBlock
	cursor map[string]shareID // by worker: the share from which the worker gets rows
}

// A partitionBlock is a block of a partition: a range of consecutive shards.
type partitionBlock struct {
	from, to int                   // shards; to is excluded
	shares   int                   // number of shares in the block
	numbers  [1 + shard.Groups]int // by group: the number of the share that has the group
	// rows has the rows of each share, by shard and then by number of the share. A shard
	// is added at its first use, and removed when it has no free rows.
	rows map[int][]*roaring.Bitmap
}

// shareID identifies one share: the index of its block, and its number in the block.
type shareID struct{ block, number int }

// shareBytes is the approximate size of the text of a share, in bytes. A worker loads 16
// MiB by default, so it has a whole share in memory. Group 0 has a share of its own.
const shareBytes = 4 << 20

// newPartition returns a partition of the shards whose rows all have groups.
func newPartition(shards []shard.ManifestEntry, free *RowsByShard, groups []byte) *partition {
	d := &partition{free: free, shards: shards, groups: groups, cursor: make(map[string]shareID)}
	for n := 0; n < len(shards) && shards[n].First+int64(shards[n].Rows) <= int64(len(groups)); {
		b := partitionBlock{from: n, rows: make(map[int][]*roaring.Bitmap)}
		var bytes int64
		for ; n < len(shards) && shards[n].First+int64(shards[n].Rows) <= int64(len(groups)) && (n == b.from || bytes+shards[n].Bytes <= shard.PartitionBytes); n++ {
			bytes += shards[n].Bytes
		}
		b.to = n
		b.shares = 1 + int(min(shard.Groups, max(1, (bytes+shareBytes-1)/shareBytes)))
		b.divide(groups[shards[b.from].First : shards[n-1].First+int64(shards[n-1].Rows)])
		d.blocks = append(d.blocks, b)
	}
	return d
}

// divide sets the share of each group. groups has the group of each row in the block.
// Each share gets consecutive groups, and about the same number of rows.
func (b *partitionBlock) divide(groups []byte) {
	var rows [1 + shard.Groups]int
	for _, group := range groups {
		rows[group]++
	}
	all, before := len(groups)-rows[0], 0
	for group := 1; group <= shard.Groups; group++ {
		middle := 2*before + rows[group]
		b.numbers[group] = 1 + min(b.shares-2, middle*(b.shares-1)/max(1, 2*all))
		before += rows[group]
	}
}

// nextRows returns free rows of one shard for a worker, and the number n of the shard. ok
// is false if the partition has no free row.
func (d *partition) nextRows(worker string) (n int, rows *roaring.Bitmap, ok bool) {
	if s, has := d.cursor[worker]; has {
		if n, rows, ok = d.firstFreeRows(s); ok {
			return n, rows, true
		}
		delete(d.cursor, worker)
	}
	s, ok := d.next()
	if !ok {
		return 0, nil, false
	}
	d.cursor[worker] = s
	return d.firstFreeRows(s)
}

// firstFreeRows returns the first shard in which share s has free rows, and these rows. ok is
// false if the share has no free rows.
func (d *partition) firstFreeRows(s shareID) (n int, rows *roaring.Bitmap, ok bool) {
	for n = d.blocks[s.block].from; n < d.blocks[s.block].to; n++ {
		if rows = d.freeRowsInShard(s, n); rows != nil {
			return n, rows, true
		}
	}
	return 0, nil, false
}

// freeRowsInShard returns the free rows of share s in shard n; nil if there are none.
func (d *partition) freeRowsInShard(s shareID, n int) *roaring.Bitmap {
	b, free := &d.blocks[s.block], d.free.inShard(n)
	if free == nil {
		delete(b.rows, n)
		return nil
	}
	if b.rows[n] == nil {
		b.rows[n] = d.splitShardByShare(b, n)
	}
	if own := b.rows[n][s.number]; own.Intersects(free) {
		return roaring.And(free, own)
	}
	return nil
}

// splitShardByShare returns the rows of each share of block b in shard n, by number of the
// share.
func (d *partition) splitShardByShare(b *partitionBlock, n int) []*roaring.Bitmap {
	shares := make([]*roaring.Bitmap, b.shares)
	for i := range shares {
		shares[i] = roaring.New()
	}
	first := d.shards[n].First
	for row, group := range d.groups[first : first+int64(d.shards[n].Rows)] {
		shares[b.numbers[group]].Add(uint32(row))
	}
	return shares
}

// next returns the share from which a worker should get rows next: the first share with
// free rows that no worker has, or else the share with the most free rows. It returns
// false if no row is free.
func (d *partition) next() (shareID, bool) {
	taken := make(map[shareID]bool, len(d.cursor))
	for _, s := range d.cursor {
		taken[s] = true
	}
	for i, b := range d.blocks {
		if !d.hasFree(b) {
			continue
		}
		for number := range b.shares {
			s := shareID{i, number}
			if taken[s] {
				continue
			}
			if _, _, ok := d.firstFreeRows(s); ok {
				return s, true
			}
		}
	}
	best, most := shareID{}, 0
	for s := range taken {
		if n := d.count(s); n > most || n == most && n > 0 && s.before(best) {
			best, most = s, n
		}
	}
	return best, most > 0
}

// before reports whether share s comes before another share in the order of the input.
func (s shareID) before(other shareID) bool {
	return s.block < other.block || s.block == other.block && s.number < other.number
}

// hasFree reports whether a block has free rows.
func (d *partition) hasFree(b partitionBlock) bool {
	for n := b.from; n < b.to; n++ {
		if d.free.inShard(n) != nil {
			return true
		}
	}
	return false
}

// count returns the number of free rows in share s.
func (d *partition) count(s shareID) (rows int) {
	b := &d.blocks[s.block]
	for n := b.from; n < b.to; n++ {
		if free := d.freeRowsInShard(s, n); free != nil {
			rows += int(free.GetCardinality())
		}
	}
	return rows
}

// lastShardInBlock returns the last shard of the block that contains shard n.
func (d *partition) lastShardInBlock(n int) int {
	i, _ := slices.BinarySearchFunc(d.blocks, n, func(b partitionBlock, n int) int { return b.to - 1 - n })
	return d.blocks[i].to - 1
}

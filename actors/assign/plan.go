package assign

import (
	"math"
	"slices"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/rowmill/rowmill/internal/shard"
)

// A spanPlanner chooses free rows for a worker. Each worker gets rows of one shard until the
// shard has no free rows, and then of another shard. So the parts of a worker have many
// rows of few shards. When every shard with free rows has a worker, the next worker
// gets rows of the shard with the most free rows. The worker itself decides which of
// its rows it sends first.
type spanPlanner struct {
	shards []shard.ManifestEntry
	free   *RowsByShard   // the free rows of the job
	begun  []bool         // by shard: a worker has got rows of the shard
	open   map[int]bool   // numbers of the shards that have begun and may have free rows
	next   int            // all shards before this shard have begun or have no free rows
	cursor map[string]int // by worker: the shard from which the worker gets rows
	// partition assigns rows by prefix, before the plan assigns other rows; nil if the job
	// assigns no rows by prefix.
	partition *partition
}

// targetSpan is the target size of the text in a span, in bytes. It is large enough
// that messages cost little compared with the work, and small enough that workers can
// share the last rows of a job.
const targetSpan = 256 << 10

// maxSpanRows is the maximum number of rows in a span. leastBatch is the smallest number
// of rows in an assignment, so that the owner sends no messages about single rows at the
// end of a job.
const (
	maxSpanRows = 1024
	leastBatch  = 4
)

// newSpanPlanner returns a plan for the free rows of shards.
func newSpanPlanner(shards []shard.ManifestEntry, free *RowsByShard) *spanPlanner {
	p := &spanPlanner{free: free, open: make(map[int]bool), cursor: make(map[string]int)}
	p.addShards(shards)
	return p
}

// addShards adds the next shards of the job.
func (p *spanPlanner) addShards(shards []shard.ManifestEntry) {
	p.shards, p.begun = append(p.shards, shards...), append(p.begun, make([]bool, len(shards))...)
}

// fairRowShare returns how many rows a worker may get at a time. With several workers this
// number is half of an equal share of the free rows, but at least leastBatch. So all
// workers finish at about the same time (guided self-scheduling, Polychronopoulos and
// Kuck 1987).
func (p *spanPlanner) fairRowShare(workers int) int {
	if workers < 2 {
		return math.MaxInt
	}
	return max(leastBatch, int(p.free.Count()/int64(2*workers)))
}

// nextSpan returns the next span for a worker, with at most this many rows; ok is false if
// no row is free. The caller must mark the rows as assigned.
func (p *spanPlanner) nextSpan(worker string, maxRows int) (RowSpan, bool) {
	if p.partition != nil {
		if n, free, ok := p.partition.nextRows(worker); ok {
			s := p.spanOf(n, free, maxRows)
			s.Block, s.Share = p.partition.lastShardInBlock(n), 1+p.partition.cursor[worker].number
			return s, true
		}
	}
	n, ok := p.shardFor(worker)
	if !ok {
		return RowSpan{}, false
	}
	return p.spanOf(n, p.free.inShard(n), maxRows), true
}

// spanOf returns a span with the first rows of free, at most this many. free has rows
// of shard n.
func (p *spanPlanner) spanOf(n int, free *roaring.Bitmap, maxRows int) RowSpan {
	rows := min(spanRows(p.shards[n]), maxRows, int(free.GetCardinality()))
	last, _ := free.Select(uint32(rows - 1)) // free has at least this many rows
	s := RowSpan{Shard: n, From: int(free.Minimum()), To: int(last) + 1, Of: p.shards[n]}
	if s.To-s.From > rows {
		except := s.Rows()
		except.AndNot(free)
		s.Except = NewRowSet(except)
	}
	return s
}

// spanRows returns the number of rows in a span of this shard.
func spanRows(s shard.ManifestEntry) int {
	if s.Bytes == 0 {
		return maxSpanRows
	}
	return int(max(1, min(maxSpanRows, targetSpan*int64(s.Rows)/s.Bytes)))
}

// shardFor returns the shard from which a worker gets its next rows. It returns false
// if no row is free.
func (p *spanPlanner) shardFor(worker string) (int, bool) {
	if p.exhausted() {
		return 0, false
	}
	if n, ok := p.cursor[worker]; ok && p.free.inShard(n) != nil {
		return n, true
	}
	n, ok := p.firstAbandonedShard()
	if !ok {
		n, ok = p.firstUntouchedShard()
	}
	if !ok {
		n = p.fullest()
	}
	p.markBegun(n)
	p.cursor[worker] = n
	return n, true
}

// firstAbandonedShard returns the first shard that has begun and has free rows, but has no
// worker. Its cost depends on the number of workers, not on the number of shards.
func (p *spanPlanner) firstAbandonedShard() (int, bool) {
	taken := make(map[int]bool, len(p.cursor))
	for _, n := range p.cursor {
		taken[n] = true
	}
	first, found := 0, false
	for n := range p.open {
		switch {
		case p.free.inShard(n) == nil:
			delete(p.open, n)
		case !taken[n] && (!found || n < first):
			first, found = n, true
		}
	}
	return first, found
}

// firstUntouchedShard returns the first shard that has free rows and that no worker has begun.
func (p *spanPlanner) firstUntouchedShard() (int, bool) {
	for ; p.next < len(p.shards); p.next++ {
		if !p.begun[p.next] && p.free.inShard(p.next) != nil {
			return p.next, true
		}
	}
	return 0, false
}

// fullest returns the shard with the most free rows.
func (p *spanPlanner) fullest() int {
	best, most := -1, 0
	for n := range p.free.shards {
		if have := p.free.countOf(n); have > most || have == most && n < best {
			best, most = n, have
		}
	}
	return best
}

// markBegun records that a worker has got rows of a shard or has given back rows of it.
func (p *spanPlanner) markBegun(shard int) { p.begun[shard], p.open[shard] = true, true }

// forget removes a worker, so that other workers can get the rest of its current shard.
func (p *spanPlanner) forget(worker string) {
	delete(p.cursor, worker)
	if p.partition != nil {
		delete(p.partition.cursor, worker)
	}
}

// exhausted reports whether no row is free.
func (p *spanPlanner) exhausted() bool { return p.free.Count() == 0 }

// rowsExist reports whether these rows of a shard exist in the job.
func (p *spanPlanner) rowsExist(shard int, rows *roaring.Bitmap) bool {
	return shard >= 0 && shard < len(p.shards) && !rows.IsEmpty() && int(rows.Maximum()) < p.shards[shard].Rows
}

// allRowsExist reports whether all rows in list exist in the job.
func (p *spanPlanner) allRowsExist(list []ShardRows) bool {
	return !slices.ContainsFunc(list, func(s ShardRows) bool { return !p.rowsExist(s.Shard, s.Rows.Bitmap) })
}

package assign

import (
	"math"
	"slices"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/rowmill/rowmill/internal/shard"
)

// A plan chooses free rows for a worker. Each worker gets rows of one shard until none is
// free, and then of another, so its parts hold many rows of few shards. When every shard
// with free rows has a worker, the next worker gets rows of the shard with the most free
// rows. The worker itself decides which of its rows it sends first.
type plan struct {
	shards    []shard.Info
	free      *Rows
	begun     []bool         // by shard: a worker has got rows of it
	open      map[int]bool   // shards that have begun and may have free rows
	next      int            // all shards before this one have begun or have no free rows
	cursor    map[string]int // by worker: the shard that it gets rows of
	partition *partition     // assigns rows by prefix, before the plan assigns other rows; nil for none
}

// targetSpan is the target size of a span in bytes of text: large enough that messages
// are small beside the work, small enough that workers can share the end of a job.
const targetSpan = 256 << 10

// maxSpanRows limits the rows of a span if rows are tiny. leastBatch is the smallest
// number of rows to assign, so that no messages about single rows are sent at the end of
// a job.
const (
	maxSpanRows = 1024
	leastBatch  = 4
)

// newPlan returns a plan for the free rows of shards.
func newPlan(shards []shard.Info, free *Rows) *plan {
	p := &plan{free: free, open: make(map[int]bool), cursor: make(map[string]int)}
	p.grow(shards)
	return p
}

// grow appends shards.
func (p *plan) grow(shards []shard.Info) {
	p.shards, p.begun = append(p.shards, shards...), append(p.begun, make([]bool, len(shards))...)
}

// share returns how many rows a worker may get at a time. With several workers this
// number is half of an equal share of the free rows, but at least leastBatch. So workers
// finish at about the same time (guided self-scheduling, Polychronopoulos and Kuck 1987).
func (p *plan) share(workers int) int {
	if workers < 2 {
		return math.MaxInt
	}
	return max(leastBatch, int(p.free.Count()/int64(2*workers)))
}

// span returns the next rows for a worker, at most this many; ok is false if no row is
// free. The caller assigns them.
func (p *plan) span(worker string, most int) (Span, bool) {
	if p.partition != nil {
		if n, free, ok := p.partition.rows(worker); ok {
			s := p.spanOf(n, free, most)
			s.Block, s.Share = p.partition.last(n), 1+p.partition.cursor[worker].number
			return s, true
		}
	}
	n, ok := p.shardFor(worker)
	if !ok {
		return Span{}, false
	}
	return p.spanOf(n, p.free.of(n), most), true
}

// spanOf returns a span with the first of the given free rows, at most this many.
func (p *plan) spanOf(n int, free *roaring.Bitmap, most int) Span {
	rows := min(spanRows(p.shards[n]), most, int(free.GetCardinality()))
	last, _ := free.Select(uint32(rows - 1)) // free has at least this many rows
	s := Span{Shard: n, From: int(free.Minimum()), To: int(last) + 1, Of: p.shards[n]}
	if s.To-s.From > rows {
		except := s.Rows()
		except.AndNot(free)
		s.Except = NewRowSet(except)
	}
	return s
}

// spanRows returns the number of rows in a span of this shard.
func spanRows(s shard.Info) int {
	if s.Bytes == 0 {
		return maxSpanRows
	}
	return int(max(1, min(maxSpanRows, targetSpan*int64(s.Rows)/s.Bytes)))
}

// shardFor returns a shard with free rows for a worker.
func (p *plan) shardFor(worker string) (int, bool) {
	if p.exhausted() {
		return 0, false
	}
	if n, ok := p.cursor[worker]; ok && p.free.of(n) != nil {
		return n, true
	}
	n, ok := p.abandoned()
	if !ok {
		n, ok = p.untouched()
	}
	if !ok {
		n = p.fullest()
	}
	p.touch(n)
	p.cursor[worker] = n
	return n, true
}

// abandoned returns the first shard that has begun and has free rows, but no worker. The
// cost depends on the number of workers, not on the number of shards.
func (p *plan) abandoned() (int, bool) {
	taken := make(map[int]bool, len(p.cursor))
	for _, n := range p.cursor {
		taken[n] = true
	}
	first, found := 0, false
	for n := range p.open {
		switch {
		case p.free.of(n) == nil:
			delete(p.open, n)
		case !taken[n] && (!found || n < first):
			first, found = n, true
		}
	}
	return first, found
}

// untouched returns the first shard with free rows that has not begun.
func (p *plan) untouched() (int, bool) {
	for ; p.next < len(p.shards); p.next++ {
		if !p.begun[p.next] && p.free.of(p.next) != nil {
			return p.next, true
		}
	}
	return 0, false
}

// fullest returns the shard with the most free rows.
func (p *plan) fullest() int {
	best, most := -1, 0
	for n := range p.free.shards {
		if have := p.free.countOf(n); have > most || have == most && n < best {
			best, most = n, have
		}
	}
	return best
}

// touch notes that a worker got rows of a shard or gave rows of it back.
func (p *plan) touch(shard int) { p.begun[shard], p.open[shard] = true, true }

// forget makes the current shard of a worker available to other workers.
func (p *plan) forget(worker string) {
	delete(p.cursor, worker)
	if p.partition != nil {
		delete(p.partition.cursor, worker)
	}
}

// exhausted reports whether no row is free.
func (p *plan) exhausted() bool { return p.free.Count() == 0 }

// possible reports whether these rows of a shard exist in the job.
func (p *plan) possible(shard int, rows *roaring.Bitmap) bool {
	return shard >= 0 && shard < len(p.shards) && !rows.IsEmpty() && int(rows.Maximum()) < p.shards[shard].Rows
}

// possibleAll does the same for rows of several shards.
func (p *plan) possibleAll(list []ShardRows) bool {
	return !slices.ContainsFunc(list, func(s ShardRows) bool { return !p.possible(s.Shard, s.Rows.Bitmap) })
}

package assign

import (
	"math"
	"slices"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/rowmill/rowmill/internal/shard"
)

// A plan chooses which of the free rows go to which worker. Each worker gets
// one shard after another, so that its parts hold many rows of few shards; when
// none is left that nobody has begun, it helps with the one of which most is
// free. Which of its rows a worker sends first is the worker's business.
type plan struct {
	shards []shard.Info
	free   *Rows
	begun  []bool         // per shard
	open   map[int]bool   // those begun that may have free rows
	next   int            // no shard before it is not begun
	cursor map[string]int // by worker: the shard it gets rows of
	deal   *deal          // of rows that go by their prefixes first; nil for none
}

// targetSpan is how many bytes of text a span aims at: enough to make the
// message small beside the work, little enough to share the end of a job.
const targetSpan = 256 << 10

// maxSpanRows bounds a span of tiny rows, leastBatch keeps what is assigned at
// the end of a job from becoming messages about single rows.
const (
	maxSpanRows = 1024
	leastBatch  = 4
)

// newPlan plans the free rows of shards.
func newPlan(shards []shard.Info, free *Rows) *plan {
	p := &plan{free: free, open: make(map[int]bool), cursor: make(map[string]int)}
	p.grow(shards)
	return p
}

// grow takes in shards that follow those there are.
func (p *plan) grow(shards []shard.Info) {
	p.shards, p.begun = append(p.shards, shards...), append(p.begun, make([]bool, len(shards))...)
}

// share is how many rows one of so many workers may get at a time: where there
// are several at most half of an equal share of what is free, so that they end
// together (guided self-scheduling, Polychronopoulos and Kuck 1987).
func (p *plan) share(workers int) int {
	if workers < 2 {
		return math.MaxInt
	}
	return max(leastBatch, int(p.free.Count()/int64(2*workers)))
}

// span returns the next rows for a worker, at most so many, or false when no
// row is free. Whoever asks assigns them.
func (p *plan) span(worker string, most int) (Span, bool) {
	if p.deal != nil {
		if n, free, ok := p.deal.rows(worker); ok {
			s := p.spanOf(n, free, most)
			s.Block, s.Share = p.deal.last(n), 1+p.deal.cursor[worker].number
			return s, true
		}
	}
	n, ok := p.shardFor(worker)
	if !ok {
		return Span{}, false
	}
	return p.spanOf(n, p.free.of(n), most), true
}

// spanOf is the first of some free rows of a shard, at most so many.
func (p *plan) spanOf(n int, free *roaring.Bitmap, most int) Span {
	rows := min(spanRows(p.shards[n]), most, int(free.GetCardinality()))
	last, _ := free.Select(uint32(rows - 1)) // there are that many
	s := Span{Shard: n, From: int(free.Minimum()), To: int(last) + 1, Of: p.shards[n]}
	if s.To-s.From > rows {
		except := s.Rows()
		except.AndNot(free)
		s.Except = NewRowSet(except)
	}
	return s
}

// spanRows is how many rows of a shard make a span.
func spanRows(s shard.Info) int {
	if s.Bytes == 0 {
		return maxSpanRows
	}
	return int(max(1, min(maxSpanRows, targetSpan*int64(s.Rows)/s.Bytes)))
}

// shardFor finds a shard with free rows for a worker.
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

// abandoned is the first begun shard with free rows of which no worker gets any. It
// costs as much as there are workers, however many shards there are.
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

// untouched is the first shard with free rows that is not begun.
func (p *plan) untouched() (int, bool) {
	for ; p.next < len(p.shards); p.next++ {
		if !p.begun[p.next] && p.free.of(p.next) != nil {
			return p.next, true
		}
	}
	return 0, false
}

// fullest is the shard with most free rows.
func (p *plan) fullest() int {
	best, most := -1, 0
	for n := range p.free.shards {
		if have := p.free.countOf(n); have > most || have == most && n < best {
			best, most = n, have
		}
	}
	return best
}

// touch notes that a worker has rows of a shard, or has given some back.
func (p *plan) touch(shard int) { p.begun[shard], p.open[shard] = true, true }

// forget lets others have the shard that a worker gets rows of.
func (p *plan) forget(worker string) {
	delete(p.cursor, worker)
	if p.deal != nil {
		delete(p.deal.cursor, worker)
	}
}

// exhausted reports whether no row is free.
func (p *plan) exhausted() bool { return p.free.Count() == 0 }

// possible reports whether some rows of a shard are of the job.
func (p *plan) possible(shard int, rows *roaring.Bitmap) bool {
	return shard >= 0 && shard < len(p.shards) && !rows.IsEmpty() && int(rows.Maximum()) < p.shards[shard].Rows
}

// possibleAll is the same of rows of several shards.
func (p *plan) possibleAll(list []ShardRows) bool {
	return !slices.ContainsFunc(list, func(s ShardRows) bool { return !p.possible(s.Shard, s.Rows.Bitmap) })
}

package actors

import (
	"maps"
	"math"
	"slices"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/rowmill/rowmill/shard"
)

// A span is a set of rows of one shard, dealt to one worker: those from from
// to to, but for some.
type span struct {
	Shard  int    `json:"shard"`
	From   int    `json:"from"` // relative to the shard's first row
	To     int    `json:"to"`   // excluded
	Except rowSet `json:"except"`
}

// rows are the rows of the span.
func (s span) rows() *roaring.Bitmap {
	rows := roaring.New()
	rows.AddRange(uint64(s.From), uint64(s.To))
	if s.Except.Bitmap != nil {
		rows.AndNot(s.Except.Bitmap)
	}
	return rows
}

// count is how many rows the span has.
func (s span) count() int {
	n := s.To - s.From
	if s.Except.Bitmap != nil {
		n -= int(s.Except.GetCardinality())
	}
	return n
}

// after is what is left of the span from a row on.
func (s span) after(row int) span {
	s.From = min(row, s.To)
	if s.Except.Bitmap != nil {
		rest := s.Except.Clone()
		rest.RemoveRange(0, uint64(s.From))
		s.Except = rowSet{rest}
	}
	return s
}

func (s span) has(row int) bool {
	return s.Except.Bitmap == nil || !s.Except.ContainsInt(row)
}

// A plan decides which rows go to which worker. Each worker is dealt one shard
// after another, so that its parts hold many rows of few shards; when none is
// left that nobody has begun, it helps with the one of which most is left.
// Which of its rows a worker sends first is the worker's business. It knows no
// actors.
type plan struct {
	shards []shard.Info
	done   []*roaring.Bitmap       // per shard, before this owner; nil for none
	begun  []bool                  // per shard
	next   int                     // no shard before it is not begun
	open   map[int]*roaring.Bitmap // rows not dealt, of shards that are begun
	cursor map[string]int          // by worker: the shard it is dealt from
	left   int64                   // rows not dealt
}

// targetSpan is how many bytes of text a span aims at: enough to make the
// message small beside the work, little enough to share the end of a job.
const targetSpan = 256 << 10

// maxSpanRows bounds a span of tiny rows, leastDeal keeps the deals at the end
// of a job from becoming messages about single rows.
const (
	maxSpanRows = 1024
	leastDeal   = 4
)

// newPlan plans the rows of shards that done does not hold.
func newPlan(shards []shard.Info, done []*roaring.Bitmap) *plan {
	p := &plan{
		shards: shards, done: done, begun: make([]bool, len(shards)),
		open: make(map[int]*roaring.Bitmap), cursor: make(map[string]int),
	}
	for n, info := range shards {
		p.left += int64(info.Rows)
		if done[n] != nil {
			p.left -= int64(done[n].GetCardinality())
		}
	}
	return p
}

// share is how many rows one of so many workers may be dealt at a time: where
// there are several at most half of an equal share of what is left, so that
// they end together (guided self-scheduling, Polychronopoulos and Kuck 1987).
func (p *plan) share(workers int) int {
	if workers < 2 {
		return math.MaxInt
	}
	return max(leastDeal, int(p.left/int64(2*workers)))
}

// deal returns the next span for a worker, of at most so many rows, or false
// when every row has been dealt.
func (p *plan) deal(worker string, most int) (span, bool) {
	n, ok := p.shardFor(worker)
	if !ok {
		return span{}, false
	}
	todo := p.open[n]
	have := int(todo.GetCardinality())
	rows := min(spanRows(p.shards[n]), most, have)
	last, _ := todo.Select(uint32(rows - 1)) // there are that many
	s := span{Shard: n, From: int(todo.Minimum()), To: int(last) + 1}
	if s.To-s.From > rows {
		except := roaring.New()
		except.AddRange(uint64(s.From), uint64(s.To))
		except.AndNot(todo)
		s.Except = newRowSet(except)
	}
	todo.RemoveRange(uint64(s.From), uint64(s.To))
	if rows == have {
		delete(p.open, n)
	}
	p.left -= int64(rows)
	return s, true
}

// shardFor finds a shard with rows for a worker.
func (p *plan) shardFor(worker string) (int, bool) {
	if p.exhausted() {
		return 0, false
	}
	if n, ok := p.cursor[worker]; ok && p.open[n] != nil {
		return n, true
	}
	n, ok := p.abandoned()
	if !ok {
		n, ok = p.untouched()
	}
	if !ok {
		n = p.fullest()
	}
	p.cursor[worker] = n
	return n, true
}

// abandoned is the first open shard that no worker is dealt from.
func (p *plan) abandoned() (int, bool) {
	taken := make(map[int]bool, len(p.cursor))
	for _, n := range p.cursor {
		taken[n] = true
	}
	for _, n := range slices.Sorted(maps.Keys(p.open)) {
		if !taken[n] {
			return n, true
		}
	}
	return 0, false
}

// untouched begins the next shard that has rows and is not begun.
func (p *plan) untouched() (int, bool) {
	for ; p.next < len(p.shards); p.next++ {
		if p.begin(p.next); p.open[p.next] != nil {
			p.next++
			return p.next - 1, true
		}
	}
	return 0, false
}

// begin opens a shard, once.
func (p *plan) begin(n int) {
	if p.begun[n] {
		return
	}
	p.begun[n] = true
	todo := roaring.New()
	todo.AddRange(0, uint64(p.shards[n].Rows))
	if p.done[n] != nil {
		todo.AndNot(p.done[n])
	}
	if !todo.IsEmpty() {
		p.open[n] = todo
	}
}

// fullest is the open shard with most rows left.
func (p *plan) fullest() int {
	best, most := -1, uint64(0)
	for n, todo := range p.open {
		if have := todo.GetCardinality(); have > most || have == most && n < best {
			best, most = n, have
		}
	}
	return best
}

// take marks rows as dealt that a worker has already, but for those that are
// done. It returns false, and takes none, where some were dealt to another.
func (p *plan) take(h holdings) bool {
	for n, rows := range h {
		p.begin(n)
		if p.done[n] != nil {
			rows.AndNot(p.done[n])
		}
		if todo := p.open[n]; !rows.IsEmpty() && (todo == nil || rows.AndCardinality(todo) != rows.GetCardinality()) {
			return false
		}
	}
	for n, rows := range h {
		if todo := p.open[n]; todo != nil {
			p.left -= int64(rows.GetCardinality())
			if todo.AndNot(rows); todo.IsEmpty() {
				delete(p.open, n)
			}
		}
	}
	return true
}

// giveBack makes rows that were dealt available again.
func (p *plan) giveBack(shard int, rows *roaring.Bitmap) {
	if rows.IsEmpty() {
		return
	}
	todo := p.open[shard]
	if todo == nil {
		todo = roaring.New()
		p.open[shard] = todo
	}
	before := todo.GetCardinality()
	todo.Or(rows)
	p.left += int64(todo.GetCardinality() - before)
}

// forget lets others have the shard that a worker was dealt from.
func (p *plan) forget(worker string) { delete(p.cursor, worker) }

// exhausted reports whether every row has been dealt.
func (p *plan) exhausted() bool { return p.left == 0 }

// spanRows is how many rows of a shard make a span.
func spanRows(s shard.Info) int {
	if s.Bytes == 0 {
		return maxSpanRows
	}
	return int(max(1, min(maxSpanRows, targetSpan*int64(s.Rows)/s.Bytes)))
}

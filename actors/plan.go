package actors

import "github.com/RoaringBitmap/roaring/v2"

// A span is a range of rows of one shard, dealt to one shard actor.
type span struct {
	shard    int
	from, to int             // rows relative to the shard's first, to excluded
	done     *roaring.Bitmap // rows of the shard done before this owner, nil for none
	last     bool            // no further span of this shard follows
}

// A plan decides which rows go to which worker. It deals the shards in order,
// each in spans, and leaves out what was done before. Which of its rows a
// worker sends first is the worker's business. It knows no actors.
type plan struct {
	shards []shardInfo
	done   []*roaring.Bitmap // per shard; nil for none
	shard  int               // the shard being dealt
	row    int               // its next row
	left   int64             // rows not yet dealt, those done before included
}

// targetSpan is how many bytes of text a span aims at: enough to make the
// message small beside the work, little enough to share the end of a job.
const targetSpan = 256 << 10

// maxSpanRows bounds a span of tiny rows, minSpanRows keeps the spans at the
// end of a job from becoming messages about single rows.
const (
	maxSpanRows = 1024
	minSpanRows = 16
)

// newPlan plans the rows of shards that done does not hold.
func newPlan(shards []shardInfo, done []*roaring.Bitmap) *plan {
	p := &plan{shards: shards, done: done}
	for _, info := range shards {
		p.left += int64(info.Rows)
	}
	p.skipDone()
	return p
}

// deal returns the next span, or false when every row has been dealt. Where
// several workers share the job, a deal of spansPerDeal spans takes at most half
// of an equal share of what is left, so that they end together (guided self-scheduling,
// Polychronopoulos and Kuck 1987).
func (p *plan) deal(workers int) (span, bool) {
	if p.exhausted() {
		return span{}, false
	}
	info := p.shards[p.shard]
	rows := info.spanRows()
	if workers > 1 {
		rows = min(rows, max(minSpanRows, int(p.left/int64(2*workers*spansPerDeal))))
	}
	s := span{shard: p.shard, from: p.row, to: min(p.row+rows, info.Rows), done: p.done[p.shard]}
	p.left -= int64(s.to - p.row)
	p.row = s.to
	dealing := p.shard
	p.skipDone()
	s.last = p.shard != dealing
	return s, true
}

// exhausted reports whether every row has been dealt.
func (p *plan) exhausted() bool { return p.shard >= len(p.shards) }

// skipDone moves to the next row that is not done.
func (p *plan) skipDone() {
	for p.shard < len(p.shards) {
		rows, done := p.shards[p.shard].Rows, p.done[p.shard]
		for p.row < rows && done != nil && done.ContainsInt(p.row) {
			p.row++
			p.left--
		}
		if p.row < rows {
			return
		}
		p.shard, p.row = p.shard+1, 0
	}
}

func (s shardInfo) spanRows() int {
	if s.Bytes == 0 {
		return maxSpanRows
	}
	return int(max(1, min(maxSpanRows, targetSpan*int64(s.Rows)/s.Bytes)))
}

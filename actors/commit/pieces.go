package commit

import "github.com/rowmill/rowmill/store"

// A ShardRange is a range of shards whose complete parts are joined into one part. From is
// included, and To is excluded.
type ShardRange struct{ From, To int }

// JoinSizes limits the size of a piece: an object that joins several parts. Pieces should
// be long, because some buckets can copy only long ranges without a download. Parts are joined while the job runs, so
// that little work remains after the last row. With the zero value no parts are joined.
type JoinSizes struct {
	// Least is the minimum size of a piece in bytes. Consecutive parts with a smaller
	// total are not joined.
	Least int64
	// Most is the maximum size of a piece in bytes. It shrinks near the end of the job,
	// down to an eighth, because the result waits for pieces that are still being joined.
	Most int64
}

// nearEnd makes pieces smaller near the end of a job. A piece has at most 1/nearEnd of
// the remaining bytes, but at least 1/nearEnd of JoinSizes.Most.
const nearEnd = 8

// pieceShards is the maximum number of shards in a piece, because the parts of all
// these shards are open while the piece is made.
const pieceShards = maxOpen

// joinPlan decides which shards are joined into one part.
type joinPlan struct {
	sizes JoinSizes
	parts []shardJoinState    // by shard
	bytes int64               // total size of all complete parts
	rows  int64               // number of rows in all complete parts
	left  int64               // number of rows of the job that are in no piece
	made  map[int]joinedRange // the pieces that are made, by their first shard
	begun int                 // number of pieces that are being made
	ended bool                // cutRemaining was called: no more pieces begin
}

// A shardJoinState is the state of one shard in a joinPlan.
type shardJoinState struct {
	size, rows int64 // size in bytes and rows of the complete part; 0 if there is none
	taken      bool  // the shard is in a piece
}

// A joinedRange is a range of shards and the part into which they were joined.
type joinedRange struct {
	ShardRange
	part store.Part
}

// newJoinPlan returns the pieces of a job with this many shards and rows.
func newJoinPlan(sizes JoinSizes, shards int, rows int64) joinPlan {
	return joinPlan{sizes: sizes, parts: make([]shardJoinState, shards), left: rows, made: make(map[int]joinedRange)}
}

// addCompletePart records that a shard has a complete part, and returns the pieces that can be
// made now.
func (p *joinPlan) addCompletePart(part store.Part) (cut []ShardRange) {
	s := &p.parts[part.Shard]
	if p.sizes.Most == 0 || s.size > 0 {
		return nil
	}
	s.size, s.rows = part.Size, part.Rows
	p.bytes, p.rows = p.bytes+part.Size, p.rows+part.Rows
	if run, size := p.freeRangeAround(part.Shard); size >= p.target() || run.To-run.From >= pieceShards {
		cut = p.cutRange(cut, run, size)
	}
	return cut
}

// target returns the size in bytes that the next piece should have.
func (p *joinPlan) target() int64 {
	left := float64(p.left) * float64(p.bytes) / float64(p.rows)
	return max(min(int64(left)/nearEnd, p.sizes.Most), p.sizes.Most/nearEnd, p.sizes.Least)
}

// freeRangeAround returns the longest range of shards around shard n that all have
// complete parts and are in no piece, and the total size of these parts in bytes.
func (p *joinPlan) freeRangeAround(n int) (run ShardRange, size int64) {
	free := func(i int) bool { return p.parts[i].size > 0 && !p.parts[i].taken }
	run = ShardRange{n, n}
	for run.From > 0 && free(run.From-1) {
		run.From--
	}
	for run.To < len(p.parts) && free(run.To) {
		run.To++
	}
	for _, s := range p.parts[run.From:run.To] {
		size += s.size
	}
	return run, size
}

// cutRemaining returns the pieces of the remaining shards at the end of the job. It returns
// none if it was called before.
func (p *joinPlan) cutRemaining() (cut []ShardRange) {
	if p.ended || p.sizes.Most == 0 {
		return nil
	}
	p.ended = true
	for n := 0; n < len(p.parts); n++ {
		if run, size := p.freeRangeAround(n); run.To > n {
			if size >= p.sizes.Least {
				cut = p.cutRange(cut, run, size)
			}
			n = run.To
		}
	}
	return cut
}

// cutRange divides the shards of run into pieces of about the target size, and appends the
// pieces to cut. size is the total size of the shards' parts in bytes.
func (p *joinPlan) cutRange(cut []ShardRange, run ShardRange, size int64) []ShardRange {
	pieces := max(1, size/p.target())
	for from := run.From; from < run.To; {
		one, has := ShardRange{from, from}, int64(0)
		for one.To < run.To && one.To-one.From < pieceShards && (has < size/pieces || one.To == from) {
			has += p.parts[one.To].size
			p.left -= p.parts[one.To].rows
			p.parts[one.To].taken = true
			one.To++
		}
		p.begun++
		cut, from = append(cut, one), one.To
	}
	return cut
}

// recordJoined records the part into which the shards of a piece were joined.
func (p *joinPlan) recordJoined(at ShardRange, part store.Part) {
	p.made[at.From] = joinedRange{at, part}
	p.begun--
}

// collectParts returns the parts of all shards in order. parts returns the parts of a single
// shard. The joined part of a piece replaces the parts of the piece's shards.
func (p *joinPlan) collectParts(parts func(shard int) []store.Part) (all []store.Part) {
	for n := 0; n < len(p.parts); {
		if made, ok := p.made[n]; ok {
			all, n = append(all, made.part), made.To
			continue
		}
		all, n = append(all, parts(n)...), n+1
	}
	return all
}

package order

import (
	"math"

	"github.com/rowmill/rowmill/internal/shard"
)

// Groups finds out, while the rows of a job are read, whether it pays to deal
// them to workers by the prefixes of their texts, and says of each row to which
// group it belongs. What a worker has loaded it orders by itself; groups are for
// prefixes whose rows lie further apart than that.
type Groups struct {
	limit   int // groups are kept of so many rows
	sample  [][levels]uint64
	bytes   int64 // of the sample
	level   [levels]sketch
	decided bool
	depth   int // the level chosen; none where rows stay in the order of the input
	groups  []byte
}

// A sketch is what the sample says of one length of prefix.
type sketch struct {
	rows    int // long enough
	returns int // rows whose prefix was seen before, but not just before
	last    uint64
	hashes  map[uint64]struct{}
}

const (
	// heldBytes is what a worker has loaded: a quarter of the default memory of a
	// node. Within it rows are in order without being dealt.
	heldBytes = 16 << 20
	// maxGrouped bounds the rows that are dealt by groups, the others follow in
	// the order of the input: an owner has a byte of each in memory.
	maxGrouped = 8 << 20
)

// NewGroups returns Groups that have seen no row.
func NewGroups() *Groups {
	g := &Groups{limit: maxGrouped, depth: none}
	for i := range g.level {
		g.level[i].hashes = make(map[uint64]struct{})
	}
	return g
}

// Add takes in the text of the next row.
func (g *Groups) Add(text string) {
	if g.decided {
		if g.depth != none && len(g.groups) < g.limit {
			g.groups = append(g.groups, g.group(text))
		}
		return
	}
	g.bytes += int64(len(text))
	var hashes [levels]uint64
	walk(text, levels-1, func(level int, h uint64) {
		hashes[level] = h
		s := &g.level[level]
		s.rows++
		if _, again := s.hashes[h]; again && h != s.last {
			s.returns++
		}
		s.last = h
		s.hashes[h] = struct{}{}
	})
	if g.sample = append(g.sample, hashes); len(g.sample) == sampleRows {
		g.decide(math.MaxInt)
	}
}

// Decided reports whether enough rows were added to know, and whether rows are dealt
// by groups.
func (g *Groups) Decided() (decided, dealt bool) { return g.decided, g.depth != none }

// Rows returns the group of each row that was added, or of the first of very
// many; nil where dealing by groups saves nothing.
func (g *Groups) Rows() []byte {
	if !g.decided {
		g.decide(len(g.sample))
	}
	return g.groups
}

// decide chooses the length of prefix of which dealing saves the most in an input
// of total rows, if that is worth it.
func (g *Groups) decide(total int) {
	g.decided = true
	n := float64(len(g.sample))
	mean := float64(g.bytes) / n
	held, block := math.Min(float64(total), heldBytes/mean), math.Min(float64(total), shard.DealtBytes/mean)
	best := worthwhile
	for i := range g.level {
		length := float64(int64(shortest) << i)
		if saved := g.level[i].saves(length, held/n, block/n) * length / mean / n; saved > best {
			best, g.depth = saved, i
		}
	}
	if g.depth != none {
		g.groups = make([]byte, len(g.sample))
		for i, hashes := range g.sample {
			g.groups[i] = groupOf(hashes[g.depth])
		}
	}
	g.sample = nil
	for i := range g.level {
		g.level[i].hashes = nil
	}
}

// saves estimates of how many of the sample's rows the prefix, of that length in
// bytes, need not be computed where rows are dealt within a block, beyond those
// that a worker finds among what it holds. Both are given in sizes of the sample.
func (s *sketch) saves(length, held, block float64) float64 {
	distinct := float64(len(s.hashes))
	repeats := float64(s.rows) - distinct
	if repeats <= 0 {
		return 0
	}
	rows := float64(s.rows)
	prefixes := population(rows, distinct)
	if prefixes*length <= assumedCache/2 {
		return 0
	}
	// Rows that follow one of the same prefix are together already.
	return rows * (first(prefixes, rows*held) - first(prefixes, rows*block)) * float64(s.returns) / repeats
}

// first is the share of n rows that are the first of their prefix, of so many
// equally frequent ones.
func first(prefixes, n float64) float64 { return prefixes / n * -math.Expm1(-n/prefixes) }

// population is how many equally frequent prefixes there are where n rows have so
// many distinct ones, fewer than n.
func population(n, distinct float64) float64 {
	low, high := distinct, n*n // n*n: half a repetition is expected
	for range 64 {
		middle := math.Sqrt(low * high)
		if first(middle, n)*n < distinct {
			low = middle
		} else {
			high = middle
		}
	}
	return low
}

func (g *Groups) group(text string) (group byte) {
	if len(text) >= shortest<<g.depth {
		walk(text, g.depth, func(_ int, h uint64) { group = groupOf(h) })
	}
	return group
}

// groupOf is the group of a prefix; hash is 0 where there is none.
func groupOf(hash uint64) byte {
	if hash == 0 {
		return 0
	}
	return byte(1 + hash>>8%shard.Groups) // the lowest bit of each hash is set
}

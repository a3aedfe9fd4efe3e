package order

import (
	"math"

	"github.com/rowmill/rowmill/internal/shard"
)

// Groups decides, while the rows of a job are read, whether the owner should assign rows
// to workers by prefix. If so, it gives each row a group, so that rows with the same
// prefix are in the same group. A worker orders its loaded rows itself. Groups are for
// rows with the same prefix that are further apart in the input.
type Groups struct {
	limit   int // largest number of rows with groups
	sample  [][levels]uint64
	bytes   int64 // size of the sample
	level   sketches
	decided bool
	depth   int // the chosen level; none if rows stay in input order
	groups  []byte
}

const (
	// heldBytes is the approximate size of a worker's loaded rows: a quarter of the
	// default memory of a node. Rows within this distance need no groups, because the
	// worker orders them.
	heldBytes = 16 << 20
	// maxGrouped limits the rows with groups; later rows follow in input order. An owner
	// has one byte for each row in memory.
	maxGrouped = 8 << 20
)

// NewGroups returns Groups that have seen no row.
func NewGroups() *Groups { return &Groups{limit: maxGrouped, depth: none} }

// Add adds the text of the next row.
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
		g.level[level].add(h)
	})
	if g.sample = append(g.sample, hashes); len(g.sample) == sampleRows {
		g.decide(math.MaxInt)
	}
}

// Decided reports whether enough rows were added for the decision, and whether rows
// should be assigned by groups (dealt).
func (g *Groups) Decided() (decided, dealt bool) { return g.decided, g.depth != none }

// Rows returns the group of each added row, up to the limit; nil if groups would save too
// little.
func (g *Groups) Rows() []byte {
	if !g.decided {
		g.decide(len(g.sample))
	}
	return g.groups
}

// decide chooses the length of prefix that saves the most in an input of total rows, if
// the saving is large enough.
func (g *Groups) decide(total int) {
	g.decided = true
	n := float64(len(g.sample))
	mean := float64(g.bytes) / n
	held, block := math.Min(float64(total), heldBytes/mean), math.Min(float64(total), shard.PartitionBytes/mean)
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
	g.level.release()
}

// saves estimates how many rows of the sample need no computation of their prefix if rows
// are assigned by groups within a block, in addition to the rows that the order of a
// worker's loaded rows saves. length is the size of the prefix in bytes. held is the size
// of a worker's loaded rows, and block the size of a block, in multiples of the sample.
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
	// A row directly after a row with the same prefix saves nothing: it does not count in
	// returns.
	return rows * (first(prefixes, rows*held) - first(prefixes, rows*block)) * float64(s.returns) / repeats
}

// first returns the fraction of n rows that are the first with their prefix, for this
// number of equally frequent prefixes.
func first(prefixes, n float64) float64 { return prefixes / n * -math.Expm1(-n/prefixes) }

// population returns the number of equally frequent prefixes for which n rows have this
// many distinct prefixes, fewer than n.
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

// group returns the group of a text, at the chosen length of prefix.
func (g *Groups) group(text string) (group byte) {
	if len(text) >= shortest<<g.depth {
		walk(text, g.depth, func(_ int, h uint64) { group = groupOf(h) })
	}
	return group
}

// groupOf returns the group of a prefix; hash is 0 if there is no prefix.
func groupOf(hash uint64) byte {
	if hash == 0 {
		return 0
	}
	return byte(1 + hash>>8%shard.Groups) // the lowest bit of each hash is set
}

package order

import (
	"math"

	"github.com/rowmill/rowmill/internal/shard"
)

// PrefixGrouper decides, while the rows of a job are read, whether the owner should assign
// rows to workers by prefix. If so, it gives each row a group: rows with the same
// prefix are in the same group. A worker orders the rows that it has loaded itself.
// So rows with the same prefix run together even if they are far apart in the input.
type PrefixGrouper struct {
	limit   int              // maximum number of rows with groups
	sample  [][levels]uint64 // by row: hash of its prefix of each level; 0 if the row is shorter
	bytes   int64            // size of the sample's texts in bytes
	level   sketches         // data about the sample, by level
	decided bool             // decide was called
	depth   int              // the chosen level (length of prefix); none if rows stay in input order
	groups  []byte           // the group of each row so far
}

const (
	// heldBytes is the approximate size of the rows that a worker has loaded: a quarter of
	// the default memory of a node. Rows within this distance need no groups, because the
	// worker orders its loaded rows itself.
	heldBytes = 16 << 20
	// maxGrouped is the maximum number of rows with groups. Later rows run in input order.
	// An owner needs one byte of memory for each row with a group.
	maxGrouped = 8 << 20
)

// NewPrefixGrouper returns a PrefixGrouper before the first row.
func NewPrefixGrouper() *PrefixGrouper { return &PrefixGrouper{limit: maxGrouped, depth: none} }

// Add adds the text of the next row of the input.
func (g *PrefixGrouper) Add(text string) {
	if g.decided {
		if g.depth != none && len(g.groups) < g.limit {
			g.groups = append(g.groups, g.group(text))
		}
		return
	}
	g.bytes += int64(len(text))
	var hashes [levels]uint64
	hashPrefixes(text, levels-1, func(level int, h uint64) {
		hashes[level] = h
		g.level[level].add(h)
	})
	if g.sample = append(g.sample, hashes); len(g.sample) == sampleRows {
		g.decide(math.MaxInt)
	}
}

// Decided reports whether the PrefixGrouper has seen enough rows to decide, and whether it
// decided that rows are assigned by groups (byPrefix).
func (g *PrefixGrouper) Decided() (decided, byPrefix bool) { return g.decided, g.depth != none }

// RowGroups returns the group of each added row, up to the limit. It returns nil if groups
// would save too little.
func (g *PrefixGrouper) RowGroups() []byte {
	if !g.decided {
		g.decide(len(g.sample))
	}
	return g.groups
}

// decide chooses the length of prefix that saves the most computation in an input of
// total rows. It chooses none if no length saves enough.
func (g *PrefixGrouper) decide(total int) {
	g.decided = true
	n := float64(len(g.sample))
	mean := float64(g.bytes) / n
	held, block := math.Min(float64(total), heldBytes/mean), math.Min(float64(total), shard.PartitionBytes/mean)
	best := worthwhile
	for i := range g.level {
		length := float64(int64(shortest) << i)
		if saved := g.level[i].estimateSavings(length, held/n, block/n) * length / mean / n; saved > best {
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

// estimateSavings estimates for how many rows of the sample servers need not compute the prefix
// if rows are assigned by groups within a block. Rows that already benefit because the
// worker orders its loaded rows do not count. length is the size of the prefix in
// bytes. held is the number of rows that a worker has loaded, and block is the number
// of rows in a block, both in multiples of the sample.
func (s *sketch) estimateSavings(length, held, block float64) float64 {
	distinct := float64(len(s.hashes))
	repeats := float64(s.rows) - distinct
	if repeats <= 0 {
		return 0
	}
	rows := float64(s.rows)
	prefixes := estimatePrefixCount(rows, distinct)
	if prefixes*length <= assumedCache/2 {
		return 0
	}
	// A row directly after a row with the same prefix saves nothing, so it does not count in
	// returns.
	return rows * (firstFraction(prefixes, rows*held) - firstFraction(prefixes, rows*block)) * float64(s.returns) / repeats
}

// firstFraction returns the expected fraction of n rows that are the first row with their
// prefix, if there are this many prefixes, all equally frequent.
func firstFraction(prefixes, n float64) float64 { return prefixes / n * -math.Expm1(-n/prefixes) }

// estimatePrefixCount returns the number of equally frequent prefixes for which n rows are
// expected to have this many distinct prefixes. distinct must be less than n.
func estimatePrefixCount(n, distinct float64) float64 {
	low, high := distinct, n*n // with n*n prefixes, half a repetition is expected
	for range 64 {
		middle := math.Sqrt(low * high)
		if firstFraction(middle, n)*n < distinct {
			low = middle
		} else {
			high = middle
		}
	}
	return low
}

// group returns the group of a text by its prefix of the chosen length; 0 if the text
// is shorter.
func (g *PrefixGrouper) group(text string) (group byte) {
	if len(text) >= shortest<<g.depth {
		hashPrefixes(text, g.depth, func(_ int, h uint64) { group = groupOf(h) })
	}
	return group
}

// groupOf returns the group of the prefix with this hash; 0 if hash is 0, which means
// no prefix.
func groupOf(hash uint64) byte {
	if hash == 0 {
		return 0
	}
	return byte(1 + hash>>8%shard.Groups) // without the lowest byte: the lowest bit of each hash is 1
}

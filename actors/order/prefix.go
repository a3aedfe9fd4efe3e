package order

import "github.com/cespare/xxhash/v2"

// prefixSampler finds the length of prefix at which a job's texts share the most bytes, if
// it saves work to send rows with the same prefix together. It examines a sample of the
// rows, and the lengths 256 bytes times powers of two.
type prefixSampler struct {
	cache int64 // size of a server's prefix cache, in bytes of text
	many  bool  // rows are assigned by prefix: the job has more prefixes than are loaded at a time
	depth int   // the chosen level; none if sending rows together saves too little

	seen  int   // number of rows in the sample
	bytes int64 // size of the sample's texts in bytes
	level sketches
}

// sketches has the data of a sample about each length of prefix, by level.
type sketches [levels]sketch

// A sketch has the data of a sample about one length of prefix.
type sketch struct {
	rows    int                 // number of rows at least as long as the prefix
	returns int                 // rows with an earlier row's prefix, but not that of the row before
	last    uint64              // hash of the last row's prefix
	hashes  map[uint64]struct{} // hashes of all prefixes
}

// add adds a row whose prefix has this hash.
func (s *sketch) add(hash uint64) {
	s.rows++
	if s.hashes == nil {
		s.hashes = make(map[uint64]struct{})
	}
	if _, again := s.hashes[hash]; again && hash != s.last {
		s.returns++
	}
	s.last = hash
	s.hashes[hash] = struct{}{}
}

// isGrouped reports whether there are several prefixes, and rows with the same prefix mostly
// come one after another.
func (s *sketch) isGrouped() bool {
	return len(s.hashes) > 1 && 2*s.returns < s.rows-len(s.hashes)
}

// release frees the memory of the hashes.
func (s *sketches) release() {
	for i := range s {
		s[i].hashes = nil
	}
}

const (
	levels     = 9    // lengths of prefix: 256 bytes to 64 KiB, each twice the one before
	shortest   = 256  // the shortest length of prefix, in bytes
	none       = -1   // the level if no length is chosen
	sampleRows = 4096 // maximum number of rows in a sample
	// firstLook is the number of rows after which the sample is first evaluated. The sample is
	// evaluated again each time the number of rows has doubled.
	firstLook = 128
	// worthwhile is the minimum saving, as a fraction of all bytes of the sample.
	worthwhile = 0.1
	// assumedCache is the assumed size in bytes of a server's cache if the server does not
	// report it: 128k tokens of 4 bytes.
	assumedCache = 512 << 10
)

// newPrefixSampler returns a prefixes before the first row.
func newPrefixSampler() *prefixSampler { return &prefixSampler{cache: assumedCache, depth: none} }

// addSample adds a text to the sample. It returns the hash of the text's prefix, as the
// method hash does. changed means that another length of prefix was chosen.
func (p *prefixSampler) addSample(text string) (hash uint64, changed bool) {
	if p.seen >= sampleRows {
		return p.hash(text), false
	}
	p.seen++
	p.bytes += int64(len(text))
	hashPrefixes(text, levels-1, func(level int, h uint64) {
		p.level[level].add(h)
		if level == p.depth {
			hash = h
		}
	})
	if p.seen >= firstLook && p.seen&(p.seen-1) == 0 {
		before := p.depth
		p.choose()
		changed = p.depth != before
	}
	if p.seen == sampleRows {
		p.level.release()
	}
	return hash, changed
}

// hashPrefixes calls f with the hash of each prefix of text, from level 0 up to level last. A
// hash is never 0. Hashes are the same on all nodes, so each node that reads an input
// gets the same groups.
func hashPrefixes(text string, last int, f func(level int, hash uint64)) {
	var hash uint64
	from := 0
	for level := range last + 1 {
		to := shortest << level
		if len(text) < to {
			return
		}
		hash = hash*0x9E3779B97F4A7C15 + xxhash.Sum64String(text[from:to]) | 1
		f(level, hash)
		from = to
	}
}

// choose chooses the prefix length at which ordered rows save the most computed tokens. If
// all prefixes of a length fit into a server's cache, the order of rows saves nothing,
// unless they come grouped: then a server would take several rows of a prefix at once and
// compute the prefix for each of them.
func (p *prefixSampler) choose() {
	p.depth = none
	best := worthwhile * float64(p.bytes)
	for i := range p.level {
		s := &p.level[i]
		length := int64(shortest) << i
		distinct := int64(len(s.hashes))
		if !p.many && distinct*length <= p.cache/2 && !s.isGrouped() {
			continue
		}
		if saved := float64(int64(s.rows)-distinct) * float64(length); saved > best {
			best, p.depth = saved, i
		}
	}
}

// hash returns the hash of a text's prefix of the chosen length; 0 if the text is
// shorter or no length is chosen.
func (p *prefixSampler) hash(text string) (hash uint64) {
	if p.depth == none || len(text) < shortest<<p.depth {
		return 0
	}
	hashPrefixes(text, p.depth, func(_ int, h uint64) { hash = h })
	return hash
}

// rotationSize returns the maximum number of groups in a rotation.
func (p *prefixSampler) rotationSize() int {
	length := int64(shortest) << max(p.depth, 0)
	return int(min(max(p.cache/4/length, leastRotated), mostRotated))
}

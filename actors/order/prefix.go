package order

import "github.com/cespare/xxhash/v2"

// prefixes finds the length at which a job's texts share prefixes, if keeping such rows
// together saves work: the length with the most repeated bytes. It examines a sample of
// the rows, and lengths of 256 bytes times a power of two.
type prefixes struct {
	cache int64 // bytes of text that a server caches
	many  bool  // rows are assigned by prefix: the job has more prefixes than are seen at a time
	depth int   // the chosen level; none if sharing saves too little

	seen  int
	bytes int64
	level sketches
}

// sketches has a sample's data about each length of prefix.
type sketches [levels]sketch

// A sketch has a sample's data about one length of prefix.
type sketch struct {
	rows    int    // rows at least this long
	returns int    // rows with a prefix that was seen before, but not in the row before
	last    uint64 // hash of the last row
	hashes  map[uint64]struct{}
}

// add adds a row with this hash of its prefix.
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

// release frees the memory of the sample.
func (s *sketches) release() {
	for i := range s {
		s[i].hashes = nil
	}
}

const (
	levels     = 9 // 256 bytes to 64 KiB
	shortest   = 256
	none       = -1
	sampleRows = 4096
	// firstLook is the number of rows after which the sample is first evaluated. It is
	// evaluated again each time the number of rows has doubled.
	firstLook = 128
	// worthwhile is the smallest fraction of all bytes that must be saved.
	worthwhile = 0.1
	// assumedCache is the assumed cache of a server that does not report it: 128k tokens
	// of 4 bytes.
	assumedCache = 512 << 10
)

func newPrefixes() *prefixes { return &prefixes{cache: assumedCache, depth: none} }

// see adds a text to the sample. It returns the hash of its prefix, as hash does, and
// reports whether another length was chosen.
func (p *prefixes) see(text string) (hash uint64, changed bool) {
	if p.seen >= sampleRows {
		return p.hash(text), false
	}
	p.seen++
	p.bytes += int64(len(text))
	walk(text, levels-1, func(level int, h uint64) {
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

// walk calls f with the hash of each prefix of text, up to level last. A hash is never
// 0. Hashes are the same on all nodes, so each node that reads an input gets the same
// groups.
func walk(text string, last int, f func(level int, hash uint64)) {
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

// choose chooses the level that saves the most. Prefixes that all fit into a server's
// cache need no order.
func (p *prefixes) choose() {
	p.depth = none
	best := worthwhile * float64(p.bytes)
	for i := range p.level {
		s := &p.level[i]
		length := int64(shortest) << i
		distinct := int64(len(s.hashes))
		if !p.many && distinct*length <= p.cache/2 {
			continue
		}
		if saved := float64(int64(s.rows)-distinct) * float64(length); saved > best {
			best, p.depth = saved, i
		}
	}
}

// hash returns the hash of a text's prefix at the chosen length; 0 if there is none.
func (p *prefixes) hash(text string) (hash uint64) {
	if p.depth == none || len(text) < shortest<<p.depth {
		return 0
	}
	walk(text, p.depth, func(_ int, h uint64) { hash = h })
	return hash
}

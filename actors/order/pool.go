package order

import (
	"cmp"
	"slices"
)

// A ServerIndex is the number of a server that gets rows. The caller numbers the servers.
type ServerIndex int

// None is the number that belongs to no server.
const None ServerIndex = -1

// A Row is a row in a Pool, with the data that decides when the row is taken.
type Row[T any] struct {
	Value    T
	Text     string
	Position int64 // number of the row in the input
	Batch    int   // number of the row's batch: Expedite puts rows of early batches first
	// Share is the row's share if rows are assigned by prefix, and 0 otherwise. Prefixes
	// of a lower share go first.
	Share int
	Avoid ServerIndex // a server that gets the row only if there is no other server; None for none
	hash  uint64      // hash of the row's prefix; 0 if the row has none
	class rowClass
}

// A Pool has the loaded rows of a job that were not sent. It returns rows for a server
// in this order: rows put in front, then rows of the groups from which the server
// already gets rows, then the rows with the longest expected answers.
type Pool[T any] struct {
	lengths  *LengthEstimator
	total    int64
	prefixes *prefixSampler

	front       []Row[T]                          // rows that leave before all other rows
	single      rankedRows[T]                     // rows that belong to no group
	groups      map[uint64]*prefixGroup[T]        // rows with the same prefix, by hash of the prefix
	open        []*prefixGroup[T]                 // groups without a server: sorted by share, then by expected length
	rotations   map[ServerIndex]*groupRotation[T] // the groups that each server works on
	preferences map[uint64]preference             // by hash of the prefix: only for groups that have no rows now
	ranked      int64                             // LengthEstimator.count when open was last sorted; -1 if it must be sorted
	size        int                               // number of rows in the pool
	plain       bool                              // rows without a share leave in the order in which they were added

	batches map[int]int // by batch: number of rows, without rows in front
}

// A prefixGroup has the rows that share a long prefix.
type prefixGroup[T any] struct {
	hash  uint64
	share int // Share of the group's first row
	rows  rankedRows[T]
	rank  float64   // expected length of the answers (see LengthEstimator.rank)
	ports serverSet // servers that have had rows of the group
}

// serverSet is a set of servers, with one bit for each ServerIndex modulo 64.
type serverSet uint64

func (s serverSet) with(p ServerIndex) serverSet { return s | 1<<(uint64(p)%64) }
func (s serverSet) has(p ServerIndex) bool       { return s == s.with(p) }

// A preference is the server that last worked on a prefix. Later rows with the prefix
// go to the same server, even before rows with a higher rank. Only jobs whose rows are
// assigned by prefix have preferences: their rows are ordered by share before length.
type preference struct {
	port  ServerIndex
	ports serverSet // servers that have had rows of the group
}

// A groupRotation has the groups from which one server gets rows in turn. With rows from a
// single group, the group's first rows would reach the server at the same time, and the
// server would compute the prefix for each of them.
type groupRotation[T any] struct {
	port   ServerIndex
	groups []*prefixGroup[T]
	turn   int // index in groups of the next group
}

// mostPreferences is the maximum number of preferences: more than the number of
// prefixes that are loaded at a time. Preferences matter for a prefix if some rows were
// sent and other rows are still being read.
const mostPreferences = 4096

// A rotation has up to mostRotated groups while their prefixes fit into a quarter of a
// server's cache, and up to leastRotated groups otherwise. The number is also the distance
// between two rows of a group: with 8 groups, servers often take the second row before
// they have computed the prefix for the first (bench/README.md, B4).
const (
	leastRotated = 8
	mostRotated  = 16
)

// NewPool returns a pool for an input of total rows.
func NewPool[T any](lengths *LengthEstimator, total int64) *Pool[T] {
	return &Pool[T]{
		lengths: lengths, total: total, prefixes: newPrefixSampler(),
		groups: make(map[uint64]*prefixGroup[T]), rotations: make(map[ServerIndex]*groupRotation[T]), preferences: make(map[uint64]preference),
		batches: make(map[int]int),
	}
}

// SetCacheBytes sets the size of a server's prefix cache, in bytes of text.
func (p *Pool[T]) SetCacheBytes(bytes int64) { p.prefixes.cache = bytes }

// KeepInputOrder makes rows leave in the order in which they were added, except rows with a
// share. It is for jobs whose answers all have the same length. Call KeepInputOrder before
// Add.
func (p *Pool[T]) KeepInputOrder() { p.plain = true }

// Len returns the number of rows in the pool.
func (p *Pool[T]) Len() int { return p.size }

// Add adds loaded rows.
func (p *Pool[T]) Add(rows []Row[T]) {
	p.size += len(rows)
	changed := false
	for i := range rows {
		r := &rows[i]
		p.batches[r.Batch]++
		if p.plain && r.Share == 0 { // all rows have the same class
			p.single.add(*r)
			continue
		}
		r.class = classOf(len(r.Text), r.Position, p.total)
		p.prefixes.many = p.prefixes.many || r.Share > 0
		var again bool
		r.hash, again = p.prefixes.addSample(r.Text)
		changed = changed || again
		p.addToGroup(*r)
	}
	if changed {
		p.regroup()
	}
}

// AddToFront adds rows that leave before all other rows, for example rows that a server has
// returned.
func (p *Pool[T]) AddToFront(rows ...Row[T]) {
	p.size += len(rows)
	for i := range rows {
		rows[i].class = classOf(len(rows[i].Text), rows[i].Position, p.total)
	}
	p.front = append(rows, p.front...)
}

// Expedite puts all rows of this batch and earlier batches in front. It examines every
// row.
func (p *Pool[T]) Expedite(batch int) {
	var late []Row[T]
	keep := func(r Row[T]) bool {
		if r.Batch > batch {
			return true
		}
		late = append(late, r)
		p.removeFromBatch(r.Batch)
		return false
	}
	p.single.filter(keep)
	for _, g := range p.groups {
		if g.rows.filter(keep); g.rows.count == 0 {
			delete(p.groups, g.hash)
		}
	}
	empty := func(g *prefixGroup[T]) bool { return g.rows.count == 0 }
	p.open = slices.DeleteFunc(p.open, empty)
	for _, d := range p.rotations {
		d.groups = slices.DeleteFunc(d.groups, empty)
	}
	// Rows with the same prefix stay together; other rows keep the order of the input.
	slices.SortStableFunc(late, func(a, b Row[T]) int { return cmp.Or(cmp.Compare(a.hash, b.hash), cmp.Compare(a.Position, b.Position)) })
	p.front = append(p.front, late...)
}

// Oldest returns the earliest batch with rows that are not in front; ok is false if
// there is none.
func (p *Pool[T]) Oldest() (batch int, ok bool) {
	for b := range p.batches {
		if !ok || b < batch {
			batch, ok = b, true
		}
	}
	return batch, ok
}

// removeFromBatch counts a row that is not among the rows of its batch any more.
func (p *Pool[T]) removeFromBatch(batch int) {
	if p.batches[batch]--; p.batches[batch] == 0 {
		delete(p.batches, batch)
	}
}

// Leave removes a server: other servers can get its groups.
func (p *Pool[T]) Leave(port ServerIndex) {
	if d := p.rotations[port]; d != nil {
		delete(p.rotations, port)
		p.open = append(p.open, d.groups...)
		p.ranked = -1
	}
}

// Take removes and returns up to n rows for a server. alone means that there is no
// other server, so the server also gets rows that avoid it.
func (p *Pool[T]) Take(port ServerIndex, n int, alone bool) []Row[T] {
	rows := make([]Row[T], 0, min(n, p.size))
	rows = p.takeFront(rows, port, n, alone)
	for len(rows) < n {
		r, ok := p.next(port)
		if !ok {
			break
		}
		rows = append(rows, r)
		p.removeFromBatch(r.Batch)
	}
	p.size -= len(rows)
	return rows
}

// mostSkipped is the maximum number of rows in front that Take skips because they avoid
// the server.
const mostSkipped = 256

// takeFront moves rows from the front to rows, until rows has n rows.
func (p *Pool[T]) takeFront(rows []Row[T], port ServerIndex, n int, alone bool) []Row[T] {
	kept := 0
	i := 0
	for ; i < len(p.front) && len(rows) < n && kept < mostSkipped; i++ {
		r := p.front[i]
		if r.Avoid == port && !alone {
			p.front[kept] = r
			kept++
			continue
		}
		rows = append(rows, r)
	}
	p.front = slices.Delete(p.front, kept, i)
	return rows
}

// next removes and returns the next row that is not in front, for a server. It returns
// false if there is none.
func (p *Pool[T]) next(port ServerIndex) (Row[T], bool) {
	d := p.rotations[port]
	if d == nil {
		d = &groupRotation[T]{port: port}
		p.rotations[port] = d
	}
	p.rank()
	opens := len(p.open) > 0 && len(d.groups) < p.prefixes.rotationSize()
	if opens && (len(d.groups) > 0 || p.single.count == 0 || p.open[0].rank >= p.single.top(p.lengths)) {
		d.turn = len(d.groups)
		d.groups = append(d.groups, p.open[0])
		p.open = p.open[1:]
	}
	if len(d.groups) > 0 {
		return p.takeFrom(d, port), true
	}
	if p.single.count > 0 {
		return p.single.popHighest(p.lengths), true
	}
	if other := p.busiest(); other != nil { // other servers work on all remaining groups
		if len(other.groups) == 1 {
			return p.takeFrom(other, port), true
		}
		d.groups = append(d.groups, other.removeGroupFor(port))
		return p.takeFrom(d, port), true
	}
	return Row[T]{}, false
}

// takeFrom removes and returns a row of the rotation's next group, for a server.
func (p *Pool[T]) takeFrom(d *groupRotation[T], port ServerIndex) Row[T] {
	d.turn %= len(d.groups)
	g := d.groups[d.turn]
	r := g.rows.popHighest(p.lengths)
	g.ports = g.ports.with(port)
	if g.rows.count > 0 {
		d.turn++
		return r
	}
	delete(p.groups, g.hash)
	d.groups = slices.Delete(d.groups, d.turn, d.turn+1)
	if p.prefixes.many {
		if len(p.preferences) >= mostPreferences {
			clear(p.preferences)
		}
		p.preferences[g.hash] = preference{d.port, g.ports}
	}
	return r
}

// removeGroupFor removes a group from the rotation and returns it for another server. It prefers
// a group with rows that this server already had, and then the group with the most
// rows, so that few prefixes are computed twice.
func (d *groupRotation[T]) removeGroupFor(port ServerIndex) *prefixGroup[T] {
	best := 0
	for i, g := range d.groups {
		most := d.groups[best]
		if mine, its := g.ports.has(port), most.ports.has(port); mine != its && mine || mine == its && g.rows.count > most.rows.count {
			best = i
		}
	}
	g := d.groups[best]
	d.groups = slices.Delete(d.groups, best, best+1)
	return g
}

// busiest returns the rotation with the most rows; nil if no rotation has rows.
func (p *Pool[T]) busiest() (most *groupRotation[T]) {
	rows, of := 0, None
	for port, d := range p.rotations {
		n := 0
		for _, g := range d.groups {
			n += g.rows.count
		}
		if n > rows || n == rows && n > 0 && port < of {
			most, rows, of = d, n, port
		}
	}
	return most
}

// addToGroup adds a row to the group of its prefix, or to single if it has no prefix.
func (p *Pool[T]) addToGroup(r Row[T]) {
	if r.hash == 0 {
		p.single.add(r)
		return
	}
	g := p.groups[r.hash]
	if g == nil {
		h, known := p.preferences[r.hash]
		g = &prefixGroup[T]{hash: r.hash, share: r.Share, ports: h.ports}
		p.groups[r.hash] = g
		if d := p.rotations[h.port]; known && d != nil {
			d.groups = append(d.groups, g)
		} else {
			p.open = append(p.open, g)
			p.ranked = -1
		}
	}
	g.rows.add(r)
}

// regroup puts all rows into new groups, because the length of the prefixes has
// changed.
func (p *Pool[T]) regroup() {
	var rows []Row[T]
	take := func(r Row[T]) bool {
		rows = append(rows, r)
		return false
	}
	p.single.filter(take)
	for _, g := range p.groups {
		g.rows.filter(take)
	}
	clear(p.groups)
	clear(p.rotations)
	clear(p.preferences)
	p.open = nil
	slices.SortFunc(rows, func(a, b Row[T]) int { return cmp.Compare(a.Position, b.Position) })
	for _, r := range rows {
		if !p.plain || r.Share > 0 { // see KeepInputOrder
			r.hash = p.prefixes.hash(r.Text)
		}
		p.addToGroup(r)
	}
}

// rank sorts the open groups, if enough answers were learned or groups were added since
// the last time.
func (p *Pool[T]) rank() {
	if len(p.open) == 0 || p.ranked >= 0 && p.lengths.count < p.ranked+p.ranked/8+64 {
		return
	}
	p.ranked = p.lengths.count
	for _, g := range p.open {
		g.rank = g.rows.top(p.lengths)
	}
	slices.SortStableFunc(p.open, func(a, b *prefixGroup[T]) int {
		switch {
		case a.share != b.share: // the rows of a later share may not all be here yet
			return cmp.Compare(a.share, b.share)
		case a.rank != b.rank:
			return cmp.Compare(b.rank, a.rank)
		default:
			return b.rows.count - a.rows.count
		}
	})
}

package order

import (
	"cmp"
	"slices"
)

// A Port is a server that gets rows, by the caller's number.
type Port int

// None is no port.
const None Port = -1

// A Row is a row in a Pool, with the data that decides when it is taken.
type Row[T any] struct {
	Value    T
	Text     string
	Position int64  // index within the input
	Batch    int    // Expedite puts rows of early batches first
	Share    int    // the row's share, if rows are assigned by prefix, and 0 otherwise; prefixes of a lower share go first
	Avoid    Port   // a port that gets the row only if there is no other port; None if there is no such port
	hash     uint64 // of the prefix; 0 for none
	class    class
}

// A Pool holds the loaded rows of a job that were not sent. Rows leave in this order:
// rows put in front, then rows of the groups that the port works on, then the rows with
// the longest expected answers.
type Pool[T any] struct {
	lengths  *Lengths
	total    int64
	prefixes *prefixes

	front       []Row[T]
	single      cells[T]             // rows without a prefix worth grouping
	groups      map[uint64]*group[T] // by hash of the prefix
	open        []*group[T]          // groups without a port: by share, then the longest expected first
	rotations   map[Port]*rotation[T]
	preferences map[uint64]preference // by hash of the prefix: of groups without remaining rows
	ranked      int64                 // number of answers learned when groups were last ranked
	size        int                   // number of rows
	plain       bool                  // rows without a share leave in the order of arrival

	batches map[int]int // rows by batch, without rows in front
}

// A group has the rows that share a long prefix.
type group[T any] struct {
	hash  uint64
	share int // share of its first row
	rows  cells[T]
	rank  float64
	ports ports // ports that have had rows of the group
}

// ports is a set of ports. Ports that differ by a multiple of 64 count as the same.
type ports uint64

func (s ports) with(p Port) ports { return s | 1<<(uint64(p)%64) }
func (s ports) has(p Port) bool   { return s == s.with(p) }

// A preference names the port that last worked on a prefix. Later rows of the prefix go to
// the same port, ahead of their rank. Only jobs with rows assigned by prefix have
// preferences: their rows go by share before they go by length.
type preference struct {
	port  Port
	ports ports // see group
}

// A rotation has the groups from which one port gets rows in turn. With a single group,
// the group's first rows would reach the server at the same time, and the server would
// compute the prefix for each of them.
type rotation[T any] struct {
	port   Port
	groups []*group[T]
	turn   int
}

// mostPreferences limits the preferences: more than the prefixes that are loaded at a
// time. They matter for prefixes with some rows sent while others are still being read.
const mostPreferences = 4096

// rotationSize is the number of groups in a rotation, and so the distance between two
// rows of a group: more rows than a server takes in one step, and few enough prefixes to
// fit into any cache.
const rotationSize = 8

// NewPool returns a pool for an input of total rows.
func NewPool[T any](lengths *Lengths, total int64) *Pool[T] {
	return &Pool[T]{
		lengths: lengths, total: total, prefixes: newPrefixes(),
		groups: make(map[uint64]*group[T]), rotations: make(map[Port]*rotation[T]), preferences: make(map[uint64]preference),
		batches: make(map[int]int),
	}
}

// Remember sets how many bytes of text the prefix cache of a server holds.
func (p *Pool[T]) Remember(bytes int64) { p.prefixes.cache = bytes }

// InOrder makes rows leave in the order of arrival, except rows with a share. It is for
// answers of equal length. Call InOrder before Add.
func (p *Pool[T]) InOrder() { p.plain = true }

// Len returns the number of rows in the pool.
func (p *Pool[T]) Len() int { return p.size }

// Add adds rows.
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
		r.hash, again = p.prefixes.see(r.Text)
		changed = changed || again
		p.place(*r)
	}
	if changed {
		p.regroup()
	}
}

// Front adds rows that go before all other rows, for example rows that were sent and came
// back.
func (p *Pool[T]) Front(rows ...Row[T]) {
	p.size += len(rows)
	for i := range rows {
		rows[i].class = classOf(len(rows[i].Text), rows[i].Position, p.total)
	}
	p.front = append(rows, p.front...)
}

// Expedite puts all rows up to this batch in front. It examines every row.
func (p *Pool[T]) Expedite(batch int) {
	var late []Row[T]
	keep := func(r Row[T]) bool {
		if r.Batch > batch {
			return true
		}
		late = append(late, r)
		p.batches[r.Batch]--
		return false
	}
	p.single.filter(keep)
	for _, g := range p.groups {
		if g.rows.filter(keep); g.rows.count == 0 {
			delete(p.groups, g.hash)
		}
	}
	empty := func(g *group[T]) bool { return g.rows.count == 0 }
	p.open = slices.DeleteFunc(p.open, empty)
	for _, d := range p.rotations {
		d.groups = slices.DeleteFunc(d.groups, empty)
	}
	// Rows with the same prefix stay together; other rows keep the order of the input.
	slices.SortStableFunc(late, func(a, b Row[T]) int { return cmp.Or(cmp.Compare(a.hash, b.hash), cmp.Compare(a.Position, b.Position)) })
	p.front = append(p.front, late...)
}

// Oldest returns the earliest batch with waiting rows, without rows in front; ok is
// false if there is none.
func (p *Pool[T]) Oldest() (batch int, ok bool) {
	for b, n := range p.batches {
		if n > 0 && (!ok || b < batch) {
			batch, ok = b, true
		}
	}
	return batch, ok
}

// Leave removes a port: its groups go to other ports.
func (p *Pool[T]) Leave(port Port) {
	if d := p.rotations[port]; d != nil {
		delete(p.rotations, port)
		p.open = append(p.open, d.groups...)
		p.ranked = -1
	}
}

// Take removes up to n rows for a port. alone is true if no other port could take the
// rows that avoid this port.
func (p *Pool[T]) Take(port Port, n int, alone bool) []Row[T] {
	rows := make([]Row[T], 0, min(n, p.size))
	rows = p.takeFront(rows, port, n, alone)
	for len(rows) < n {
		r, ok := p.next(port)
		if !ok {
			break
		}
		rows = append(rows, r)
		if p.batches[r.Batch]--; p.batches[r.Batch] == 0 {
			delete(p.batches, r.Batch)
		}
	}
	p.size -= len(rows)
	return rows
}

// mostSkipped limits how many rows in front are skipped because they avoid the port.
const mostSkipped = 256

// takeFront moves rows in front to rows, until rows has n rows.
func (p *Pool[T]) takeFront(rows []Row[T], port Port, n int, alone bool) []Row[T] {
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

// next removes and returns the next row for a port.
func (p *Pool[T]) next(port Port) (Row[T], bool) {
	d := p.rotations[port]
	if d == nil {
		d = &rotation[T]{port: port}
		p.rotations[port] = d
	}
	p.rank()
	opens := len(p.open) > 0 && len(d.groups) < rotationSize
	if opens && (len(d.groups) > 0 || p.single.count == 0 || p.open[0].rank >= p.single.top(p.lengths)) {
		d.turn = len(d.groups)
		d.groups = append(d.groups, p.open[0])
		p.open = p.open[1:]
	}
	if len(d.groups) > 0 {
		return p.from(d, port), true
	}
	if p.single.count > 0 {
		return p.single.take(p.lengths), true
	}
	if other := p.busiest(); other != nil { // other ports work on all remaining rows
		if len(other.groups) == 1 || !p.prefixes.many {
			return p.from(other, port), true
		}
		d.groups = append(d.groups, other.give(port))
		return p.from(d, port), true
	}
	return Row[T]{}, false
}

// from takes a row for a port from the rotation's next group.
func (p *Pool[T]) from(d *rotation[T], port Port) Row[T] {
	d.turn %= len(d.groups)
	g := d.groups[d.turn]
	r := g.rows.take(p.lengths)
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

// give removes a group from the rotation and returns it for another port. It prefers a
// group if the port has already had rows of the group, and then the group with the most
// rows. So as few prefixes as possible are computed twice.
func (d *rotation[T]) give(port Port) *group[T] {
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
func (p *Pool[T]) busiest() (most *rotation[T]) {
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

// place adds a row to the group of its prefix, or to the rows without a group.
func (p *Pool[T]) place(r Row[T]) {
	if r.hash == 0 {
		p.single.add(r)
		return
	}
	g := p.groups[r.hash]
	if g == nil {
		h, known := p.preferences[r.hash]
		g = &group[T]{hash: r.hash, share: r.Share, ports: h.ports}
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

// regroup puts all rows into new groups after the prefix length has changed.
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
		r.hash = p.prefixes.hash(r.Text)
		p.place(r)
	}
}

// rank sorts the open groups, if enough was learned or added since the last time.
func (p *Pool[T]) rank() {
	if len(p.open) < 2 || p.ranked >= 0 && p.lengths.count < p.ranked+p.ranked/8+64 {
		return
	}
	p.ranked = p.lengths.count
	for _, g := range p.open {
		g.rank = g.rows.top(p.lengths)
	}
	slices.SortStableFunc(p.open, func(a, b *group[T]) int {
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

package order

import (
	"cmp"
	"slices"
)

// A class groups rows of similar size from the same region of the input.
type class struct{ size, region uint8 }

func classOf(bytes int, position, total int64) class {
	return class{uint8(sizeClass(bytes)), uint8(regionOf(position, total))}
}

// cells holds rows in cells, one for each class. It returns rows of the cell with the
// highest rank first.
type cells[T any] struct {
	list   []cell[T]     // unsorted
	index  map[class]int // by class: index in list; nil while list is short
	order  []int32       // indexes in list by rank, highest first; empty cells are skipped
	ranked int64         // number of answers learned at the last sort
	stale  bool          // a cell was added or filled after the last sort
	count  int           // number of rows
}

type cell[T any] struct {
	class class
	rank  float64
	rows  []Row[T]
	taken int // rows taken from the front
}

// left returns the number of rows in the cell.
func (c *cell[T]) left() int { return len(c.rows) - c.taken }

// shortList is the number of cells up to which find searches one by one.
const shortList = 8

// find returns the cell of a class, and adds the cell if it is missing.
func (c *cells[T]) find(k class) *cell[T] {
	if c.index != nil {
		if i, ok := c.index[k]; ok {
			return &c.list[i]
		}
	} else {
		for i := range c.list {
			if c.list[i].class == k {
				return &c.list[i]
			}
		}
	}
	c.list = append(c.list, cell[T]{class: k})
	switch {
	case c.index != nil:
		c.index[k] = len(c.list) - 1
	case len(c.list) > shortList:
		c.index = make(map[class]int, 4*shortList)
		for i := range c.list {
			c.index[c.list[i].class] = i
		}
	}
	return &c.list[len(c.list)-1]
}

func (c *cells[T]) add(r Row[T]) {
	cell := c.find(r.class)
	c.stale = c.stale || cell.left() == 0
	if len(cell.rows) == cap(cell.rows) && cell.taken > len(cell.rows)/2 { // reuse the memory of taken rows
		left := copy(cell.rows, cell.rows[cell.taken:])
		clear(cell.rows[left:])
		cell.rows, cell.taken = cell.rows[:left], 0
	}
	cell.rows = append(cell.rows, r)
	c.count++
}

// best returns the cell with the highest rank that has rows; there must be one.
func (c *cells[T]) best(l *Lengths) *cell[T] {
	if c.stale || l.count >= c.ranked+c.ranked/8+64 {
		c.sort(l)
	}
	for c.list[c.order[0]].left() == 0 {
		c.order = c.order[1:]
	}
	return &c.list[c.order[0]]
}

// sort ranks all cells that have rows.
func (c *cells[T]) sort(l *Lengths) {
	c.stale, c.ranked = false, l.count
	c.order = c.order[:0]
	for i := range c.list {
		cell := &c.list[i]
		if cell.left() == 0 {
			continue
		}
		cell.rank = l.rank(int(cell.class.size), int(cell.class.region))
		c.order = append(c.order, int32(i))
	}
	slices.SortFunc(c.order, func(i, j int32) int {
		a, b := &c.list[i], &c.list[j]
		if order := cmp.Or(cmp.Compare(b.rank, a.rank), cmp.Compare(b.class.size, a.class.size)); order != 0 {
			return order
		}
		// Cells with equal rank and size: two regions in a row are far from each other.
		return cmp.Compare(scatter(a.class.region), scatter(b.class.region))
	})
}

// scatter reverses the bits of a region's number.
func scatter(region uint8) uint8 {
	var s uint8
	for range 6 { // regions is 2^6
		s = s<<1 | region&1
		region >>= 1
	}
	return s
}

// top returns the rank of the best cell; there must be a row.
func (c *cells[T]) top(l *Lengths) float64 { return c.best(l).rank }

// take removes and returns the best row. The caller makes sure that there is a row.
func (c *cells[T]) take(l *Lengths) Row[T] {
	cell := c.best(l)
	r := cell.rows[cell.taken]
	cell.rows[cell.taken] = Row[T]{} // do not keep the row's text in memory
	cell.taken++
	c.count--
	if cell.left() == 0 { // the input may never return to this class
		cell.rows, cell.taken = nil, 0
	}
	return r
}

// filter keeps the rows for which keep returns true.
func (c *cells[T]) filter(keep func(Row[T]) bool) {
	c.count = 0
	for i := range c.list {
		cell := &c.list[i]
		left := cell.rows[cell.taken:]
		kept := 0
		for _, r := range left {
			if keep(r) {
				left[kept] = r
				kept++
			}
		}
		clear(left[kept:])
		cell.rows = cell.rows[:cell.taken+kept]
		c.count += kept
	}
	c.stale = true
}

package order

import (
	"cmp"
	"slices"
)

// A rowClass is a size class of rows together with a region of the input.
type rowClass struct{ size, region uint8 }

// classOf returns the class of a row with this many bytes at this position in an input
// of total rows.
func classOf(bytes int, position, total int64) rowClass {
	return rowClass{uint8(sizeClass(bytes)), uint8(regionOf(position, total))}
}

// rankedRows has rows in cells, one cell for each class. It returns rows of the cell with
// the highest rank first.
type rankedRows[T any] struct {
	list   []classRows[T]   // the cells, in no order
	index  map[rowClass]int // by class: index of the cell in list; nil while list is short
	order  []int32          // indexes of cells in list, the highest rank first; empty cells are skipped
	ranked int64            // LengthEstimator.count when the cells were last sorted
	stale  bool             // a cell was added or got rows after the last sort
	count  int              // number of rows
}

// A classRows has the rows of one class.
type classRows[T any] struct {
	class rowClass
	rank  float64 // expected length of the answers (see LengthEstimator.rank)
	rows  []Row[T]
	taken int // number of rows removed from the front of rows
}

// left returns the number of rows that are still in the cell.
func (c *classRows[T]) left() int { return len(c.rows) - c.taken }

// shortList is the maximum number of cells that findOrAdd searches one by one, without
// index.
const shortList = 8

// findOrAdd returns the cell of class k, and adds the cell if it does not exist.
func (c *rankedRows[T]) findOrAdd(k rowClass) *classRows[T] {
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
	c.list = append(c.list, classRows[T]{class: k})
	switch {
	case c.index != nil:
		c.index[k] = len(c.list) - 1
	case len(c.list) > shortList:
		c.index = make(map[rowClass]int, 4*shortList)
		for i := range c.list {
			c.index[c.list[i].class] = i
		}
	}
	return &c.list[len(c.list)-1]
}

func (c *rankedRows[T]) add(r Row[T]) {
	cell := c.findOrAdd(r.class)
	c.stale = c.stale || cell.left() == 0
	if len(cell.rows) == cap(cell.rows) && cell.taken > len(cell.rows)/2 { // reuse the memory of taken rows
		left := copy(cell.rows, cell.rows[cell.taken:])
		clear(cell.rows[left:])
		cell.rows, cell.taken = cell.rows[:left], 0
	}
	cell.rows = append(cell.rows, r)
	c.count++
}

// best returns the cell with the highest rank among the cells with rows. There must be
// a row.
func (c *rankedRows[T]) best(l *LengthEstimator) *classRows[T] {
	if c.stale || l.count >= c.ranked+c.ranked/8+64 {
		c.sort(l)
	}
	for c.list[c.order[0]].left() == 0 {
		c.order = c.order[1:]
	}
	return &c.list[c.order[0]]
}

// sort computes the rank of each cell that has rows, and sorts these cells.
func (c *rankedRows[T]) sort(l *LengthEstimator) {
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
		// Cells with equal rank and size: put regions one after another that are far apart.
		return cmp.Compare(scatter(a.class.region), scatter(b.class.region))
	})
}

// scatter reverses the bits of a region's number, so that consecutive results belong to
// distant regions.
func scatter(region uint8) uint8 {
	var s uint8
	for range 6 { // because there are 2^6 regions
		s = s<<1 | region&1
		region >>= 1
	}
	return s
}

// top returns the highest rank of all cells with rows. There must be a row.
func (c *rankedRows[T]) top(l *LengthEstimator) float64 { return c.best(l).rank }

// popHighest removes and returns the next row of the cell with the highest rank. There must
// be a row.
func (c *rankedRows[T]) popHighest(l *LengthEstimator) Row[T] {
	cell := c.best(l)
	r := cell.rows[cell.taken]
	cell.rows[cell.taken] = Row[T]{} // so that the row's text can be freed
	cell.taken++
	c.count--
	if cell.left() == 0 { // free the memory: no row of this class may follow
		cell.rows, cell.taken = nil, 0
	}
	return r
}

// filter removes the rows for which keep returns false.
func (c *rankedRows[T]) filter(keep func(Row[T]) bool) {
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

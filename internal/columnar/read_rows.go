package columnar

import (
	"errors"
	"io"
	"math"
	"slices"
	"unicode/utf8"

	"github.com/rowmill/rowmill"
)

// Rows reads some columns of a file row by row, all columns together. It holds
// one page per column in memory. It is for one goroutine.
type Rows struct {
	f       *File
	columns []*column
	group   int   // the next row group
	left    int64 // rows of the current row group that are not read yet
	row     int64 // rows returned so far
	err     error
}

// column is a column that Rows reads. A flat column has one leaf, and its value
// stays in the leaf's page. The JSON of a nested column is built at once.
type column struct {
	node   *node
	leaf   *Leaf // the type that an ID of this column keeps, or nil
	leaves []*pageReader
	null   bool
	raw    []byte // a flat column's value, as pageReader.take returns it
	json   []byte
}

// Rows begins to read columns. Each argument is a position in Columns.
func (f *File) Rows(columns ...int) *Rows {
	r := &Rows{f: f}
	for _, i := range columns {
		c := &column{node: f.root.children[i]}
		if c.node.flat() {
			if leaf, ok := leafIn(c.node.element, f.notes[i]); ok {
				c.leaf = leaf
			}
		}
		r.columns = append(r.columns, c)
	}
	return r
}

// Next moves to the next row and drops the values of the row before. It returns
// io.EOF at the end.
func (r *Rows) Next() error {
	if r.err != nil {
		return r.err
	}
	for r.left == 0 {
		if r.err = r.nextGroup(); r.err != nil {
			return r.err
		}
	}
	for _, c := range r.columns {
		if c.node.flat() {
			pages := c.leaves[0]
			if pages.next == pages.n {
				if r.err = r.guarded(pages.need); r.err != nil {
					return r.err
				}
			}
			var ok bool
			c.raw, ok = pages.take()
			c.null = !ok
			continue
		}
		if r.err = r.guarded(c.assemble); r.err != nil {
			return r.err
		}
	}
	r.left--
	r.row++
	return nil
}

// Close releases the pages in memory.
func (r *Rows) Close() error {
	if r.err == nil {
		r.err = errors.New("rows are closed")
	}
	for _, c := range r.columns {
		c.close()
	}
	return nil
}

func (r *Rows) nextGroup() error {
	err := r.guarded(func() error {
		for _, c := range r.columns {
			if err := c.end(); err != nil {
				return err
			}
			c.close()
			if r.group == len(r.f.groups) {
				continue
			}
			if err := c.open(r.f, r.group, c.node); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	if r.group == len(r.f.groups) {
		return io.EOF
	}
	r.left = r.f.groups[r.group].NumRows
	r.group++
	return nil
}

func (r *Rows) guarded(f func() error) error { return r.f.src.guard("read Parquet file", f) }

// open begins to read the leaves in and under n.
func (c *column) open(f *File, group int, n *node) error {
	if n.isLeaf() {
		pages, err := newPageReader(f, group, n)
		if err == nil {
			c.leaves = append(c.leaves, pages)
		}
		return err
	}
	for _, child := range n.children {
		if err := c.open(f, group, child); err != nil {
			return err
		}
	}
	return nil
}

// end checks that the pages of a row group do not hold more rows than the row
// group.
func (c *column) end() error {
	for _, pages := range c.leaves {
		more, err := pages.more()
		if err != nil {
			return err
		}
		if more {
			return badFile("The Parquet file is corrupt: column %q has more rows than row group %d.", pages.leaf.path, pages.group)
		}
	}
	return nil
}

func (c *column) close() {
	for _, pages := range c.leaves {
		pages.close()
	}
	c.leaves = c.leaves[:0]
}

// Text returns the value of column i as text. Numbers become the shortest text
// that parses back, dates and times follow RFC 3339, binary columns of fixed
// length become hexadecimal, groups, lists and maps become JSON, null and NaN
// become the empty string.
func (r *Rows) Text(i int) (string, error) {
	c := r.columns[i]
	switch {
	case c.null:
		return "", nil
	case len(c.leaves) == 0:
		return "", errors.New("rows are closed")
	case !c.node.flat():
		return string(c.json), nil
	}
	if c.node.kind.class == classText {
		if !utf8.Valid(c.raw) {
			return "", r.notText(c)
		}
		return string(c.raw), nil
	}
	b, err := c.node.kind.appendText(make([]byte, 0, 48), c.raw)
	if err != nil {
		return "", r.at(c, err)
	}
	return string(b), nil
}

// ID returns the value of column i with its type.
func (r *Rows) ID(i int) (rowmill.ID, error) {
	c := r.columns[i]
	if c.null {
		return rowmill.ID{}, nil
	}
	if c.node.flat() && len(c.leaves) > 0 {
		if c.leaf != nil {
			return r.leafID(c)
		}
		if id, ok := c.node.kind.number(c.raw); ok {
			return id, nil
		}
	}
	text, err := r.Text(i)
	return rowmill.ID{Kind: rowmill.IDString, Text: text}, err
}

// leafID returns a value with the type that the file gives it. Data frames
// write NaN for a missing number, so NaN becomes null.
func (r *Rows) leafID(c *column) (rowmill.ID, error) {
	if k := &c.node.kind; (k.class == classFloat || k.class == classHalf) && math.IsNaN(k.float(c.raw)) {
		return rowmill.ID{}, nil
	}
	id := rowmill.ID{Kind: rowmill.IDLeafValue, Text: string(c.raw)}
	if !c.leaf.Fits(id.Text) {
		return rowmill.ID{}, badFile("Column %q of row %d has a value of %d bytes, which its type does not permit.", c.node.name, r.row-1, len(id.Text))
	}
	return id, nil
}

// IDType returns the type of the IDs in column i of Columns.
func (f *File) IDType(i int) (rowmill.IDType, error) {
	return f.root.children[i].idType(f.notes[i])
}

func (r *Rows) notText(c *column) error {
	return badFile("Column %q of row %d is not UTF-8 text. Write the column as strings.", c.node.name, r.row-1)
}

func (r *Rows) at(c *column, err error) error {
	if errors.Is(err, errNotText) {
		return r.notText(c)
	}
	return badFile("Column %q of row %d cannot be turned into text: %v.", c.node.name, r.row-1, err)
}

// assemble reads one row of a nested column as JSON.
func (c *column) assemble() error {
	for _, pages := range c.leaves {
		if err := pages.need(); err != nil {
			return err
		}
		if rep, _ := pages.levels(); rep != 0 {
			return badFile("The Parquet file is corrupt: a row of column %q begins inside a list.", pages.leaf.path)
		}
	}
	if len(c.leaves) == 0 {
		return badFile("Column %q of the Parquet file is a group without fields.", c.node.path)
	}
	a := assembler{column: c, base: c.node.leaf, out: slices.Grow(c.json[:0], 256)}
	_, def := c.leaves[0].levels()
	c.null = c.node.optional && def < c.node.def
	err := a.value(c.node)
	c.json = a.out
	return err
}

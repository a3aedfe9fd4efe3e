package columnar

import (
	"errors"
	"io"
	"math"
	"slices"
	"unicode/utf8"

	"github.com/parquet-go/parquet-go"

	"github.com/rowmill/rowmill"
)

// valuesAhead is how many values a column decodes at a time. More gains
// nothing measurable.
const valuesAhead = 512

// Rows goes through some columns of a file row by row, in lock step. It holds
// one page of each in memory and is for one goroutine.
type Rows struct {
	f       *File
	columns []*column
	group   int   // the next row group
	left    int64 // rows left in the current one
	row     int64 // rows given
	err     error
}

// column is one of the columns that Rows reads. A flat column has one cursor
// and its value stays in the cursor's buffer; any other's JSON is made at once.
type column struct {
	node    *node
	leaf    *Leaf     // as what an ID keeps its type, or nil
	cursors []*cursor // by leaf
	null    bool
	json    []byte
}

// Rows begins to read the columns with the given positions in Columns.
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

// Next moves to the next row. It returns io.EOF at the end. The values of the
// row before are gone then.
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
			cur := c.cursors[0]
			if cur.next == cur.n {
				if r.err = r.guarded(cur.fill); r.err != nil {
					return r.err
				}
			}
			cur.next++
			c.null = cur.buf[cur.next-1].IsNull()
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
	return r.guarded(func() error {
		for _, c := range r.columns {
			for _, cur := range c.cursors {
				cur.close()
			}
			c.cursors = nil
		}
		return nil
	})
}

func (r *Rows) nextGroup() error {
	if r.group == len(r.f.file.RowGroups()) {
		return io.EOF
	}
	err := r.guarded(func() error {
		for _, c := range r.columns {
			for _, cur := range c.cursors {
				cur.close()
			}
			c.cursors = c.cursors[:0]
			if err := c.open(r.f, r.group, c.node); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	r.left = r.f.file.RowGroups()[r.group].NumRows()
	r.group++
	return nil
}

func (r *Rows) guarded(f func() error) error { return r.f.src.guard("read Parquet file", f) }

// open makes cursors for the leaves in and under n.
func (c *column) open(f *File, group int, n *node) error {
	if n.isLeaf() {
		cur, err := newCursor(f, group, n)
		c.cursors = append(c.cursors, cur)
		return err
	}
	for _, child := range n.children {
		if err := c.open(f, group, child); err != nil {
			return err
		}
	}
	return nil
}

// cursor reads the values of one leaf in one row group.
type cursor struct {
	leaf    *node
	group   int
	guard   *pageGuard
	pages   parquet.Pages
	page    parquet.Page
	values  parquet.ValueReader
	buf     []parquet.Value
	next, n int // the next value in buf, and how many are there
}

func newCursor(f *File, group int, leaf *node) (*cursor, error) {
	m, err := f.chunk(group, leaf)
	if err != nil {
		return nil, err
	}
	chunk := f.file.RowGroups()[group].ColumnChunks()[leaf.leaf]
	return &cursor{
		leaf: leaf, group: group, guard: newPageGuard(f, leaf, m),
		pages: chunk.Pages(), buf: make([]parquet.Value, valuesAhead),
	}, nil
}

// fill reads further values, at least one. Values of before are gone then:
// they lie in a page that may be released.
func (c *cursor) fill() error {
	more, err := c.more()
	if err == nil && !more {
		err = badFile("The Parquet file is corrupt: column %q has fewer values than row group %d has rows.", c.leaf.path, c.group)
	}
	return err
}

// more is fill that reports the end of the chunk.
func (c *cursor) more() (bool, error) {
	c.next, c.n = 0, 0
	for {
		for c.values != nil {
			n, err := c.values.ReadValues(c.buf)
			if err != nil {
				c.values = nil
				if !errors.Is(err, io.EOF) {
					return false, err
				}
			}
			if n > 0 {
				c.n = n
				return true, nil
			}
		}
		if c.page != nil {
			parquet.Release(c.page)
			c.page = nil
		}
		if err := c.guard.next(); err != nil {
			return false, err
		}
		page, err := c.pages.ReadPage()
		if errors.Is(err, io.EOF) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		c.page, c.values = page, page.Values()
	}
}

func (c *cursor) close() {
	if c == nil || c.pages == nil {
		return
	}
	if c.page != nil {
		parquet.Release(c.page)
	}
	_ = c.pages.Close() // it only returns buffers to their pool
	c.pages, c.page, c.values = nil, nil, nil
}

// Text returns the value of column i as text: numbers as the shortest text
// that reads back, dates and times as RFC 3339 writes them, binary columns of
// fixed length in hexadecimal, groups, lists and maps as JSON, null and NaN as
// the empty string.
func (r *Rows) Text(i int) (string, error) {
	c := r.columns[i]
	switch {
	case c.null:
		return "", nil
	case c.cursors == nil:
		return "", errors.New("rows are closed")
	case !c.node.flat():
		return string(c.json), nil
	}
	v := c.value()
	if c.node.kind.class == classText && v.Kind() == parquet.ByteArray {
		b := v.ByteArray()
		if !utf8.Valid(b) {
			return "", r.notText(c)
		}
		return string(b), nil
	}
	b, err := c.node.kind.appendText(make([]byte, 0, 48), *v)
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
	if c.node.flat() && c.cursors != nil {
		if c.leaf != nil {
			return r.leafID(c)
		}
		if id, ok := c.node.kind.number(*c.value()); ok {
			return id, nil
		}
	}
	text, err := r.Text(i)
	return rowmill.ID{Kind: rowmill.IDString, Text: text}, err
}

// leafID is the value of a column as the file has it. NaN is how data frames
// write a missing number, so it becomes null.
func (r *Rows) leafID(c *column) (rowmill.ID, error) {
	v := c.value()
	if v.Kind() != c.node.kind.physical {
		return rowmill.ID{}, r.at(c, errKind)
	}
	if k := &c.node.kind; (k.class == classFloat || k.class == classHalf) && math.IsNaN(k.float(*v)) {
		return rowmill.ID{}, nil
	}
	id := rowmill.ID{Kind: rowmill.IDLeafValue, Text: string(v.AppendBytes(make([]byte, 0, 16)))}
	if !c.leaf.Fits(id.Text) {
		return rowmill.ID{}, badFile("Column %q of row %d has a value of %d bytes, which its type does not permit.", c.node.name, r.row-1, len(id.Text))
	}
	return id, nil
}

// IDType is the type of the ids in the column at a position in Columns.
func (f *File) IDType(i int) (rowmill.IDType, error) {
	return f.root.children[i].idType(f.notes[i])
}

func (c *column) value() *parquet.Value {
	cur := c.cursors[0]
	return &cur.buf[cur.next-1]
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
	for _, cur := range c.cursors {
		if cur.next == cur.n {
			if err := cur.fill(); err != nil {
				return err
			}
		}
		if cur.buf[cur.next].RepetitionLevel() != 0 {
			return badFile("The Parquet file is corrupt: a row of column %q begins inside a list.", cur.leaf.path)
		}
	}
	if len(c.cursors) == 0 {
		return badFile("Column %q of the Parquet file is a group without fields.", c.node.path)
	}
	a := assembler{column: c, base: c.node.leaf, out: slices.Grow(c.json[:0], 256)}
	first := c.cursors[0]
	c.null = c.node.optional && first.buf[first.next].DefinitionLevel() < c.node.def
	err := a.value(c.node)
	c.json = a.out
	return err
}

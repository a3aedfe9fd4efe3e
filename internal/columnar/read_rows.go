package columnar

import (
	"errors"
	"io"
	"math"
	"slices"
	"unicode/utf8"

	"github.com/rowmill/rowmill"
)

// RowReader reads some columns of a user's file together, row by row. It has one page per
// column in memory. Only one goroutine may use it.
type RowReader struct {
	f       *File
	columns []*columnCursor // the columns that are read
	group   int             // number of the next row group
	left    int64           // number of unread rows in the current row group
	row     int64           // number of rows returned so far
	err     error           // error that every later Next returns
}

// columnCursor is a column that a RowReader reads. A flat column has one leaf, and its
// value stays in the leaf's page. For a nested column, the value is built as JSON at once.
type columnCursor struct {
	node   *schemaNode
	leaf   *LeafType     // type of the IDs in this column if it is a leaf type, or nil
	leaves []*pageReader // readers of all leaves in or under the node
	null   bool          // true if the current value is null
	raw    []byte        // current value of a flat column, as pageReader.takeValue returns it
	json   []byte        // current value of a nested column
}

// Rows begins to read columns. Each argument is a column's position in Columns.
func (f *File) Rows(columns ...int) *RowReader {
	r := &RowReader{f: f}
	for _, i := range columns {
		c := &columnCursor{node: f.root.children[i]}
		if c.node.isFlat() {
			if leaf, ok := leafWithArrowType(c.node.element, f.notes[i]); ok {
				c.leaf = leaf
			}
		}
		r.columns = append(r.columns, c)
	}
	return r
}

// Next moves to the next row. The values of the previous row become invalid. After the
// last row it returns io.EOF.
func (r *RowReader) Next() error {
	if r.err != nil {
		return r.err
	}
	for r.left == 0 {
		if r.err = r.nextGroup(); r.err != nil {
			return r.err
		}
	}
	for _, c := range r.columns {
		if c.node.isFlat() {
			pages := c.leaves[0]
			if pages.next == pages.n {
				if r.err = r.runGuarded(pages.requireNext); r.err != nil {
					return r.err
				}
			}
			var ok bool
			c.raw, ok = pages.takeValue()
			c.null = !ok
			continue
		}
		if r.err = r.runGuarded(c.assembleJSON); r.err != nil {
			return r.err
		}
	}
	r.left--
	r.row++
	return nil
}

// Close frees the pages in memory. It does not close the file.
func (r *RowReader) Close() error {
	if r.err == nil {
		r.err = errors.New("rows are closed")
	}
	for _, c := range r.columns {
		c.close()
	}
	return nil
}

// nextGroup opens the columns of the next row group. After the last row group it
// returns io.EOF.
func (r *RowReader) nextGroup() error {
	err := r.runGuarded(func() error {
		for _, c := range r.columns {
			if err := c.checkExhausted(); err != nil {
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

// runGuarded calls f. A panic of f becomes an error.
func (r *RowReader) runGuarded(f func() error) error {
	return r.f.src.runGuarded("read Parquet file", f)
}

// open creates a page reader for each leaf in or under n.
func (c *columnCursor) open(f *File, group int, n *schemaNode) error {
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

// checkExhausted returns an error if the pages of a row group have more rows than the row group.
func (c *columnCursor) checkExhausted() error {
	for _, pages := range c.leaves {
		more, err := pages.hasNext()
		if err != nil {
			return err
		}
		if more {
			return newFormatError("The Parquet file is corrupt: column %q has more rows than row group %d.", pages.leaf.path, pages.group)
		}
	}
	return nil
}

func (c *columnCursor) close() {
	for _, pages := range c.leaves {
		pages.close()
	}
	c.leaves = c.leaves[:0]
}

// Text returns the value of column i as text. i is a position in the arguments of
// File.Rows. A number becomes the shortest text that parses back to the number. Dates
// and times follow RFC 3339. A binary value of fixed length becomes hexadecimal. A
// group, list or map becomes JSON. Null and NaN become an empty string.
func (r *RowReader) Text(i int) (string, error) {
	c := r.columns[i]
	switch {
	case c.null:
		return "", nil
	case len(c.leaves) == 0:
		return "", errors.New("rows are closed")
	case !c.node.isFlat():
		return string(c.json), nil
	}
	if c.node.kind.class == classText {
		if !utf8.Valid(c.raw) {
			return "", r.notTextError(c)
		}
		return string(c.raw), nil
	}
	b, err := c.node.kind.appendText(make([]byte, 0, 48), c.raw)
	if err != nil {
		return "", r.textError(c, err)
	}
	return string(b), nil
}

// ID returns the value of column i as an ID with its type. i is a position in the
// arguments of File.Rows.
func (r *RowReader) ID(i int) (rowmill.ID, error) {
	c := r.columns[i]
	if c.null {
		return rowmill.ID{}, nil
	}
	if c.node.isFlat() && len(c.leaves) > 0 {
		if c.leaf != nil {
			return r.leafID(c)
		}
		if id, ok := c.node.kind.numericID(c.raw); ok {
			return id, nil
		}
	}
	text, err := r.Text(i)
	return rowmill.ID{Kind: rowmill.IDString, Text: text}, err
}

// leafID returns the current value of a column as an ID that has the type in the file.
// NaN becomes null, because data frames write NaN for a missing number.
func (r *RowReader) leafID(c *columnCursor) (rowmill.ID, error) {
	if k := &c.node.kind; (k.class == classFloat || k.class == classHalf) && math.IsNaN(k.decodeFloat(c.raw)) {
		return rowmill.ID{}, nil
	}
	id := rowmill.ID{Kind: rowmill.IDLeafValue, Text: string(c.raw)}
	if !c.leaf.CanHold(id.Text) {
		return rowmill.ID{}, newFormatError("Column %q of row %d has a value of %d bytes, which the column's type does not permit.", c.node.name, r.row-1, len(id.Text))
	}
	return id, nil
}

// IDType returns the type of the IDs if column i is the ID column. i is a position in
// Columns.
func (f *File) IDType(i int) (rowmill.IDType, error) {
	return f.root.children[i].idType(f.notes[i])
}

// notTextError returns the error for a value of a text column that is not UTF-8.
func (r *RowReader) notTextError(c *columnCursor) error {
	return newFormatError("Column %q of row %d is not UTF-8 text. Write the column as strings.", c.node.name, r.row-1)
}

// textError returns the error for a value that cannot become text. It names the column and the
// row.
func (r *RowReader) textError(c *columnCursor, err error) error {
	if errors.Is(err, errNotText) {
		return r.notTextError(c)
	}
	return newFormatError("Column %q of row %d cannot be turned into text: %v.", c.node.name, r.row-1, err)
}

// assembleJSON reads the value of a nested column in the next row, and stores it as JSON in
// c.json.
func (c *columnCursor) assembleJSON() error {
	for _, pages := range c.leaves {
		if err := pages.requireNext(); err != nil {
			return err
		}
		if rep, _ := pages.levels(); rep != 0 {
			return newFormatError("The Parquet file is corrupt: a row of column %q begins inside a list.", pages.leaf.path)
		}
	}
	if len(c.leaves) == 0 {
		return newFormatError("Column %q of the Parquet file is a group without fields.", c.node.path)
	}
	a := jsonAssembler{column: c, base: c.node.leaf, out: slices.Grow(c.json[:0], 256)}
	_, def := c.leaves[0].levels()
	c.null = c.node.optional && def < c.node.def
	err := a.appendNode(c.node)
	c.json = a.out
	return err
}

package results

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/internal/columnar"
)

// RowVisitor is called with a row and its outcome. It must not keep row or out after it
// returns.
type RowVisitor func(row *rowmill.Row, out *rowmill.RowOutput) error

// VisitPartRows calls visit for the accepted rows of a shard's parts, each row once, in
// order. Rows of the shard may be missing. VisitPartRows needs no more memory than
// MergeParts.
func VisitPartRows(ctx context.Context, s Schema, parts []PartSource, visit RowVisitor) error {
	var waiting []*mergePart
	for i, p := range parts {
		if p.Accept == nil || !p.Accept.IsEmpty() {
			waiting = append(waiting, newPart(i, p))
		}
	}
	open, err := openOrMergeParts(ctx, s, waiting)
	defer closeParts(open)
	if err != nil {
		return fmt.Errorf("read %d parts: %w", len(parts), err)
	}
	all := &rowScan{columns: s.columns()} // for column positions only; the merge reads the blocks
	read := newRowReader(s, all)
	err = visitAcceptedRows(ctx, open, func(c *partCursor) error {
		read.clear()
		read.readCells(all, c.block, c.at)
		read.tries = c.tries
		if err := read.finish(); err != nil {
			return fmt.Errorf("part %d: %w", c.number, err)
		}
		return visit(read.row, read.out)
	})
	if err != nil {
		return fmt.Errorf("read %d parts: %w", len(parts), err)
	}
	return nil
}

// ResultReader reads the stored result of a job that succeeded.
type ResultReader struct {
	schema        Schema
	content, rows *columnar.Table // the full file and the "rows" file
}

// OpenResult reads the footers of a job's full file and "rows" file. The caller closes
// both files.
func OpenResult(s Schema, full, rows Source) (*ResultReader, error) {
	r := &ResultReader{schema: s}
	var err error
	if r.content, r.rows, err = openResultTables(full, rows); err == nil {
		_, err = r.reader() // only to find out if a column is missing
	}
	if err != nil {
		return nil, fmt.Errorf("read results: %w", err)
	}
	return r, nil
}

// reader returns a new reader of all rows.
func (r *ResultReader) reader() (*rowReader, error) {
	first, err := newRowScan(r.content, namesOf(r.schema.variantColumns(Full))...)
	if err != nil {
		return nil, err
	}
	second, err := newRowScan(r.rows, namesOf(r.schema.reservedColumns())...)
	if err != nil {
		return nil, err
	}
	read := newRowReader(r.schema, first, second)
	read.tries, err = newAttemptsReader(r.rows)
	return read, err
}

// Each calls visit for the rows from from (included) to to (excluded).
func (r *ResultReader) Each(ctx context.Context, from, to int64, visit RowVisitor) error {
	read, err := r.reader()
	if err != nil {
		return fmt.Errorf("read results: %w", err)
	}
	for n := from; n < to; n++ {
		if n%checkEvery == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		if err := read.visit(n, visit); err != nil {
			return err
		}
	}
	return nil
}

// Lookup returns a function that calls visit for row n. It reads rows in ascending order fast.
func (r *ResultReader) Lookup() (func(n int64, visit RowVisitor) error, error) {
	read, err := r.reader()
	if err != nil {
		return nil, fmt.Errorf("read results: %w", err)
	}
	return read.visit, nil
}

// visit reads row n and calls visit for it.
func (r *rowReader) visit(n int64, visit RowVisitor) error {
	if err := r.readRow(n); err != nil {
		return fmt.Errorf("read row %d: %w", n, err)
	}
	if r.row.Index != n {
		return fmt.Errorf("read row %d: the file has row %d in its position", n, r.row.Index)
	}
	return visit(r.row, r.out)
}

// rowReader reads rows and their outcomes from the columns of one or two files. Values
// of columns that are not scanned are zero.
type rowReader struct {
	Schema
	record                 // the row that was read last
	scans  []*rowScan      // scans of the columns for clients and of the reserved columns
	tries  *attemptsReader // nil if the files have no attempts
}

func newRowReader(s Schema, scans ...*rowScan) *rowReader {
	r := &rowReader{Schema: s, scans: scans}
	r.record = record{row: new(rowmill.Row), out: new(rowmill.RowOutput), err: new(rowmill.RowError), fields: make([]string, len(s.Fields))}
	all := s.table(Full)
	for _, scan := range scans {
		for _, scanned := range scan.columns {
			at := slices.IndexFunc(all, func(c column) bool { return c.Name == scanned.Name })
			value, has := all[at].cell(&r.record)
			scan.values, scan.has = append(scan.values, value), append(scan.has, has)
		}
	}
	return r
}

// newAnswerReader returns a reader of IDs, inputs, outputs and the named reserved columns.
func newAnswerReader(content, reserved *columnar.Table, names ...string) (*rowReader, error) {
	s, err := schemaOf(content)
	if err != nil {
		return nil, err
	}
	texts := []string{columnInputs, s.OutputName()}
	if s.IDColumn != "" {
		texts = append(texts, s.IDColumn)
	}
	first, err := newRowScan(content, texts...)
	if err != nil {
		return nil, err
	}
	second, err := newRowScan(reserved, names...)
	if err != nil {
		return nil, err
	}
	return newRowReader(s, first, second), nil
}

// readRow reads the row at a position into r.row and r.out.
func (r *rowReader) readRow(position int64) error {
	r.clear()
	for _, scan := range r.scans {
		b, i, err := scan.blockAt(position)
		if err != nil {
			return err
		}
		r.readCells(scan, b, i)
	}
	return r.finish()
}

// output returns the output of the last row: a string, a []float32, or nil for a null.
func (r *rowReader) output() any {
	switch {
	case !r.hasOutput:
		return nil
	case r.Embedding:
		return r.out.Embedding
	default:
		return r.out.Text
	}
}

// clear removes the previous row from the record.
func (r *rowReader) clear() {
	*r.row, *r.out = rowmill.Row{}, rowmill.RowOutput{}
	if r.hasError {
		*r.err = rowmill.RowError{}
	}
	clear(r.fields)
}

// readCells reads row i of b, a block with the columns of scan, into the record.
func (r *rowReader) readCells(scan *rowScan, b *columnar.RowBlock, i int) {
	for c, value := range scan.values {
		isNull := b.IsNull(c, i)
		if has := scan.has[c]; has != nil {
			*has = !isNull
		}
		if isNull {
			continue
		}
		switch v := value.(type) {
		case *string:
			*v = string(b.Text(c, i))
		case *checkedText:
			*v = checkedText(b.Text(c, i))
		case *int64:
			*v = b.Int(c, i)
		case *int:
			*v = int(b.Int(c, i))
		case *float64:
			*v = b.Real(c, i)
		case *[]float32:
			*v = b.AppendFloats(c, i, nil)
		case *rowmill.ID:
			readID(v, r.IDKind, b, c, i)
		}
	}
}

// finish completes r.row and r.out after all cells of a row were read. It is the inverse of
// PartWriter.setRecord.
func (r *rowReader) finish() (err error) {
	if r.hasFields {
		r.row.Fields = EncodeFields(r.fields)
	}
	if r.hasError {
		why := *r.err
		r.out.Err = &why
	}
	r.out.HasScore = r.hasScore
	r.out.Tries, err = r.tries.attempts(r.row.Index)
	return err
}

// EncodeFields encodes the values of a Function's fields as JSON, for rowmill.Row.Fields.
func EncodeFields(values []string) string {
	text, _ := json.Marshal(values) // never fails for strings
	return string(text)
}

// readID sets id to the ID of row i in column c of a block.
func readID(id *rowmill.ID, kind rowmill.IDKind, b *columnar.RowBlock, c, i int) {
	switch id.Kind = kind; kind {
	case rowmill.IDInt:
		id.Int = b.Int(c, i)
	case rowmill.IDUint:
		id.Int = int64(b.Uint(c, i))
	case rowmill.IDFloat:
		id.Real = b.Real(c, i)
	case rowmill.IDBool:
		if b.Bool(c, i) {
			id.Int = 1
		}
	case rowmill.IDLeafValue:
		id.Text = string(b.Leaf(c, i))
	default:
		id.Text = string(b.Text(c, i))
	}
}

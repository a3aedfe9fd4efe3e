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
	read := newRowReader(s, all, all)
	err = visitAcceptedRows(ctx, open, func(c *partCursor) (err error) {
		read.readInputAndAnswer(c.block, c.at)
		read.readReservedColumns(c.block, c.at)
		if read.out.Tries, err = c.tries.attempts(c.row); err != nil {
			return fmt.Errorf("part %d: %w", c.number, err)
		}
		return visit(&read.row, &read.out)
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

// namesOf returns the names of columns.
func namesOf(columns []columnar.TableColumn) (names []string) {
	for _, c := range columns {
		names = append(names, c.Name)
	}
	return names
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
		if err := read.readRow(n); err != nil {
			return fmt.Errorf("read row %d: %w", n, err)
		}
		if read.row.Index != n {
			return fmt.Errorf("read row %d: the file has row %d in its position", n, read.row.Index)
		}
		if err := visit(&read.row, &read.out); err != nil {
			return err
		}
	}
	return nil
}

// rowReader reads rows and their outcomes from the columns of one or two files. Values
// of columns that are not scanned are zero.
type rowReader struct {
	Schema
	client, reserved *rowScan        // scans of the columns for clients and of the reserved columns
	tries            *attemptsReader // nil if the files have no attempts

	id, input, answer, score int   // column positions in client, or -1 if not scanned
	fields                   []int // positions in client of the columns of a Function's fields
	index, finish, engine    int   // column positions in reserved, or -1 if not scanned
	inTokens, outTokens      int   // column positions in reserved, or -1 if not scanned
	attempts, code, message  int   // column positions in reserved, or -1 if not scanned
	raw                      int   // column position in reserved, or -1 if not scanned

	row       rowmill.Row       // row that was read last
	out       rowmill.RowOutput // outcome of row
	hasOutput bool              // true if the output is not null
	values    []string          // buffer for the fields of a row
}

func newRowReader(s Schema, client, reserved *rowScan) *rowReader {
	find := func(in *rowScan, name string) int {
		return slices.IndexFunc(in.columns, func(c columnar.TableColumn) bool { return c.Name == name })
	}
	r := &rowReader{
		Schema: s, client: client, reserved: reserved,
		id: find(client, s.IDColumn), input: find(client, columnInputs), answer: find(client, s.JobID), score: find(client, columnScore),
		index: find(reserved, columnRow), finish: find(reserved, columnFinish), engine: find(reserved, columnEngine),
		inTokens: find(reserved, columnInputTokens), outTokens: find(reserved, columnOutputTokens),
		attempts: find(reserved, columnAttempts), code: find(reserved, columnCode), message: find(reserved, columnMessage),
		raw: find(reserved, columnRaw),
	}
	for _, name := range s.Fields {
		if c := find(client, name); c >= 0 {
			r.fields = append(r.fields, c)
		}
	}
	return r
}

// readRow reads the row at a position into r.row and r.out.
func (r *rowReader) readRow(position int64) error {
	b, i, err := r.client.blockAt(position)
	if err != nil {
		return err
	}
	r.readInputAndAnswer(b, i)
	if b, i, err = r.reserved.blockAt(position); err != nil {
		return err
	}
	r.readReservedColumns(b, i)
	r.out.Tries, err = r.tries.attempts(r.row.Index)
	return err
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

// readInputAndAnswer clears the previous row, and reads row i of b from the columns for
// clients.
func (r *rowReader) readInputAndAnswer(b *columnar.RowBlock, i int) {
	// The input is null if the row did not run and its input was removed.
	r.row, r.out = rowmill.Row{Text: cellText(b, r.input, i), Fields: r.readFields(b, i)}, rowmill.RowOutput{}
	if r.id >= 0 && !b.IsNull(r.id, i) {
		r.row.ID = readID(r.IDKind, b, r.id, i)
	}
	r.hasOutput = !b.IsNull(r.answer, i)
	switch {
	case !r.hasOutput:
	case r.Embedding:
		r.out.Embedding = b.AppendFloats(r.answer, i, nil)
	default:
		r.out.Text = cellText(b, r.answer, i)
	}
	if r.score >= 0 && !b.IsNull(r.score, i) {
		r.out.HasScore, r.out.Score = true, b.Real(r.score, i)
	}
}

// readFields returns the row's fields as rowmill.Row.Fields has them. It is the inverse
// of PartWriter.addFields.
func (r *rowReader) readFields(b *columnar.RowBlock, i int) string {
	if len(r.fields) == 0 || b.IsNull(r.fields[0], i) {
		return ""
	}
	r.values = r.values[:0]
	for _, c := range r.fields {
		r.values = append(r.values, cellText(b, c, i))
	}
	return EncodeFields(r.values)
}

// EncodeFields encodes the values of a Function's fields as JSON, for rowmill.Row.Fields.
func EncodeFields(values []string) string {
	text, _ := json.Marshal(values) // never fails for strings
	return string(text)
}

// readID returns the ID of row i in column c of a block.
func readID(kind rowmill.IDKind, b *columnar.RowBlock, c, i int) rowmill.ID {
	id := rowmill.ID{Kind: kind}
	switch kind {
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
	return id
}

// readReservedColumns reads row i of b from the reserved columns.
func (r *rowReader) readReservedColumns(b *columnar.RowBlock, i int) {
	number := func(c int) int64 {
		if c < 0 {
			return 0
		}
		return b.Int(c, i)
	}
	r.row.Index = number(r.index)
	r.out.Finish, r.out.Engine = rowmill.FinishReason(cellText(b, r.finish, i)), cellText(b, r.engine, i)
	r.out.InputTokens, r.out.OutputTokens, r.out.Attempts = number(r.inTokens), number(r.outTokens), int(number(r.attempts))
	if r.code >= 0 && !b.IsNull(r.code, i) {
		r.out.Err = &rowmill.RowError{Code: cellText(b, r.code, i), Message: cellText(b, r.message, i), Raw: cellText(b, r.raw, i)}
	}
}

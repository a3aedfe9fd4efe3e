package results

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/internal/columnar"
)

// Visit gets a row and its outcome. It must not keep either.
type Visit func(row *rowmill.Row, out *rowmill.Output) error

// EachOfParts visits the accepted rows of a shard's parts, each row once, in order.
// The parts need not have all rows of the shard. EachOfParts needs no more memory than
// Merge.
func EachOfParts(ctx context.Context, s Schema, parts []PartSource, visit Visit) error {
	var waiting []*mergePart
	for i, p := range parts {
		if p.Accept == nil || !p.Accept.IsEmpty() {
			waiting = append(waiting, newPart(i, p))
		}
	}
	open, err := reduceParts(ctx, s, waiting)
	defer closeParts(open)
	if err != nil {
		return fmt.Errorf("read %d parts: %w", len(parts), err)
	}
	all := &rowScan{columns: s.columns()} // the merge reads the blocks
	read := newRowReader(s, all, all)
	err = walk(ctx, open, func(c *cursor) (err error) {
		read.readClientColumns(c.block, c.at)
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

// Result is the stored result of a job that succeeded, open for reading.
type Result struct {
	schema        Schema
	content, rows *columnar.Table
}

// OpenResult reads the footers of a job's full file and of its "rows" file. The
// caller closes both.
func OpenResult(s Schema, full, rows Source) (*Result, error) {
	r := &Result{schema: s}
	var err error
	if r.content, r.rows, err = openBoth(full, rows); err == nil {
		_, err = r.reader() // only to get an error if a column is missing
	}
	if err != nil {
		return nil, fmt.Errorf("read results: %w", err)
	}
	return r, nil
}

// reader returns a new reader of all rows.
func (r *Result) reader() (*rowReader, error) {
	first, err := newRowScan(r.content, namesOf(r.schema.variantColumns(Full))...)
	if err != nil {
		return nil, err
	}
	second, err := newRowScan(r.rows, namesOf(r.schema.rowsColumns())...)
	if err != nil {
		return nil, err
	}
	read := newRowReader(r.schema, first, second)
	read.tries, err = newTriesReader(r.rows)
	return read, err
}

func namesOf(columns []columnar.TableColumn) (names []string) {
	for _, c := range columns {
		names = append(names, c.Name)
	}
	return names
}

// Each visits the rows from from (included) to to (excluded).
func (r *Result) Each(ctx context.Context, from, to int64, visit Visit) error {
	read, err := r.reader()
	if err != nil {
		return fmt.Errorf("read results: %w", err)
	}
	for n := from; n < to; n++ {
		if n%checkEvery == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		if err := read.read(n); err != nil {
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

// rowReader reads rows and their outcomes from the columns of files. Columns that are
// not scanned stay zero.
type rowReader struct {
	Schema
	client, reserved *rowScan     // the columns of clients' files and the reserved columns, of one file or two
	tries            *triesReader // nil if there are no attempts

	id, input, answer, score int // positions in client, or -1
	fields                   []int
	index, finish, engine    int // positions in reserved, or -1
	inTokens, outTokens      int
	attempts, code, message  int
	raw                      int

	row      rowmill.Row
	out      rowmill.Output
	answered bool // the output is not null
	values   []string
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

// read reads the row at a position.
func (r *rowReader) read(position int64) error {
	b, i, err := r.client.at(position)
	if err != nil {
		return err
	}
	r.readClientColumns(b, i)
	if b, i, err = r.reserved.at(position); err != nil {
		return err
	}
	r.readReservedColumns(b, i)
	r.out.Tries, err = r.tries.attempts(r.row.Index)
	return err
}

// output returns the output as a string or as []float32, or nil.
func (r *rowReader) output() any {
	switch {
	case !r.answered:
		return nil
	case r.Embedding:
		return r.out.Embedding
	default:
		return r.out.Text
	}
}

// readClientColumns reads the columns of clients' files, and clears the row
// read before.
func (r *rowReader) readClientColumns(b *columnar.Block, i int) {
	// The input is null for a row that did not run and whose input was removed.
	r.row, r.out = rowmill.Row{Text: text(b, r.input, i), Fields: r.readFields(b, i)}, rowmill.Output{}
	if r.id >= 0 && !b.Null(r.id, i) {
		r.row.ID = readID(r.IDKind, b, r.id, i)
	}
	r.answered = !b.Null(r.answer, i)
	switch {
	case !r.answered:
	case r.Embedding:
		r.out.Embedding = b.Floats(r.answer, i, nil)
	default:
		r.out.Text = text(b, r.answer, i)
	}
	if r.score >= 0 && !b.Null(r.score, i) {
		r.out.HasScore, r.out.Score = true, b.Real(r.score, i)
	}
}

// readFields is the inverse of PartWriter.addFields.
func (r *rowReader) readFields(b *columnar.Block, i int) string {
	if len(r.fields) == 0 || b.Null(r.fields[0], i) {
		return ""
	}
	r.values = r.values[:0]
	for _, c := range r.fields {
		r.values = append(r.values, text(b, c, i))
	}
	return FieldsOf(r.values)
}

// FieldsOf encodes the values of fields as rowmill.Row.Fields holds them.
func FieldsOf(values []string) string {
	text, _ := json.Marshal(values) // strings can always be encoded
	return string(text)
}

func readID(kind rowmill.IDKind, b *columnar.Block, c, i int) rowmill.ID {
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

// readReservedColumns reads the reserved columns.
func (r *rowReader) readReservedColumns(b *columnar.Block, i int) {
	number := func(c int) int64 {
		if c < 0 {
			return 0
		}
		return b.Int(c, i)
	}
	r.row.Index = number(r.index)
	r.out.Finish, r.out.Engine = rowmill.FinishReason(text(b, r.finish, i)), text(b, r.engine, i)
	r.out.InputTokens, r.out.OutputTokens, r.out.Attempts = number(r.inTokens), number(r.outTokens), int(number(r.attempts))
	if r.code >= 0 && !b.Null(r.code, i) {
		r.out.Err = &rowmill.RowError{Code: text(b, r.code, i), Message: text(b, r.message, i), Raw: text(b, r.raw, i)}
	}
}

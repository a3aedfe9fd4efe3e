package results

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/internal/columnar"
)

// Visit gets a row and its outcome. It must not keep either.
type Visit func(row *rowmill.Row, out *rowmill.Output) error

// EachOfParts visits the accepted rows of a shard's parts, each row once, in
// order. Rows may be missing. It needs no more memory than Merge.
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
	read := newRowReader(s, s.columns(), s.columns())
	err = walk(ctx, open, func(c *cursor) (err error) {
		read.readClientColumns(c.block, c.at)
		read.readReservedColumns(c.block, c.at)
		if read.out.Tries, err = c.tries.of(c.row); err != nil {
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
	content, err := open(full)
	if err != nil {
		return nil, fmt.Errorf("read results: %w", err)
	}
	reserved, err := open(rows)
	if err != nil {
		return nil, fmt.Errorf("read results: %w", err)
	}
	if read := newRowReader(s, content.Columns(), reserved.Columns()); read.missing != "" {
		return nil, fmt.Errorf("read results: the files have no column %q", read.missing)
	}
	return &Result{s, content, reserved}, nil
}

// Each visits the rows from from (included) to to (excluded).
func (r *Result) Each(ctx context.Context, from, to int64, visit Visit) error {
	read := newRowReader(r.schema, r.content.Columns(), r.rows.Columns())
	tries, err := newTriesReader(r.rows)
	if err != nil {
		return fmt.Errorf("read results: %w", err)
	}
	first, second := scanFrom(r.content, from), scanFrom(r.rows, from)
	for n := from; n < to; n++ {
		if n%checkEvery == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		a, i, err := first.at(n)
		if err != nil {
			return fmt.Errorf("read row %d: %w", n, err)
		}
		b, j, err := second.at(n)
		if err != nil {
			return fmt.Errorf("read row %d: %w", n, err)
		}
		read.readClientColumns(a, i)
		read.readReservedColumns(b, j)
		if read.out.Tries, err = tries.of(n); err != nil {
			return err
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

// positionScan reads a table's rows in order, by position.
type positionScan struct {
	scan  *columnar.TableScan
	block *columnar.Block
	err   error
}

func scanFrom(t *columnar.Table, place int64) *positionScan {
	all := make([]int, len(t.Columns()))
	for i := range all {
		all[i] = i
	}
	s := &positionScan{scan: t.Scan(all...)}
	s.err = s.scan.SeekRow(place)
	return s
}

func (s *positionScan) at(position int64) (*columnar.Block, int, error) {
	for s.err == nil && (s.block == nil || position >= s.block.First+int64(s.block.Rows)) {
		if s.block, s.err = s.scan.Next(); errors.Is(s.err, io.EOF) {
			s.err = io.ErrUnexpectedEOF
		}
	}
	if s.err != nil {
		return nil, 0, s.err
	}
	return s.block, int(position - s.block.First), nil
}

// rowReader converts the rows of blocks to rows and outcomes. It finds columns
// by name.
type rowReader struct {
	Schema
	id, input, output, score                                                  int
	index, finish, inputTokens, outputTokens, engine, attempts, code, message int
	raw                                                                       int
	fields                                                                    []int
	values                                                                    []string
	missing                                                                   string // a column that the file does not have

	row rowmill.Row
	out rowmill.Output
}

func newRowReader(s Schema, content, origin []columnar.TableColumn) *rowReader {
	r := &rowReader{Schema: s, id: -1}
	find := func(columns []columnar.TableColumn, name string) int {
		for i, c := range columns {
			if c.Name == name {
				return i
			}
		}
		r.missing = name
		return -1
	}
	if s.IDColumn != "" {
		r.id = find(content, s.IDColumn)
	}
	for _, name := range s.Fields {
		r.fields = append(r.fields, find(content, name))
	}
	r.input, r.output, r.score = find(content, columnInputs), find(content, s.JobID), find(content, columnScore)
	r.index, r.finish, r.engine = find(origin, columnRow), find(origin, columnFinish), find(origin, columnEngine)
	r.inputTokens, r.outputTokens, r.attempts = find(origin, columnInputTokens), find(origin, columnOutputTokens), find(origin, columnAttempts)
	r.code, r.message, r.raw = find(origin, columnCode), find(origin, columnMessage), find(origin, columnRaw)
	return r
}

// readClientColumns reads the columns of clients' files, and clears the row
// read before.
func (r *rowReader) readClientColumns(b *columnar.Block, i int) {
	r.row, r.out = rowmill.Row{}, rowmill.Output{}
	if !b.Null(r.input, i) { // null for a row that did not run and whose input was removed
		r.row.Text = string(b.Text(r.input, i))
	}
	if r.id >= 0 && !b.Null(r.id, i) {
		r.row.ID = readID(r.IDKind, b, r.id, i)
	}
	r.row.Fields = r.readFields(b, i)
	switch {
	case b.Null(r.output, i):
	case r.Embedding:
		r.out.Embedding = b.Floats(r.output, i, nil)
	default:
		r.out.Text = string(b.Text(r.output, i))
	}
	if r.out.HasScore = !b.Null(r.score, i); r.out.HasScore {
		r.out.Score = b.Real(r.score, i)
	}
}

// readFields is the inverse of PartWriter.addFields.
func (r *rowReader) readFields(b *columnar.Block, i int) string {
	if len(r.fields) == 0 || b.Null(r.fields[0], i) {
		return ""
	}
	r.values = r.values[:0]
	for _, c := range r.fields {
		r.values = append(r.values, string(b.Text(c, i)))
	}
	return FieldsOf(r.values)
}

// FieldsOf encodes values for rowmill.Row.Fields.
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
	text := func(c int) string {
		if b.Null(c, i) {
			return ""
		}
		return string(b.Text(c, i))
	}
	r.row.Index = b.Int(r.index, i)
	r.out.Finish, r.out.Engine = rowmill.FinishReason(text(r.finish)), text(r.engine)
	r.out.InputTokens, r.out.OutputTokens, r.out.Attempts = b.Int(r.inputTokens, i), b.Int(r.outputTokens, i), int(b.Int(r.attempts, i))
	if !b.Null(r.code, i) {
		r.out.Err = &rowmill.RowError{Code: text(r.code), Message: text(r.message), Raw: text(r.raw)}
	}
}

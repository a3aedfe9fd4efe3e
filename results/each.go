package results

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/columnar"
)

// Visit is given a row and its outcome. It may keep neither.
type Visit func(row *rowmill.Row, out *rowmill.Output) error

// EachOfParts visits the rows that count of a shard's parts, in order and each
// once, whatever gaps there are between them. It holds no more than Merge does.
func EachOfParts(ctx context.Context, s Schema, parts []PartSource, visit Visit) error {
	var waiting []*mergePart
	for i, p := range parts {
		if p.Accept == nil || !p.Accept.IsEmpty() {
			waiting = append(waiting, newPart(i, p))
		}
	}
	open, err := gather(ctx, s, waiting)
	defer closeParts(open)
	if err != nil {
		return fmt.Errorf("read %d parts: %w", len(parts), err)
	}
	read := newRowReader(s, s.columns(), s.columns())
	err = walk(ctx, open, func(c *cursor) (err error) {
		read.content(c.block, c.at)
		read.origin(c.block, c.at)
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

// A Result is what a job that has succeeded left, open for reading.
type Result struct {
	schema        Schema
	content, rows *columnar.Table
}

// OpenResult reads the footers of a job's full file and of its "rows" file, which
// the caller closes.
func OpenResult(s Schema, full, rows Source) (*Result, error) {
	content, err := open(full)
	if err != nil {
		return nil, fmt.Errorf("read results: %w", err)
	}
	reserved, err := open(rows)
	if err != nil {
		return nil, fmt.Errorf("read results: %w", err)
	}
	if read := newRowReader(s, content.Columns(), reserved.Columns()); read.lacks != "" {
		return nil, fmt.Errorf("read results: they have no column %q", read.lacks)
	}
	return &Result{s, content, reserved}, nil
}

// Each visits the rows from from to to, which is excluded.
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
		read.content(a, i)
		read.origin(b, j)
		if read.out.Tries, err = tries.of(n); err != nil {
			return err
		}
		if read.row.Index != n {
			return fmt.Errorf("read row %d: row %d stands in its place", n, read.row.Index)
		}
		if err := visit(&read.row, &read.out); err != nil {
			return err
		}
	}
	return nil
}

// A placeScan reads a table's rows one after the other by their place.
type placeScan struct {
	scan  *columnar.TableScan
	block *columnar.Block
	err   error
}

func scanFrom(t *columnar.Table, place int64) *placeScan {
	all := make([]int, len(t.Columns()))
	for i := range all {
		all[i] = i
	}
	s := &placeScan{scan: t.Scan(all...)}
	s.err = s.scan.SeekRow(place)
	return s
}

func (s *placeScan) at(place int64) (*columnar.Block, int, error) {
	for s.err == nil && (s.block == nil || place >= s.block.First+int64(s.block.Rows)) {
		if s.block, s.err = s.scan.Next(); errors.Is(s.err, io.EOF) {
			s.err = io.ErrUnexpectedEOF
		}
	}
	if s.err != nil {
		return nil, 0, s.err
	}
	return s.block, int(place - s.block.First), nil
}

// A rowReader makes rows and outcomes of blocks. Columns are found by name.
type rowReader struct {
	Schema
	id, input, output, score                             int
	index, finish, in, made, engine, attempts, code, why int
	raw                                                  int
	fields                                               []int
	values                                               []string
	lacks                                                string // a column that is missing

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
		r.lacks = name
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
	r.in, r.made, r.attempts = find(origin, columnInputTokens), find(origin, columnOutputTokens), find(origin, columnAttempts)
	r.code, r.why, r.raw = find(origin, columnCode), find(origin, columnMessage), find(origin, columnRaw)
	return r
}

// content reads what clients' files hold, and forgets what was read before.
func (r *rowReader) content(b *columnar.Block, i int) {
	r.row, r.out = rowmill.Row{}, rowmill.Output{}
	if !b.Null(r.input, i) { // else a row that did not run, whose input is kept no more
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

// FieldsOf are values as rowmill.Row.Fields has them.
func FieldsOf(values []string) string {
	text, _ := json.Marshal(values) // strings always can be
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

// origin reads how the row came about.
func (r *rowReader) origin(b *columnar.Block, i int) {
	text := func(c int) string {
		if b.Null(c, i) {
			return ""
		}
		return string(b.Text(c, i))
	}
	r.row.Index = b.Int(r.index, i)
	r.out.Finish, r.out.Engine = rowmill.FinishReason(text(r.finish)), text(r.engine)
	r.out.InputTokens, r.out.OutputTokens, r.out.Attempts = b.Int(r.in, i), b.Int(r.made, i), int(b.Int(r.attempts, i))
	if !b.Null(r.code, i) {
		r.out.Err = &rowmill.RowError{Code: text(r.code), Message: text(r.why), Raw: text(r.raw)}
	}
}

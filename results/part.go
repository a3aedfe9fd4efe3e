package results

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/internal/columnar"
)

// PartWriter writes rows of a shard as a part. It has at most one row group (16 MiB
// before compression) and the attempts at some rows in memory. Only one goroutine may
// use it.
type PartWriter struct {
	table        *columnar.TableWriter
	schema       Schema
	columns      []column
	record       record
	leaf         *columnar.LeafType // type of the IDs; set only if their kind is IDLeafValue
	last         int64              // index of the last added row, or -1
	inputRemoved bool               // true if the next row has no input because it was removed
	tries        attemptsWriter
}

// NewPartWriter returns a PartWriter that writes to w.
func NewPartWriter(w io.Writer, s Schema) (*PartWriter, error) {
	if err := s.Validate(); err != nil {
		return nil, fmt.Errorf("new part: %w", err)
	}
	table, err := columnar.NewTableWriter(w, s.columns(), s.meta(), columnar.TableConfig{})
	if err != nil {
		return nil, fmt.Errorf("new part: %w", err)
	}
	p := &PartWriter{table: table, schema: s, columns: s.table(Full), last: -1, tries: attemptsWriter{to: table}}
	p.record.fields = make([]string, len(s.Fields))
	if s.IDKind == rowmill.IDLeafValue {
		if p.leaf, err = columnar.ParseLeaf(s.IDLeaf); err != nil {
			return nil, fmt.Errorf("new part: %w", err)
		}
	}
	return p, nil
}

// Add writes a row and its outcome. It does not keep row and out. The index of each row
// must be greater than the index of the previous row. The row's text and ID must be
// UTF-8, as the input reader makes them. Invalid bytes in an answer or an error text
// become U+FFFD, as in Go's JSON. After an error the part cannot be used.
func (p *PartWriter) Add(row *rowmill.Row, out *rowmill.RowOutput) error {
	if row.Index <= p.last {
		return fmt.Errorf("add row %d to part: rows must ascend, and row %d was added before", row.Index, p.last)
	}
	if err := p.check(row, out); err != nil {
		return fmt.Errorf("add row %d to part: %w", row.Index, err)
	}
	p.last = row.Index
	err := p.setRecord(row, out)
	if err == nil {
		p.addCells()
		err = p.table.EndRow()
	}
	if err != nil {
		return fmt.Errorf("add row %d to part: %w", row.Index, err)
	}
	return p.tries.add(row.Index, out.Tries)
}

// check returns an error if a row or its outcome does not fit the schema. Then the
// caller must not write the row.
func (p *PartWriter) check(row *rowmill.Row, out *rowmill.RowOutput) error {
	switch {
	case row.ID.Kind != rowmill.IDNull && row.ID.Kind != p.schema.IDKind:
		return fmt.Errorf("the row's ID has kind %d, but the job's IDs have kind %d", row.ID.Kind, p.schema.IDKind)
	case row.ID.Kind == rowmill.IDLeafValue && !p.leaf.CanHold(row.ID.Text):
		return fmt.Errorf("the row's ID of %d bytes does not have the type of the job's IDs", len(row.ID.Text))
	case !utf8.ValidString(row.Text):
		return fmt.Errorf("the row's text is not UTF-8")
	case row.ID.Kind == rowmill.IDString && !utf8.ValidString(row.ID.Text):
		return fmt.Errorf("the row's ID is not UTF-8")
	case out.Failed():
		return nil
	case p.schema.Embedding && (out.Text != "" || len(out.Embedding) == 0):
		return fmt.Errorf("the job's outputs are embeddings, and this output has %d floats and %d bytes of text", len(out.Embedding), len(out.Text))
	case !p.schema.Embedding && len(out.Embedding) != 0:
		return fmt.Errorf("the job's outputs are texts, and this output is an embedding of %d floats", len(out.Embedding))
	}
	return nil
}

// emptyError is the error of rows with an answer in a record.
var emptyError rowmill.RowError

// setRecord makes a row and its outcome the record that addCells writes.
func (p *PartWriter) setRecord(row *rowmill.Row, out *rowmill.RowOutput) error {
	r := &p.record
	r.row, r.out, r.err, r.hasError = row, out, out.Err, out.Failed()
	r.hasInput, r.hasFields, r.hasOutput, r.hasScore = !p.inputRemoved, row.Fields != "", !r.hasError, !r.hasError && out.HasScore
	if !r.hasError {
		r.err = &emptyError
	}
	if !r.hasFields {
		return nil
	}
	r.fields = r.fields[:0]
	if err := json.Unmarshal([]byte(row.Fields), &r.fields); err != nil || len(r.fields) != len(p.schema.Fields) {
		return errors.Join(fmt.Errorf("the row has values for %d fields, but the job has %d fields", len(r.fields), len(p.schema.Fields)), err)
	}
	return nil
}

// addCells writes the values of the record.
func (p *PartWriter) addCells() {
	for c := range p.columns {
		from := &p.columns[c]
		value, has := from.cell(&p.record)
		if has != nil && !*has {
			p.table.AppendNull(c)
			continue
		}
		switch v := value.(type) {
		case *string:
			if *v == "" && has == nil {
				p.table.AppendNull(c)
			} else {
				p.table.AppendText(c, toValidUTF8(*v))
			}
		case *checkedText:
			p.table.AppendText(c, string(*v))
		case *int64:
			p.table.AppendInt(c, *v)
		case *int:
			p.table.AppendInt(c, int64(*v))
		case *float64:
			p.table.AppendReal(c, *v)
		case *[]float32:
			p.table.AppendFloats(c, *v)
		case *rowmill.ID:
			appendID(p.table, c, v)
		default:
			panic(fmt.Sprintf("column %q: values cannot be %T", from.Name, v))
		}
	}
}

// appendID writes an ID into column c.
func appendID(table *columnar.TableWriter, c int, id *rowmill.ID) {
	switch id.Kind {
	case rowmill.IDString:
		table.AppendText(c, id.Text)
	case rowmill.IDInt:
		table.AppendInt(c, id.Int)
	case rowmill.IDUint:
		table.AppendUint(c, uint64(id.Int))
	case rowmill.IDFloat:
		table.AppendReal(c, id.Real)
	case rowmill.IDBool:
		table.AppendBool(c, id.Int != 0)
	case rowmill.IDLeafValue:
		table.AppendLeaf(c, id.Text)
	default:
		table.AppendNull(c)
	}
}

// toValidUTF8 returns s with invalid UTF-8 bytes replaced by U+FFFD.
func toValidUTF8(s string) string {
	if utf8.ValidString(s) { // this check is much faster than ToValidUTF8
		return s
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}

// Close writes all buffered rows and the footer of the part. It does not close the
// underlying writer.
func (p *PartWriter) Close() error {
	if err := errors.Join(p.tries.flush(), p.table.Close()); err != nil {
		return fmt.Errorf("close part: %w", err)
	}
	return nil
}

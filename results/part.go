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
	id           int                // position of the ID column, or -1 if there is none
	leaf         *columnar.LeafType // type of the IDs; set only if their kind is IDLeafValue
	values       []string           // buffer for the values of a row's fields
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
	p := &PartWriter{table: table, schema: s, id: -1, last: -1, tries: attemptsWriter{to: table}}
	if s.IDColumn != "" {
		p.id = 0
	}
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
	t, c := p.table, 0
	if p.id == 0 {
		p.addID(row.ID)
		c = 1
	}
	if p.inputRemoved {
		t.AppendNull(c)
	} else {
		t.AppendText(c, row.Text)
	}
	c++
	if err := p.addFields(c, row.Fields); err != nil {
		return fmt.Errorf("add row %d to part: %w", row.Index, err)
	}
	c += len(p.schema.Fields)
	switch {
	case out.Failed():
		t.AppendNull(c)
	case p.schema.Embedding:
		t.AppendFloats(c, out.Embedding)
	default:
		t.AppendText(c, toValidUTF8(out.Text))
	}
	c++
	if out.HasScore && !out.Failed() {
		t.AppendReal(c, out.Score)
	} else {
		t.AppendNull(c)
	}
	t.AppendInt(c+1, row.Index)
	p.appendTextOrNull(c+2, string(out.Finish))
	t.AppendInt(c+3, out.InputTokens)
	t.AppendInt(c+4, out.OutputTokens)
	p.appendTextOrNull(c+5, out.Engine)
	t.AppendInt(c+6, int64(out.Attempts))
	if out.Failed() {
		t.AppendText(c+7, toValidUTF8(out.Err.Code))
		t.AppendText(c+8, toValidUTF8(out.Err.Message))
		p.appendTextOrNull(c+9, out.Err.Raw)
	} else {
		t.AppendNull(c + 7)
		t.AppendNull(c + 8)
		t.AppendNull(c + 9)
	}
	if err := t.EndRow(); err != nil {
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

// addID writes the ID of the current row.
func (p *PartWriter) addID(id rowmill.ID) {
	switch id.Kind {
	case rowmill.IDString:
		p.table.AppendText(p.id, id.Text)
	case rowmill.IDInt:
		p.table.AppendInt(p.id, id.Int)
	case rowmill.IDUint:
		p.table.AppendUint(p.id, uint64(id.Int))
	case rowmill.IDFloat:
		p.table.AppendReal(p.id, id.Real)
	case rowmill.IDBool:
		p.table.AppendBool(p.id, id.Int != 0)
	case rowmill.IDLeafValue:
		p.table.AppendLeaf(p.id, id.Text)
	default:
		p.table.AppendNull(p.id)
	}
}

// addFields writes the values of a Function's fields into the columns from c on. fields
// is rowmill.Row.Fields; if it is empty, the values are null.
func (p *PartWriter) addFields(c int, fields string) error {
	if fields == "" {
		for i := range p.schema.Fields {
			p.table.AppendNull(c + i)
		}
		return nil
	}
	p.values = p.values[:0]
	if err := json.Unmarshal([]byte(fields), &p.values); err != nil || len(p.values) != len(p.schema.Fields) {
		return errors.Join(fmt.Errorf("the row has values for %d fields, but the job has %d fields", len(p.values), len(p.schema.Fields)), err)
	}
	for i, value := range p.values {
		p.table.AppendText(c+i, toValidUTF8(value))
	}
	return nil
}

// appendTextOrNull writes s into column c, or a null if s is empty.
func (p *PartWriter) appendTextOrNull(c int, s string) {
	if s == "" {
		p.table.AppendNull(c)
		return
	}
	p.table.AppendText(c, toValidUTF8(s))
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

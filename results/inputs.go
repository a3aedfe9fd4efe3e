package results

import (
	"fmt"

	"github.com/rowmill/rowmill"
)

// Inputs reads the input rows in the full file of a job that succeeded.
type Inputs struct {
	Schema Schema
	Rows   int64

	read *rowReader
}

// OpenInputs reads the footer of a full file. The caller closes the file. If withAnswers is true,
// Answer returns the answers, too.
func OpenInputs(full Source, withAnswers bool) (*Inputs, error) {
	t, err := openTable(full)
	if err != nil {
		return nil, fmt.Errorf("read inputs: %w", err)
	}
	schema, err := schemaOf(t)
	if err != nil {
		return nil, fmt.Errorf("read inputs: %w", err)
	}
	names := append([]string{columnInputs}, schema.Fields...)
	if schema.IDColumn != "" {
		names = append(names, schema.IDColumn)
	}
	if withAnswers {
		names = append(names, schema.OutputName())
	}
	scan, err := newRowScan(t, names...)
	if err != nil {
		return nil, fmt.Errorf("read inputs: %w", err)
	}
	return &Inputs{Schema: schema, Rows: t.Rows(), read: newRowReader(schema, scan)}, nil
}

// Row returns the input row with an index.
func (in *Inputs) Row(index int64) (row rowmill.Row, err error) {
	if err := in.read.readRow(index); err != nil {
		return row, fmt.Errorf("read input row %d: %w", index, err)
	}
	row = *in.read.row
	row.Index = index
	return row, nil
}

// Answer returns the answer to the row that Row has read last, without reasoning. ok is false if the
// row failed.
func (in *Inputs) Answer() (text string, ok bool) {
	text, ok = in.read.output().(string)
	return WithoutReasoning(text), ok
}

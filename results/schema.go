package results

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/columnar"
)

// The columns that every job's files name alike. A part has them all, in this
// order, behind the ID column, if any; the output, named after the job, stands
// between inputs and cumulative_logprobs.
const (
	columnInputs = "inputs"
	columnScore  = "cumulative_logprobs"

	// memberOutputs is what JSON results call the output.
	memberOutputs = "outputs"

	// reservedPrefix starts the columns that clients never see.
	reservedPrefix = "RESERVED_"

	columnRow          = reservedPrefix + "row" // the row's index in the job, from 0
	columnFinish       = reservedPrefix + "finish_reason"
	columnInputTokens  = reservedPrefix + "input_tokens"
	columnOutputTokens = reservedPrefix + "output_tokens"
	columnEngine       = reservedPrefix + "engine"
	columnAttempts     = reservedPrefix + "attempts"
	columnCode         = reservedPrefix + "error_code" // null exactly where the row has an answer
	columnMessage      = reservedPrefix + "error_message"
	columnRaw          = reservedPrefix + "raw_output"
)

// Keys of the files' key-value metadata.
const (
	metaJob   = "job_id"
	metaModel = "model"
)

// Source is a file to read. Reads may be concurrent; blob.Object is one.
type Source interface {
	io.ReaderAt
	Size() int64 // bytes
}

// Schema is what the columns of a job's files depend on.
type Schema struct {
	JobID          string // also the name of the output column
	Model          string
	IDColumn       string   // the ID column's name; empty for none
	rowmill.IDType          // its type; IDNull exactly when there is none
	Fields         []string // the columns that the fields of a Function's rows have; none is named as another
	Embedding      bool     // the output is a list of floats, not a text
	Partial        bool     // rows may be there that never ran, and whose input may be gone

	// ContentAsJSON has JSON and CSV made with the content of a reasoning row,
	// where it is JSON, as that and not as text.
	ContentAsJSON bool
}

// Validate reports a schema that no file can have.
func (s Schema) Validate() error {
	switch {
	case s.JobID == "" || s.JobID == columnInputs || s.JobID == columnScore || strings.HasPrefix(s.JobID, reservedPrefix):
		return fmt.Errorf("job id %q cannot name the output column", s.JobID)
	case slices.ContainsFunc(s.Fields, func(name string) bool { return name == s.IDColumn || name == s.JobID || FieldHidden(name) }):
		return fmt.Errorf("the fields %q have the name of another column", s.Fields)
	case s.IDColumn == "" && s.IDKind != rowmill.IDNull:
		return fmt.Errorf("the ID kind is %d but there is no ID column", s.IDKind)
	case s.IDColumn == "":
		return nil
	case s.IDColumn == columnInputs || s.IDColumn == columnScore || s.IDColumn == s.JobID || strings.HasPrefix(s.IDColumn, reservedPrefix):
		return fmt.Errorf("ID column %q has the name of another column; choose another", s.IDColumn)
	case idColumnKind(s.IDKind) == 0 || (s.IDKind == rowmill.IDLeafValue) != (s.IDLeaf != ""):
		return fmt.Errorf("ID column %q: kind %d (%q) is no type of an ID column", s.IDColumn, s.IDKind, s.IDLeaf)
	}
	return nil
}

// FieldHidden reports whether a Function's field has no column in results,
// because another column, or the member of JSON results, has its name.
func FieldHidden(name string) bool {
	return name == "" || name == columnInputs || name == columnScore || name == memberOutputs || strings.HasPrefix(name, reservedPrefix)
}

// columns are the columns of a part.
func (s Schema) columns() []columnar.TableColumn {
	var all []columnar.TableColumn
	if s.IDColumn != "" {
		all = append(all, columnar.TableColumn{Name: s.IDColumn, Kind: idColumnKind(s.IDKind), Leaf: s.IDLeaf})
	}
	output := columnar.TableText
	if s.Embedding {
		output = columnar.TableFloats
	}
	all = append(all, columnar.TableColumn{Name: columnInputs, Kind: columnar.TableText, Required: !s.Partial})
	for _, name := range s.Fields {
		all = append(all, columnar.TableColumn{Name: name, Kind: columnar.TableText})
	}
	return append(all,
		columnar.TableColumn{Name: s.JobID, Kind: output},
		columnar.TableColumn{Name: columnScore, Kind: columnar.TableReal},
		columnar.TableColumn{Name: columnRow, Kind: columnar.TableInt, Required: true},
		columnar.TableColumn{Name: columnFinish, Kind: columnar.TableText},
		columnar.TableColumn{Name: columnInputTokens, Kind: columnar.TableInt, Required: true},
		columnar.TableColumn{Name: columnOutputTokens, Kind: columnar.TableInt, Required: true},
		columnar.TableColumn{Name: columnEngine, Kind: columnar.TableText},
		columnar.TableColumn{Name: columnAttempts, Kind: columnar.TableInt, Required: true},
		columnar.TableColumn{Name: columnCode, Kind: columnar.TableText},
		columnar.TableColumn{Name: columnMessage, Kind: columnar.TableText},
		columnar.TableColumn{Name: columnRaw, Kind: columnar.TableText},
	)
}

// rowsColumns are the columns of the "rows" file.
func (s Schema) rowsColumns() []columnar.TableColumn {
	var reserved []columnar.TableColumn
	for _, c := range s.columns() {
		if strings.HasPrefix(c.Name, reservedPrefix) {
			reserved = append(reserved, c)
		}
	}
	return reserved
}

// variantColumns are the columns of a client's file.
func (s Schema) variantColumns(v Variant) []columnar.TableColumn {
	var chosen []columnar.TableColumn
	for _, c := range s.columns() {
		switch {
		case strings.HasPrefix(c.Name, reservedPrefix),
			(c.Name == columnInputs || slices.Contains(s.Fields, c.Name)) && !v.Inputs,
			c.Name == columnScore && !v.Logprobs:
		default:
			chosen = append(chosen, c)
		}
	}
	return chosen
}

// meta is the files' key-value metadata.
func (s Schema) meta() []columnar.KeyValue {
	return []columnar.KeyValue{{Key: metaJob, Value: s.JobID}, {Key: metaModel, Value: s.Model}}
}

// ReadSchema recovers the schema from a part or any of its merges, variants
// and exports in Parquet. The "rows" file does not say what the ID and the
// output are.
func ReadSchema(src Source) (Schema, error) {
	t, err := open(src)
	if err != nil {
		return Schema{}, fmt.Errorf("read schema: %w", err)
	}
	s := Schema{JobID: t.Meta(metaJob), Model: t.Meta(metaModel)}
	inputs := false // the columns behind them, up to the output, are fields
	for _, c := range t.Columns() {
		switch {
		case c.Name == s.JobID:
			s.Embedding, inputs = c.Kind == columnar.TableFloats, false
		case c.Name == columnInputs:
			s.Partial, inputs = !c.Required, true
		case inputs:
			s.Fields = append(s.Fields, c.Name)
		case c.Name != columnInputs && c.Name != columnScore && !strings.HasPrefix(c.Name, reservedPrefix):
			s.IDColumn, s.IDType = c.Name, rowmill.IDType{IDKind: idKind(c.Kind), IDLeaf: c.Leaf}
		}
	}
	if err := s.Validate(); err != nil {
		return Schema{}, fmt.Errorf("read schema: %w", err)
	}
	return s, nil
}

func open(src Source) (*columnar.Table, error) { return columnar.OpenTable(src, src.Size()) }

// idKinds pairs the kinds of IDs with those of columns.
func idKinds() map[rowmill.IDKind]columnar.TableKind {
	return map[rowmill.IDKind]columnar.TableKind{
		rowmill.IDString:    columnar.TableText,
		rowmill.IDInt:       columnar.TableInt,
		rowmill.IDUint:      columnar.TableUint,
		rowmill.IDFloat:     columnar.TableReal,
		rowmill.IDBool:      columnar.TableBool,
		rowmill.IDLeafValue: columnar.TableLeaf,
	}
}

// idColumnKind is the kind of column for IDs of kind k; 0 when there is none.
func idColumnKind(k rowmill.IDKind) columnar.TableKind { return idKinds()[k] }

// idKind is the inverse of idColumnKind.
func idKind(k columnar.TableKind) rowmill.IDKind {
	for id, column := range idKinds() {
		if column == k {
			return id
		}
	}
	return rowmill.IDNull
}

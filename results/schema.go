package results

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/internal/columnar"
)

// Names of columns that are the same in every job's files. A part has all of them, in
// this order, after the ID column if there is one. The output column has the job's ID
// as its name and is between inputs and cumulative_logprobs.
const (
	columnInputs = "inputs"
	columnScore  = "cumulative_logprobs"

	// memberOutputs is the name of the output in JSON results.
	memberOutputs = "outputs"

	// reservedPrefix is the beginning of the names of columns that clients never see.
	reservedPrefix = "RESERVED_"

	columnRow          = reservedPrefix + "row" // index of the row in the job, from 0
	columnFinish       = reservedPrefix + "finish_reason"
	columnInputTokens  = reservedPrefix + "input_tokens"
	columnOutputTokens = reservedPrefix + "output_tokens"
	columnEngine       = reservedPrefix + "engine"
	columnAttempts     = reservedPrefix + "attempts"
	columnCode         = reservedPrefix + "error_code" // null if the row has an answer
	columnMessage      = reservedPrefix + "error_message"
	columnRaw          = reservedPrefix + "raw_output"
)

// Keys in the key-value metadata of the files.
const (
	metaJob   = "job_id"
	metaModel = "model"
)

// Source is a file that can be read at any position. Its methods are safe for
// concurrent use. blob.Object is a Source.
type Source interface {
	io.ReaderAt
	Size() int64 // length of the file in bytes
}

// Schema holds all settings that determine the columns of a job's files.
type Schema struct {
	JobID          string // ID of the job, and name of the output column
	Model          string
	IDColumn       string   // name of the ID column; empty: no ID column
	rowmill.IDType          // type of the IDs; IDNull if there is no ID column
	Fields         []string // names of the columns for a Function's fields; no other column has such a name
	Embedding      bool     // true: an output is a list of floats; false: it is a text
	Partial        bool     // true: some rows did not run, and their input may be removed

	// ContentAsJSON changes JSON and CSV exports of rows with reasoning: if the content
	// is valid JSON, the exports show it as JSON and not as text.
	ContentAsJSON bool
}

// Validate returns an error if a file cannot have this schema.
func (s Schema) Validate() error {
	switch {
	case s.JobID == "" || s.JobID == columnInputs || s.JobID == columnScore || strings.HasPrefix(s.JobID, reservedPrefix):
		return fmt.Errorf("job id %q cannot name the output column", s.JobID)
	case slices.ContainsFunc(s.Fields, func(name string) bool { return name == s.IDColumn || name == s.JobID || IsFieldHidden(name) }):
		return fmt.Errorf("the fields %q have the name of another column", s.Fields)
	case s.IDColumn == "" && s.IDKind != rowmill.IDNull:
		return fmt.Errorf("the ID kind is %d but there is no ID column", s.IDKind)
	case s.IDColumn == "":
		return nil
	case s.IDColumn == columnInputs || s.IDColumn == columnScore || s.IDColumn == s.JobID || strings.HasPrefix(s.IDColumn, reservedPrefix):
		return fmt.Errorf("ID column %q has the name of another column; choose another", s.IDColumn)
	case idColumnKind(s.IDKind) == 0 || (s.IDKind == rowmill.IDLeafValue) != (s.IDLeaf != ""):
		return fmt.Errorf("ID column %q: kind %d (%q) is not a type that an ID column can have", s.IDColumn, s.IDKind, s.IDLeaf)
	}
	return nil
}

// IsFieldHidden reports whether a Function's field has no column in results, because
// another column or a member of JSON results has the same name.
func IsFieldHidden(name string) bool {
	return name == "" || name == columnInputs || name == columnScore || name == memberOutputs || strings.HasPrefix(name, reservedPrefix)
}

// columns returns the columns of a part.
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

// reservedColumns returns the columns of the "rows" file: the reserved columns.
func (s Schema) reservedColumns() []columnar.TableColumn {
	var reserved []columnar.TableColumn
	for _, c := range s.columns() {
		if strings.HasPrefix(c.Name, reservedPrefix) {
			reserved = append(reserved, c)
		}
	}
	return reserved
}

// variantColumns returns the columns of the file for clients with variant v.
func (s Schema) variantColumns(v FileVariant) []columnar.TableColumn {
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

// meta returns the files' key-value metadata.
func (s Schema) meta() []columnar.KeyValue {
	return []columnar.KeyValue{{Key: metaJob, Value: s.JobID}, {Key: metaModel, Value: s.Model}}
}

// ReadSchema reads the schema from a part, from merged parts, or from a Parquet
// file of a variant. The "rows" file has no ID and output column, so the schema
// cannot be read from it.
func ReadSchema(src Source) (Schema, error) {
	t, err := openTable(src)
	if err != nil {
		return Schema{}, fmt.Errorf("read schema: %w", err)
	}
	return schemaOf(t)
}

// schemaOf reads the schema from an open file, like ReadSchema.
func schemaOf(t *columnar.Table) (Schema, error) {
	s := Schema{JobID: t.Meta(metaJob), Model: t.Meta(metaModel)}
	inputs := false // true between the columns inputs and output, where the fields are
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

// openTable opens a file as a table.
func openTable(src Source) (*columnar.Table, error) { return columnar.OpenTable(src, src.Size()) }

// columnKindsByIDKind returns the column kind for each kind of ID.
func columnKindsByIDKind() map[rowmill.IDKind]columnar.TableKind {
	return map[rowmill.IDKind]columnar.TableKind{
		rowmill.IDString:    columnar.TableText,
		rowmill.IDInt:       columnar.TableInt,
		rowmill.IDUint:      columnar.TableUint,
		rowmill.IDFloat:     columnar.TableReal,
		rowmill.IDBool:      columnar.TableBool,
		rowmill.IDLeafValue: columnar.TableLeaf,
	}
}

// idColumnKind returns the column kind for IDs of kind k, or 0 if IDs cannot have kind
// k.
func idColumnKind(k rowmill.IDKind) columnar.TableKind { return columnKindsByIDKind()[k] }

// idKind returns the ID kind for columns of kind k. It is the inverse of idColumnKind.
func idKind(k columnar.TableKind) rowmill.IDKind {
	for id, column := range columnKindsByIDKind() {
		if column == k {
			return id
		}
	}
	return rowmill.IDNull
}

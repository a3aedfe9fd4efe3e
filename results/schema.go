package results

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/internal/columnar"
)

// Names of columns that are the same in every job's files. A part has all of them, in
// this order, after the ID column if there is one. Between inputs and
// cumulative_logprobs is the output column, which has its own name in each job.
const (
	columnInputs = "inputs"
	columnScore  = "cumulative_logprobs"

	// memberOutputs is the name of the output in JSON results.
	memberOutputs = "outputs"

	// ReservedPrefix is the beginning of the names of columns that clients never see.
	ReservedPrefix = "RESERVED_"

	columnRow          = ReservedPrefix + "row" // index of the row in the job, from 0
	columnFinish       = ReservedPrefix + "finish_reason"
	columnInputTokens  = ReservedPrefix + "input_tokens"
	columnOutputTokens = ReservedPrefix + "output_tokens"
	columnEngine       = ReservedPrefix + "engine"
	columnSeconds      = ReservedPrefix + "duration_seconds"
	columnAttempts     = ReservedPrefix + "attempts"
	columnCode         = ReservedPrefix + "error_code" // null if the row has an answer
	columnMessage      = ReservedPrefix + "error_message"
	columnRaw          = ReservedPrefix + "raw_output"
)

// fixedNames are the names of the columns that are the same in every job's files. The zero
// schema has only these columns and an output without a name.
var fixedNames = namesOf(Schema{}.columns())

// FileVariant says which optional columns a result file for clients has. Every variant has
// the output column, and the ID column if the job has one.
type FileVariant struct {
	Inputs   bool        // the file has the column inputs, and the fields of a Function
	Logprobs bool        // the file has the column cumulative_logprobs
	Columns  ColumnNames // the columns of the input file that the file has
	Unpack   bool        // the file has the properties of the answers as columns
	Meta     bool        // the file has columns about the run of each row, see metaColumns
}

// ColumnNames lists names of columns, separated by NUL bytes; AllColumns means all. It can be
// compared, because FileVariant is compared.
type ColumnNames string

// AllColumns is the list of all columns.
const AllColumns ColumnNames = "*"

// NewColumnNames returns the list of these names.
func NewColumnNames(names ...string) ColumnNames { return ColumnNames(strings.Join(names, "\x00")) }

// Has reports whether the list has a name.
func (c ColumnNames) Has(name string) bool {
	return c == AllColumns || c != "" && slices.Contains(c.List(), name)
}

// List returns the names.
func (c ColumnNames) List() []string { return strings.Split(string(c), "\x00") }

// Full is the variant with all optional columns. The other variants and the exports are
// made from the file of this variant.
var Full = FileVariant{Inputs: true, Logprobs: true}

// IsWide reports whether a file of the variant is made from the wide file: the full file with
// more columns.
func (v FileVariant) IsWide() bool { return v.Columns != "" || v.Unpack || v.Meta }

// IsStored reports whether a Parquet file of the variant is made once and stored. A list of
// columns is not, because there are too many lists.
func (v FileVariant) IsStored() bool { return v.Columns == "" || v.Columns == AllColumns }

// Wide is the variant with all columns that a file can have.
var Wide = FileVariant{Inputs: true, Logprobs: true, Columns: AllColumns, Unpack: true, Meta: true}

// Option is a field of a FileVariant.
type Option struct {
	Parameter string // name of the field in requests
	name      string // name of the field in FileVariant.Name
	Value     *bool
}

// Options returns all fields of the variant.
func (v *FileVariant) Options() []Option {
	return []Option{{"include_inputs", "inputs", &v.Inputs}, {"include_cumulative_logprobs", "logprobs", &v.Logprobs}}
}

// Keys in the key-value metadata of the files.
const (
	metaJob    = "job_id"
	metaModel  = "model"
	metaOutput = "output_column" // absent if the column has the job's ID as its name

	metaSpec = "specification" // Schema.Specification

	// JSON arrays of the names of Schema.Kept, Schema.Unpacked and Schema.Meta; absent if there
	// are none.
	metaKept     = "kept_columns"
	metaUnpacked = "unpacked_columns"
	metaMeta     = "meta_columns"
)

// Source is a file that can be read at any position. Its methods are safe for
// concurrent use. blob.Object is a Source.
type Source interface {
	io.ReaderAt
	Size() int64 // length of the file in bytes
}

// Schema holds all settings that determine the columns of a job's files.
type Schema struct {
	JobID          string // ID of the job
	Output         string // name of the output column; empty: JobID
	Model          string
	IDColumn       string                 // name of the ID column; empty: no ID column
	rowmill.IDType                        // type of the IDs; IDNull if there is no ID column
	Fields         []string               // names of the columns for a Function's fields; no other column has such a name
	Embedding      bool                   // true: an output is a list of floats; false: it is a text
	Kept           []columnar.TableColumn // columns of the input file; they are the first columns
	Unpacked       []columnar.TableColumn // properties of the answers; they follow the other columns
	Meta           []columnar.TableColumn // columns about the run of each row; they are the last columns
	Specification  string                 // JSON of the job's settings; empty in files without Meta
	Partial        bool                   // true: some rows did not run, and their input may be removed

	// ContentAsJSON changes JSON and CSV exports of rows with reasoning: if the content
	// is valid JSON, the exports show it as JSON and not as text.
	ContentAsJSON bool
}

// OutputName returns the name of the output column.
func (s Schema) OutputName() string { return cmp.Or(s.Output, s.JobID) }

// Validate returns an error if a file cannot have this schema.
func (s Schema) Validate() error {
	switch {
	case IsReservedName(s.OutputName()):
		return fmt.Errorf("the output column cannot have the name %q", s.OutputName())
	case slices.ContainsFunc(s.Fields, func(name string) bool { return name == s.IDColumn || name == s.OutputName() || IsReservedName(name) }):
		return fmt.Errorf("the fields %q have the name of another column", s.Fields)
	case s.IDColumn == "" && s.IDKind != rowmill.IDNull:
		return fmt.Errorf("the ID kind is %d but there is no ID column", s.IDKind)
	case s.IDColumn == "":
		return nil
	case s.IDColumn == s.OutputName() || isFixedName(s.IDColumn):
		return fmt.Errorf("ID column %q has the name of another column; choose another", s.IDColumn)
	case idColumnKind(s.IDKind) == 0 || (s.IDKind == rowmill.IDLeafValue) != (s.IDLeaf != ""):
		return fmt.Errorf("ID column %q: kind %d (%q) is not a type that an ID column can have", s.IDColumn, s.IDKind, s.IDLeaf)
	}
	return nil
}

// FieldColumns returns the names of the columns that show the fields of a prompt; none for nil.
func FieldColumns(p *rowmill.FunctionPrompt) (names []string) {
	if p == nil {
		return nil
	}
	for _, in := range p.Inputs {
		if !IsReservedName(in.Name) {
			names = append(names, in.Name)
		}
	}
	return names
}

// IsReservedName reports whether neither an ID nor a Function's field can have a column with
// this name, because another column or a member of JSON results has the same name.
func IsReservedName(name string) bool { return name == memberOutputs || isFixedName(name) }

// isFixedName reports whether name is empty or names a column that is, or may later be, the
// same in every job's files.
func isFixedName(name string) bool {
	return slices.Contains(fixedNames, name) || strings.HasPrefix(name, ReservedPrefix)
}

// column is a column of a part.
type column struct {
	columnar.TableColumn
	isShown bool // true if the file of a variant has the column; reserved columns are never shown
	cell    cellFunc
}

// cellFunc returns a pointer to the value of r in one column. has points to the flag that
// says whether r has a value; otherwise the cell is null. If has is nil, an empty text or
// a null ID is a null, and a number is never null.
type cellFunc func(r *record) (value any, has *bool)

// checkedText is a text that PartWriter.check found to be UTF-8.
type checkedText string

// record is a row and its outcome with the values of all columns.
type record struct {
	row    *rowmill.Row
	out    *rowmill.RowOutput
	err    *rowmill.RowError // empty if the row has an answer
	fields []string          // decoded values of row.Fields, one for each field of the schema

	hasInput, hasFields, hasOutput, hasScore, hasError bool
}

// table returns all columns of a part. isShown is set for variant v. Only this function
// and FileVariant.Options list the columns that are the same in every job.
func (s Schema) table(v FileVariant) (all []column) {
	const text, number = columnar.TableText, columnar.TableInt
	add := func(name string, kind columnar.TableKind, isShown bool, cell cellFunc) {
		all = append(all, column{columnar.TableColumn{Name: name, Kind: kind, Required: kind == number}, isShown, cell})
	}
	for _, c := range s.Kept {
		all = append(all, column{TableColumn: c, isShown: v.Columns.Has(c.Name)})
	}
	if s.IDColumn != "" {
		id := columnar.TableColumn{Name: s.IDColumn, Kind: idColumnKind(s.IDKind), Leaf: s.IDLeaf}
		all = append(all, column{id, true, func(r *record) (any, *bool) { return &r.row.ID, nil }})
	}
	inputs := columnar.TableColumn{Name: columnInputs, Kind: text, Required: !s.Partial}
	all = append(all, column{inputs, v.Inputs, func(r *record) (any, *bool) { return (*checkedText)(&r.row.Text), &r.hasInput }})
	for i, name := range s.Fields {
		add(name, text, v.Inputs, func(r *record) (any, *bool) { return &r.fields[i], &r.hasFields })
	}
	if s.Embedding {
		add(s.OutputName(), columnar.TableFloats, true, func(r *record) (any, *bool) { return &r.out.Embedding, &r.hasOutput })
	} else {
		add(s.OutputName(), text, true, func(r *record) (any, *bool) { return &r.out.Text, &r.hasOutput })
	}
	add(columnScore, columnar.TableReal, v.Logprobs, func(r *record) (any, *bool) { return &r.out.Score, &r.hasScore })
	for _, c := range s.Unpacked {
		all = append(all, column{TableColumn: c, isShown: v.Unpack})
	}
	for _, c := range s.Meta {
		all = append(all, column{TableColumn: c, isShown: v.Meta})
	}
	add(columnRow, number, false, func(r *record) (any, *bool) { return &r.row.Index, nil })
	add(columnFinish, text, false, func(r *record) (any, *bool) { return (*string)(&r.out.Finish), nil })
	add(columnInputTokens, number, false, func(r *record) (any, *bool) { return &r.out.InputTokens, nil })
	add(columnOutputTokens, number, false, func(r *record) (any, *bool) { return &r.out.OutputTokens, nil })
	add(columnEngine, text, false, func(r *record) (any, *bool) { return &r.out.Engine, nil })
	add(columnSeconds, columnar.TableReal, false, func(r *record) (any, *bool) { return &r.out.Seconds, nil })
	add(columnAttempts, number, false, func(r *record) (any, *bool) { return &r.out.Attempts, nil })
	add(columnCode, text, false, func(r *record) (any, *bool) { return &r.err.Code, &r.hasError })
	add(columnMessage, text, false, func(r *record) (any, *bool) { return &r.err.Message, &r.hasError })
	add(columnRaw, text, false, func(r *record) (any, *bool) { return &r.err.Raw, nil })
	return all
}

// columns returns the columns of a part.
func (s Schema) columns() []columnar.TableColumn { return tableColumns(s.table(Full)) }

// reservedColumns returns the columns of the "rows" file: the reserved columns.
func (s Schema) reservedColumns() []columnar.TableColumn {
	return tableColumns(slices.DeleteFunc(s.table(Full), func(c column) bool { return c.isShown }))
}

// variantColumns returns the columns of the file for clients with variant v.
func (s Schema) variantColumns(v FileVariant) []columnar.TableColumn {
	return tableColumns(slices.DeleteFunc(s.table(v), func(c column) bool { return !c.isShown }))
}

// tableColumns returns the descriptions of columns.
func tableColumns(columns []column) (described []columnar.TableColumn) {
	for _, c := range columns {
		described = append(described, c.TableColumn)
	}
	return described
}

// namesOf returns the names of columns.
func namesOf(columns []columnar.TableColumn) (names []string) {
	for _, c := range columns {
		names = append(names, c.Name)
	}
	return names
}

// meta returns the files' key-value metadata.
func (s Schema) meta() []columnar.KeyValue {
	meta := []columnar.KeyValue{{Key: metaJob, Value: s.JobID}, {Key: metaModel, Value: s.Model}}
	if s.Output != "" {
		meta = append(meta, columnar.KeyValue{Key: metaOutput, Value: s.Output})
	}
	for _, list := range []struct {
		key     string
		columns []columnar.TableColumn
	}{{metaKept, s.Kept}, {metaUnpacked, s.Unpacked}, {metaMeta, s.Meta}} {
		if len(list.columns) > 0 {
			names, _ := json.Marshal(namesOf(list.columns)) // never fails for strings
			meta = append(meta, columnar.KeyValue{Key: list.key, Value: string(names)})
		}
	}
	if s.Specification != "" {
		meta = append(meta, columnar.KeyValue{Key: metaSpec, Value: s.Specification})
	}
	return meta
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
	s := Schema{JobID: t.Meta(metaJob), Model: t.Meta(metaModel), Output: t.Meta(metaOutput), Specification: t.Meta(metaSpec)}
	var kept, unpacked, about []string
	for key, into := range map[string]*[]string{metaKept: &kept, metaUnpacked: &unpacked, metaMeta: &about} {
		if names := t.Meta(key); names != "" {
			if err := json.Unmarshal([]byte(names), into); err != nil {
				return Schema{}, fmt.Errorf("read schema: %s: %w", key, err)
			}
		}
	}
	inputs := false // true between the columns inputs and output, where the fields are
	for _, c := range t.Columns() {
		switch {
		case slices.Contains(kept, c.Name):
			s.Kept = append(s.Kept, c)
		case slices.Contains(unpacked, c.Name):
			s.Unpacked = append(s.Unpacked, c)
		case slices.Contains(about, c.Name):
			s.Meta = append(s.Meta, c)
		case c.Name == s.OutputName():
			s.Embedding, inputs = c.Kind == columnar.TableFloats, false
		case c.Name == columnInputs:
			s.Partial, inputs = !c.Required, true
		case inputs:
			s.Fields = append(s.Fields, c.Name)
		case !isFixedName(c.Name):
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

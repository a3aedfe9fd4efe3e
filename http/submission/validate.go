package submission

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"unicode/utf8"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/engine/catalog"
	"github.com/rowmill/rowmill/engine/schema"
	"github.com/rowmill/rowmill/engine/served"
	"github.com/rowmill/rowmill/http/request"
	"github.com/rowmill/rowmill/input"
	"github.com/rowmill/rowmill/internal/textfmt"
)

const (
	maxSystemBytes = 1 << 20 // bytes of decoded text

	// The name of the ID column must not begin with reservedPrefix and must not be in
	// reservedColumns, because results have columns of these names, or may have them in a
	// later version.
	reservedPrefix = "RESERVED_"
)

var reservedColumns = map[string]bool{
	"inputs": true, "outputs": true, "confidence_score": true, "cumulative_logprobs": true,
}

// validate checks every rule for the fields, sets the job's specification, and adds the
// problems to the submission.
func (sub *Submission) validate(job *CheckedJob) {
	spec, f := &job.Spec, job.call
	spec.URL = sub.url
	spec.Model = sub.findModel(job)
	if f == nil {
		sub.checkRows(nil, spec.Model.ID != "")
		sub.checkInputs(job)
		sub.checkPrompt(job)
	} else {
		sub.checkRows(f.prompt, false)
		sub.checkInputs(job)
		sub.copyFunction(job)
	}
	spec.Sampling = sub.resolveSampling(job)

	sub.decodeField(fieldSeeds, "a boolean", &spec.SeedPerRow)
	sub.decodeField(fieldEstimate, "a boolean", &spec.Estimate)
	if spec.SeedPerRow && spec.Model.Kind == rowmill.KindEmbedding {
		job.warn(fmt.Sprintf("random_seed_per_input was ignored: %s is an embedding model and uses no random numbers", spec.Model.ID))
		spec.SeedPerRow = false
	}
	sub.setDedup(spec)
	if sub.decodeField(fieldRepair, "a boolean", &spec.Repair) && spec.Repair && len(spec.Schema) == 0 {
		sub.problems.Add(fieldRepair, "extracts JSON from text, for which it needs json_schema; send json_schema, or leave repair out")
	}
	spec.TruncateRows = true
	sub.decodeField(fieldTruncate, "a boolean", &spec.TruncateRows)
	if sub.decodeField(fieldPriority, "the integer "+rowmill.PriorityValues, &spec.Priority) {
		if err := spec.Priority.Validate(); err != nil {
			sub.problems.Add(fieldPriority, "%v", err)
		}
	}
	for _, label := range job.labels.ListLabels() {
		*label.Text = sub.readLabel(label.Field, label.MaxRunes)
	}

	spec.Seed = rand.Int64N(math.MaxInt32 + 1) // the range that every engine accepts
	if seed, fixed := spec.Sampling["seed"].(int64); fixed {
		spec.Seed = seed
	}
	if len(sub.unknown) > 0 {
		job.warn(sub.unknownWarning())
	}
	if f == nil { // the schema of a Function was compiled when it was published
		checkSchemaCompiles(&sub.problems, sub.schemaField, spec.Schema)
	}
}

// setDedup sets in spec whether equal rows run once. The submission decides, or else
// the configuration. Rows with seeds of their own are never equal.
func (sub *Submission) setDedup(spec *rowmill.Spec) {
	spec.Dedup = sub.Dedup && !spec.SeedPerRow
	if sub.decodeField(fieldDedup, "a boolean", &spec.Dedup) && spec.Dedup && spec.SeedPerRow {
		sub.problems.Add(fieldDedup, "runs equal rows once, but random_seed_per_input gives each row its own seed and so its own answer; leave one of the two fields out")
	}
}

// unknownWarning returns the warning about unknown fields.
func (sub *Submission) unknownWarning() string {
	text := "ignored unknown fields: " + strings.Join(sub.unknown, ", ")
	if sub.more > 0 {
		text += fmt.Sprintf(" and %d more", sub.more)
	}
	return text
}

// decodeField decodes a field of the submission into the variable that into points to. It
// returns true if the field is present and has the right type. wantType names the right
// type for the problem.
func (sub *Submission) decodeField(field, wantType string, into any) bool {
	raw, given := sub.fields[field]
	if !given {
		return false
	}
	if err := request.Decode(raw, into); err != nil {
		sub.problems.Add(field, "must be %s or null", wantType)
		return false
	}
	return true
}

// findModel returns the model of the submission, or of its Function. If the model cannot be
// used, findModel adds a problem.
func (sub *Submission) findModel(job *CheckedJob) rowmill.Model {
	name, f := catalog.DefaultModel, job.call
	if f != nil {
		name = f.Model
	} else if _, given := sub.fields[fieldModel]; given && !sub.decodeField(fieldModel, "a string", &name) {
		return rowmill.Model{}
	}
	m, err := sub.Models.Find(name)
	refuse := func(format string, args ...any) {
		sub.problems.AddWithCode(request.CodeUnknownModel, rowmill.FieldError{Field: fieldModel, Message: fmt.Sprintf(format, args...)})
	}
	var (
		unknown  *served.UnknownModelError
		unusable *served.UnusableModelError
	)
	switch {
	case errors.As(err, &unknown) && f != nil:
		refuse("revision %d of the Function %s uses the model %q, which this service no longer has; start a server of this model, or publish a revision with another model", f.Revision, f.Name, f.Model)
	case errors.As(err, &unknown):
		refuse("%q is neither a model of this service nor a published Function of your account%s", textfmt.Shorten(name, 128), unknown.Hint())
	case errors.As(err, &unusable) && unusable.Soon:
		sub.retryLater = request.RetryLater("model_not_ready", "model: %s", err)
	case err != nil:
		refuse("%s", err)
	case f == nil && m.ID != name:
		job.warn(fmt.Sprintf("model: %s is an alias of %s", textfmt.Shorten(name, 128), m.ID))
	}
	return m
}

// copyFunction copies the settings of the Function to the job. It adds problems for fields
// that a submission with a Function must not have.
func (sub *Submission) copyFunction(job *CheckedJob) {
	spec, f := &job.Spec, job.call
	for _, field := range []string{fieldColumn, fieldSystem, fieldSchema} {
		if _, given := sub.fields[field]; given && !sub.problems.Has(field) {
			sub.problems.Add(field, "cannot be used with a Function, which sets it itself; leave it out")
		}
	}
	for _, in := range f.Inputs {
		if in.Name == spec.IDColumn && spec.IDColumn != "" {
			sub.problems.Add(fieldIDColumn, "must differ from every input of the Function, but %q is an input; rename the column", in.Name)
		}
	}
	if f.System != nil {
		spec.System = *f.System
	}
	spec.Column, spec.Schema = "", f.Schema
	spec.Function = &rowmill.FunctionPrompt{Inputs: f.Inputs, Prompt: f.Prompt}
}

// checkInputs checks the field inputs, and the fields that may only be used if inputs
// names a file.
func (sub *Submission) checkInputs(job *CheckedJob) {
	spec := &job.Spec
	table := sub.url != "" || sub.file != ""
	if sub.url != "" {
		if err := input.ValidateURL(sub.url); err != nil {
			sub.problems.Add(fieldInputs, "%s", err)
		}
	} else if !table && !sub.inline && !sub.problems.Has(fieldInputs) {
		sub.problems.Add(fieldInputs, "is missing; send an array of strings, the URL of a file of CSV, Parquet or JSON Lines, or file: and the id of an uploaded file")
	}
	if sub.decodeField(fieldColumn, "a string", &spec.Column) {
		switch {
		case !table && sub.inline:
			sub.problems.Add(fieldColumn, "is only for files, uploaded or given by a URL; leave it out")
		case spec.Column == "":
			sub.problems.Add(fieldColumn, "is empty; leave it out to use the first column")
		}
	}
	if sub.decodeField(fieldFormat, "a string", &spec.Format) {
		switch err := input.ValidateFormat(spec.Format); {
		case !table && sub.inline:
			sub.problems.Add(fieldFormat, "is only for files, uploaded or given by a URL; leave it out")
		case err != nil:
			sub.problems.Add(fieldFormat, "%s", err)
		}
	}
	if sub.url != "" && job.call == nil && input.AssumesCSV(input.FileNameFromURL(sub.url), spec.Column, input.Format(spec.Format)) {
		job.warn("inputs: the URL has no ending that shows a format and column_name is not set, so the first line is a header unless the file is Parquet or JSON Lines; for plain text set input_format to lines")
	}
	if !sub.decodeField(fieldIDColumn, "a string", &spec.IDColumn) {
		return
	}
	switch id := spec.IDColumn; {
	case !table && sub.inline:
		sub.problems.Add(fieldIDColumn, "is only for files, uploaded or given by a URL; leave it out")
	case id == "":
		sub.problems.Add(fieldIDColumn, "is empty; leave it out to have no ID column")
	case strings.HasPrefix(id, reservedPrefix):
		sub.problems.Add(fieldIDColumn, "must not begin with the reserved prefix %s; rename the column", reservedPrefix)
	case reservedColumns[id], id == job.ID:
		sub.problems.Add(fieldIDColumn, "must not be %q, which is a column of the results; rename the column", id)
	case id == spec.Column:
		sub.problems.Add(fieldIDColumn, "must differ from column_name, which names the column with the rows")
	}
}

// checkPrompt checks the system prompt and the schema, and sets them in the job.
func (sub *Submission) checkPrompt(job *CheckedJob) {
	spec := &job.Spec
	embedding := spec.Model.Kind == rowmill.KindEmbedding
	if sub.decodeField(fieldSystem, "a string", &spec.System) {
		if size := len(spec.System); size > maxSystemBytes {
			sub.problems.Add(fieldSystem, "has %d bytes; it may have at most %d, so shorten it", size, maxSystemBytes)
		}
		if embedding && spec.System != "" {
			job.warn(fmt.Sprintf("system_prompt was ignored: %s is an embedding model and embeds only the rows", spec.Model.ID))
			spec.System = ""
		}
	}
	if raw, given := sub.fields[fieldSchema]; given {
		sub.schemaField = fieldSchema
		spec.Schema = readSchema(&sub.problems, fieldSchema, raw, embedding)
	}
}

// resolveSampling returns the sampling parameters of the job: the model's parameters,
// replaced by the Function's parameters and then by the client's. A JSON Schema in the
// client's parameters becomes the job's schema.
func (sub *Submission) resolveSampling(job *CheckedJob) map[string]any {
	var given map[string]any
	if raw, there := sub.fields[fieldSampling]; there {
		var (
			constraint outputConstraint
			ok         bool
		)
		if given, constraint, ok = readSampling(&sub.problems, raw); !ok {
			return nil
		}
		sub.setConstraint(job, constraint)
	}
	if job.call != nil {
		given = job.call.mergeSampling(given)
	}
	model := job.Spec.Model
	if model.ID == "" { // the model is unknown: check only rules that do not depend on the model
		model.ContextLength = math.MaxInt
	}
	effective, warnings, err := catalog.MergeSampling(model, given)
	if err != nil {
		sub.problems.AddWithCode(err.Code, err.Fields...)
	}
	checkConstraint(&sub.problems, effective)
	job.warnings = append(job.warnings, warnings...)
	return effective
}

// setConstraint applies the output constraint of sampling_params to the job. It adds a
// problem if another field has a constraint too.
func (sub *Submission) setConstraint(job *CheckedJob, constraint outputConstraint) {
	_, schemaToo := sub.fields[fieldSchema]
	switch {
	case constraint.field == "":
	case job.call != nil:
		sub.problems.Add(constraint.field, "cannot be used with a Function, which sets the form of the output itself; leave it out")
	case schemaToo:
		sub.problems.Add(constraint.field, "constrains the output, as %s does; send one of the two", fieldSchema)
	case constraint.schema != nil:
		sub.schemaField = constraint.field
		job.Spec.Schema = readSchema(&sub.problems, constraint.field, constraint.schema, job.Spec.Model.Kind == rowmill.KindEmbedding)
	}
}

// readSchema returns a JSON Schema without white space, and adds the problems that can
// be found without compiling the schema. embedding is true if the model is an embedding
// model.
func readSchema(problems *request.Problems, field string, raw json.RawMessage, embedding bool) json.RawMessage {
	compact, err := schema.Check(raw)
	switch {
	case err != nil:
		problems.Add(field, "%s", err)
	case embedding:
		problems.Add(field, "cannot be used with an embedding model, because its outputs are lists of numbers; leave it out")
	}
	return compact
}

// checkSchemaCompiles compiles a JSON Schema and adds its problems. It does nothing if there
// are other problems already, because a refused request should not cost a compilation.
func checkSchemaCompiles(problems *request.Problems, field string, checked json.RawMessage) {
	if problems.Len() > 0 || checked == nil {
		return
	}
	if _, err := schema.Compile(checked); err != nil {
		problems.Add(field, "%s", err)
	}
}

// readSampling decodes sampling_params. It returns the parameters, with numbers as the
// client wrote them, and the output constraint, which it removes from the parameters.
// ok is false if raw is not an object or null.
func readSampling(problems *request.Problems, raw json.RawMessage) (given map[string]any, constraint outputConstraint, ok bool) {
	decoded, err := decodeWithNumbers(raw)
	given, ok = decoded.(map[string]any)
	if err != nil || decoded != nil && !ok {
		problems.AddWithCode(catalog.CodeInvalidSampling, rowmill.FieldError{Field: fieldSampling, Message: "must be an object or null"})
		return nil, outputConstraint{}, false
	}
	return given, extractConstraint(problems, raw, given), true
}

// decodeWithNumbers decodes JSON. It returns numbers as json.Number, which keeps them as
// the client wrote them.
func decodeWithNumbers(raw json.RawMessage) (value any, err error) {
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	err = decoder.Decode(&value)
	return value, err
}

// readLabel reads a text field of at most limit code points. It returns nil if the
// field is absent.
func (sub *Submission) readLabel(field string, limit int) *string {
	var label string
	if !sub.decodeField(field, "a string", &label) {
		return nil
	}
	if count := utf8.RuneCountInString(label); count > limit {
		sub.problems.Add(field, "has %d characters; it may have at most %d, so shorten it", count, limit)
	}
	return &label
}

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
	"github.com/rowmill/rowmill/engine/offer"
	"github.com/rowmill/rowmill/engine/schema"
	"github.com/rowmill/rowmill/http/request"
	"github.com/rowmill/rowmill/input"
	"github.com/rowmill/rowmill/internal/spelling"
)

const (
	maxSystemBytes      = 1 << 20 // bytes of decoded text
	maxNameRunes        = 45      // Unicode code points
	maxDescriptionRunes = 512     // Unicode code points

	// reservedPrefix and reservedColumns are not allowed as ID column: results have
	// columns of these names, or may have them later.
	reservedPrefix = "RESERVED_"
)

var reservedColumns = map[string]bool{
	"inputs": true, "outputs": true, "confidence_score": true, "cumulative_logprobs": true,
}

// validate checks every rule for the fields and adds the problems to the submission.
func (sub *Submission) validate(job *Job) {
	spec, f := &job.Spec, job.call
	spec.URL = sub.url
	spec.Model = sub.model(job)
	if f == nil {
		sub.checkRows(nil, spec.Model.ID != "")
		sub.columns(job)
		sub.prompt(job)
	} else {
		sub.checkRows(f.prompt, false)
		sub.columns(job)
		sub.copyFunction(job)
	}
	spec.Sampling = sub.sampling(job)

	sub.read(fieldSeeds, "a boolean", &spec.SeedPerRow)
	sub.read(fieldEstimate, "a boolean", &spec.Estimate)
	if spec.SeedPerRow && spec.Model.Kind == rowmill.KindEmbedding {
		job.warn(fmt.Sprintf("random_seed_per_input ignored: %s is an embedding model and draws nothing at random", spec.Model.ID))
		spec.SeedPerRow = false
	}
	sub.dedup(spec)
	if sub.read(fieldRepair, "a boolean", &spec.Repair) && spec.Repair && len(spec.Schema) == 0 {
		sub.problems.Add(fieldRepair, "extracts JSON from text and needs json_schema; send json_schema, or leave repair out")
	}
	spec.TruncateRows = true
	sub.read(fieldTruncate, "a boolean", &spec.TruncateRows)
	if sub.read(fieldPriority, "the integer "+rowmill.PriorityValues, &spec.Priority) {
		if err := spec.Priority.Validate(); err != nil {
			sub.problems.Add(fieldPriority, "%v", err)
		}
	}
	job.name = sub.label(fieldName, maxNameRunes)
	job.description = sub.label(fieldText, maxDescriptionRunes)

	spec.Seed = rand.Int64N(math.MaxInt32 + 1) // the range that every engine accepts
	if seed, fixed := spec.Sampling["seed"].(int64); fixed {
		spec.Seed = seed
	}
	if len(sub.unknown) > 0 {
		job.warn(sub.ignored())
	}
	if f == nil { // the schema of a Function was compiled when it was published
		compileLast(&sub.problems, sub.schemaField, spec.Schema)
	}
}

// dedup decides whether equal rows run once: the submission decides, else the
// configuration. Rows with their own seeds are never equal.
func (sub *Submission) dedup(spec *rowmill.Spec) {
	spec.Dedup = sub.Dedup && !spec.SeedPerRow
	if sub.read(fieldDedup, "a boolean", &spec.Dedup) && spec.Dedup && spec.SeedPerRow {
		sub.problems.Add(fieldDedup, "runs equal rows once, and random_seed_per_input gives each a seed and so an answer of its own; leave one of them out")
	}
}

func (sub *Submission) ignored() string {
	said := "ignored unknown fields: " + strings.Join(sub.unknown, ", ")
	if sub.more > 0 {
		said += fmt.Sprintf(" and %d more", sub.more)
	}
	return said
}

// read decodes a field. It returns true if the field is present and has the right type.
func (sub *Submission) read(field, must string, into any) bool {
	raw, given := sub.fields[field]
	if !given {
		return false
	}
	if err := request.Decode(raw, into); err != nil {
		sub.problems.Add(field, "must be %s or null", must)
		return false
	}
	return true
}

// model returns the model of the submission, or of its Function.
func (sub *Submission) model(job *Job) rowmill.Model {
	name, f := catalog.DefaultModel, job.call
	if f != nil {
		name = f.Model
	} else if _, given := sub.fields[fieldModel]; given && !sub.read(fieldModel, "a string", &name) {
		return rowmill.Model{}
	}
	m, err := sub.Models.Find(name)
	refuse := func(format string, args ...any) {
		sub.problems.AddCode(request.CodeUnknownModel, rowmill.FieldError{Field: fieldModel, Message: fmt.Sprintf(format, args...)})
	}
	var (
		unknown  *offer.UnknownError
		unusable *offer.UnusableError
	)
	switch {
	case errors.As(err, &unknown) && f != nil:
		refuse("revision %d of the Function %s runs on %q, which is no longer a model of this service; start a server of it, or publish a revision with another", f.Revision, f.Name, f.Model)
	case errors.As(err, &unknown):
		refuse("%q is neither a model of this service nor a published Function of your account%s", spelling.Shorten(name, 128), unknown.Hint())
	case errors.As(err, &unusable) && unusable.Soon:
		sub.retryLater = request.NotNow("model_not_ready", "model: %s", err)
	case err != nil:
		refuse("%s", err)
	case f == nil && m.ID != name:
		job.warn(fmt.Sprintf("model: %s is an alias of %s here", spelling.Shorten(name, 128), m.ID))
	}
	return m
}

// copyFunction copies the settings of the Function to the job, and refuses fields that
// only standalone models accept.
func (sub *Submission) copyFunction(job *Job) {
	spec, f := &job.Spec, job.call
	for _, field := range []string{fieldColumn, fieldSystem, fieldSchema} {
		if _, given := sub.fields[field]; given && !sub.problems.Has(field) {
			sub.problems.Add(field, "cannot be given with a Function, which decides it; leave it out")
		}
	}
	for _, in := range f.Inputs {
		if in.Name == spec.IDColumn && spec.IDColumn != "" {
			sub.problems.Add(fieldIDColumn, "must differ from every input of the Function, and %q is one; rename the column", in.Name)
		}
	}
	if f.System != nil {
		spec.System = *f.System
	}
	spec.Column, spec.Schema = "", f.Schema
	spec.Function = &rowmill.FunctionRun{Inputs: f.Inputs, Prompt: f.Prompt}
}

// columns checks inputs, and the fields that only files have.
func (sub *Submission) columns(job *Job) {
	spec := &job.Spec
	table := sub.url != "" || sub.file != ""
	if sub.url != "" {
		if err := input.ValidateURL(sub.url); err != nil {
			sub.problems.Add(fieldInputs, "%s", err)
		}
	} else if !table && !sub.inline && !sub.problems.Has(fieldInputs) {
		sub.problems.Add(fieldInputs, "is missing; send an array of strings, the URL of a file of CSV, Parquet or JSON Lines, or file: and the id of one that was uploaded")
	}
	if sub.read(fieldColumn, "a string", &spec.Column) {
		switch {
		case !table && sub.inline:
			sub.problems.Add(fieldColumn, "is only for files, uploaded or given by a URL; leave it out")
		case spec.Column == "":
			sub.problems.Add(fieldColumn, "is empty; leave it out to use the first column")
		}
	}
	if sub.read(fieldFormat, "a string", &spec.Format) {
		switch err := input.ValidateFormat(spec.Format); {
		case !table && sub.inline:
			sub.problems.Add(fieldFormat, "is only for files, uploaded or given by a URL; leave it out")
		case err != nil:
			sub.problems.Add(fieldFormat, "%s", err)
		}
	}
	if sub.url != "" && job.call == nil && input.AssumesCSV(input.NameOf(sub.url), spec.Column, input.Format(spec.Format)) {
		job.warn("inputs: the URL has no ending that says a format and column_name is not given, so the first line is a header unless the file is Parquet or JSON Lines; for plain text give input_format lines")
	}
	if !sub.read(fieldIDColumn, "a string", &spec.IDColumn) {
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
		sub.problems.Add(fieldIDColumn, "must differ from column_name, the column to run")
	}
}

// prompt checks the system prompt and the schema.
func (sub *Submission) prompt(job *Job) {
	spec := &job.Spec
	embedding := spec.Model.Kind == rowmill.KindEmbedding
	if sub.read(fieldSystem, "a string", &spec.System) {
		if size := len(spec.System); size > maxSystemBytes {
			sub.problems.Add(fieldSystem, "has %d bytes, more than %d; shorten it", size, maxSystemBytes)
		}
		if embedding && spec.System != "" {
			job.warn(fmt.Sprintf("system_prompt ignored: %s is an embedding model and embeds the rows alone", spec.Model.ID))
			spec.System = ""
		}
	}
	if raw, given := sub.fields[fieldSchema]; given {
		sub.schemaField = fieldSchema
		spec.Schema = readSchema(&sub.problems, fieldSchema, raw, embedding)
	}
}

// sampling merges the caller's parameters over the parameters of the Function and of the
// model. A JSON Schema in them becomes the job's schema.
func (sub *Submission) sampling(job *Job) map[string]any {
	var given map[string]any
	if raw, there := sub.fields[fieldSampling]; there {
		var (
			form outputConstraint
			ok   bool
		)
		if given, form, ok = readSampling(&sub.problems, raw); !ok {
			return nil
		}
		sub.form(job, form)
	}
	if job.call != nil {
		given = job.call.sampling(given)
	}
	model := job.Spec.Model
	if model.ID == "" { // unknown model: check only rules that do not depend on it
		model.ContextLength = math.MaxInt
	}
	effective, warnings, err := catalog.MergeSampling(model, given)
	if err != nil {
		sub.problems.AddCode(err.Code, err.Fields...)
	}
	checkConstraint(&sub.problems, effective)
	job.warnings = append(job.warnings, warnings...)
	return effective
}

// form applies the output constraint of sampling_params. Only one field may have a
// constraint.
func (sub *Submission) form(job *Job, form outputConstraint) {
	_, schemaToo := sub.fields[fieldSchema]
	switch {
	case form.field == "":
	case job.call != nil:
		sub.problems.Add(form.field, "cannot be given with a Function, which decides it; leave it out")
	case schemaToo:
		sub.problems.Add(form.field, "constrains the output, as %s does; send one of the two", fieldSchema)
	case form.schema != nil:
		sub.schemaField = form.field
		job.Spec.Schema = readSchema(&sub.problems, form.field, form.schema, job.Spec.Model.Kind == rowmill.KindEmbedding)
	}
}

// readSchema returns a schema without white space, and adds the problems that are cheap
// to find.
func readSchema(problems *request.Problems, field string, raw json.RawMessage, embedding bool) json.RawMessage {
	compact, err := schema.Check(raw)
	switch {
	case err != nil:
		problems.Add(field, "%s", err)
	case embedding:
		problems.Add(field, "cannot be kept by an embedding model, whose outputs are lists of numbers; leave it out")
	}
	return compact
}

// compileLast adds the problems of a schema, unless there are other problems: a refused
// request should not cost a compilation.
func compileLast(problems *request.Problems, field string, checked json.RawMessage) {
	if problems.Len() > 0 || checked == nil {
		return
	}
	if _, err := schema.Compile(checked); err != nil {
		problems.Add(field, "%s", err)
	}
}

// readSampling decodes sampling_params. It keeps the notation of numbers.
func readSampling(problems *request.Problems, raw json.RawMessage) (given map[string]any, form outputConstraint, ok bool) {
	decoded, err := decodeNumbers(raw)
	given, ok = decoded.(map[string]any)
	if err != nil || decoded != nil && !ok {
		problems.AddCode(catalog.CodeInvalidSampling, rowmill.FieldError{Field: fieldSampling, Message: "must be an object or null"})
		return nil, outputConstraint{}, false
	}
	return given, takeConstraint(problems, raw, given), true
}

func decodeNumbers(raw json.RawMessage) (value any, err error) {
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	err = decoder.Decode(&value)
	return value, err
}

func (sub *Submission) label(field string, limit int) *string {
	var label string
	if !sub.read(field, "a string", &label) {
		return nil
	}
	if count := utf8.RuneCountInString(label); count > limit {
		sub.problems.Add(field, "has %d characters, more than %d; shorten it", count, limit)
	}
	return &label
}

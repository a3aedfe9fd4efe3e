package submission

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/engine/catalog"
	"github.com/rowmill/rowmill/engine/schema"
	"github.com/rowmill/rowmill/engine/served"
	"github.com/rowmill/rowmill/http/request"
	"github.com/rowmill/rowmill/input"
	"github.com/rowmill/rowmill/input/function"
	"github.com/rowmill/rowmill/internal/textfmt"
	"github.com/rowmill/rowmill/results"
)

const (
	// Names of the fields that several functions use. listFields has all fields.
	fieldInputs   = "inputs"
	fieldWhere    = "where"
	fieldModel    = "model"
	fieldColumn   = "column_name"
	fieldIDColumn = "id_column_name"
	fieldOutput   = "output_name"
	fieldPrompt   = "prompt"
	fieldFunction = "function"
	fieldSystem   = "system_prompt"
	fieldSchema   = "json_schema"
	fieldSampling = "sampling_params"

	maxSystemBytes = 1 << 20 // bytes of decoded text
	maxColumnBytes = 256     // longer names of columns make tables hard to read
)

// A field describes one field of a submission.
type field struct {
	name string
	want string       // type of the value, for the problem
	into any          // pointer to the variable in the job that gets the value
	rule func() error // checks the variable if the field is present; nil if there is no rule

	read func() // decodes and checks the field in place of want, into and rule, also if it is absent
}

// listFields returns all fields of a submission in the order of their checks. A rule may use
// the fields before its own.
func (sub *Submission) listFields(job *CheckedJob) []field {
	spec := &job.Spec
	requireFile := func(rule error) error { // returns rule if the rows are in a file
		return cmp.Or(
			refuseIf(sub.inline, "is only for files, uploaded or given by a URL; leave it out"),
			refuseIf(sub.fromJob != "", "is the same as in the job that inputs names; leave it out"),
			rule,
		)
	}
	var sink string
	fields := []field{
		{name: fieldModel, read: func() { spec.Model = sub.findModel(job) }},
		{name: fieldFunction}, // readCall reads it
		{name: fieldPrompt, read: func() { sub.readPrompt(job) }},
		{name: fieldWhere, want: "a string", into: &spec.Where, rule: func() error { return sub.checkWhere(spec.Where) }},
		{name: fieldInputs, read: func() { sub.checkInputs(job) }},
		{name: fieldColumn, want: "a string", into: &spec.Column, rule: func() error {
			return requireFile(cmp.Or(
				refuseIf(spec.Column == "", "is empty; leave it out to use the first column"),
				refuseIf(job.prompt != nil && job.call == nil, "cannot be used with prompt, because the prompt names the columns; leave column_name out"),
			))
		}},
		{name: "input_format", want: "a string", into: &spec.Format, rule: func() error { return requireFile(input.ValidateFormat(spec.Format)) }},
		{name: fieldIDColumn, want: "a string", into: &spec.IDColumn, rule: func() error { return requireFile(checkIDColumn(job)) }},
		{name: "messages", want: "a boolean", into: &spec.Messages, rule: func() error {
			return cmp.Or(
				refuseIf(sub.fromJob != "", "is the same as in the job that inputs names; leave it out"),
				refuseIf(spec.Messages && job.prompt != nil, "cannot be used with a prompt, which makes one message of each row; leave one of the two out"),
				refuseIf(spec.Messages && spec.Model.Kind == rowmill.KindEmbedding, "cannot be used with %s, which is an embedding model; leave it out", spec.Model.ID),
			)
		}},
		{name: "keep_columns", read: func() { sub.readKeep(job) }},
		{name: fieldVariants, read: func() {
			if _, given := sub.fields[fieldVariants]; given {
				sub.problems.Add(fieldVariants, "is only for POST /v1/sets")
			}
		}},
		{name: "limit", want: "an integer", into: &spec.Limit, rule: func() error {
			return refuseIf(spec.Limit < 1, "must be at least 1; leave it out to run all rows")
		}},
		{name: "sample", want: "a string", into: &spec.Sample, rule: func() error { return checkSample(spec.RowChoice) }},
		{name: fieldOutput, want: "a string", into: &spec.Output, rule: func() error { return job.checkOutputName() }},
		{name: fieldSystem, read: func() { sub.readInstructions(job) }},
		{name: fieldSchema}, // readInstructions reads it too
		{name: fieldSampling, read: func() { spec.Sampling = sub.resolveSampling(job) }},
		{name: "random_seed_per_input", want: "a boolean", into: &spec.SeedPerRow, rule: job.ignoreSeeds},
		{name: "cost_estimate", want: "a boolean", into: &spec.Estimate, rule: func() error {
			return refuseIf(spec.Estimate && spec.Limit != 0, "estimates the cost of the whole input; leave limit out")
		}},
		{name: "dedup", want: "a boolean", into: &spec.Dedup, rule: func() error {
			return refuseIf(spec.Dedup && spec.SeedPerRow, "runs equal rows once, but random_seed_per_input gives each row its own seed and so its own answer; leave one of the two fields out")
		}},
		{name: "repair", want: "a boolean", into: &spec.Repair, rule: func() error {
			return refuseIf(spec.Repair && len(spec.Schema) == 0, "extracts JSON from text, for which it needs json_schema; send json_schema, or leave repair out")
		}},
		{name: "truncate_rows", want: "a boolean", into: &spec.TruncateRows},
		{name: fieldReuse, read: func() { sub.readReuse(job) }},
		{name: fieldDeadline, read: func() { sub.readDeadline(job) }},
		{name: fieldAdmit, read: func() { sub.readAdmit(job) }},
		{name: "output", want: "a string", into: &sink, rule: func() error { return sub.checkSink(job, sink) }},
		{name: "job_priority", want: "the integer " + rowmill.PriorityValues, into: &spec.Priority, rule: func() error { return spec.Priority.Validate() }},
	}
	for _, label := range job.labels.ListLabels() {
		fields = append(fields, field{name: label.Field, want: "a string", into: label.Text, rule: func() error {
			count := utf8.RuneCountInString(**label.Text)
			return refuseIf(count > label.MaxRunes, "has %d characters; it may have at most %d, so shorten it", count, label.MaxRunes)
		}})
	}
	return fields
}

// refuseIf returns an error if a field breaks a rule.
func refuseIf(isBroken bool, format string, args ...any) error {
	if isBroken {
		return fmt.Errorf(format, args...)
	}
	return nil
}

// knownFields has all fields for the reader of the body, which needs only their names. Other
// fields are ignored.
var knownFields = new(Submission).listFields(&CheckedJob{})

// validate checks every rule for the fields, sets the job's specification, and adds the
// problems to the submission.
func (sub *Submission) validate(job *CheckedJob) {
	spec := &job.Spec
	spec.URL, spec.Source, spec.Dedup, spec.TruncateRows = sub.url, sub.files, sub.Dedup, true
	for _, f := range sub.listFields(job) {
		if f.read != nil {
			f.read()
		} else if f.into != nil && sub.decodeField(f.name, f.want, f.into) && f.rule != nil {
			if err := f.rule(); err != nil {
				sub.problems.Add(f.name, "%s", err)
			}
		}
	}
	if spec.Estimate {
		spec.Keep = nil // an estimate has no results
	}
	if spec.Limit > 0 {
		spec.Sample = cmp.Or(spec.Sample, rowmill.SampleFirst)
	}
	spec.Dedup = spec.Dedup && !spec.SeedPerRow // rows with seeds of their own are never equal
	spec.Seed = rand.Int64N(math.MaxInt32 + 1)  // the range that every engine accepts
	if seed, fixed := spec.Sampling["seed"].(int64); fixed {
		spec.Seed = seed
	}
	if sub.inSet && spec.Sample == rowmill.SampleRandom {
		spec.Seed = sub.source.Spec.Seed // chooses the same rows as the first job of the set
	}
	if len(sub.unknown) > 0 {
		job.warn(sub.unknownWarning())
	}
	if job.call == nil { // the schema of a Function was compiled when it was published
		checkSchemaCompiles(&sub.problems, sub.schemaField, spec.Schema)
	}
}

// ignoreSeeds removes the seeds of the rows, with a warning, if the model embeds.
func (job *CheckedJob) ignoreSeeds() error {
	if model := job.Spec.Model; job.Spec.SeedPerRow && model.Kind == rowmill.KindEmbedding {
		job.warn(fmt.Sprintf("random_seed_per_input was ignored: %s is an embedding model and uses no random numbers", model.ID))
		job.Spec.SeedPerRow = false
	}
	return nil
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
	fixed := []string{fieldPrompt, fieldColumn, fieldSystem, fieldSchema}
	if !f.isStored() {
		fixed = append(fixed, fieldModel)
	}
	for _, field := range fixed {
		if _, given := sub.fields[field]; given && !sub.problems.Has(field) {
			sub.problems.Add(field, "cannot be used with a Function, which sets it itself; leave it out")
		}
	}
	if f.System != nil {
		spec.System = *f.System
	}
	spec.Column, spec.Schema = "", f.Schema
}

// checkInputs checks the rows and the field inputs.
func (sub *Submission) checkInputs(job *CheckedJob) {
	sub.checkRows(job)
	if sub.fromJob != "" {
		sub.useSource(job)
		return
	}
	if sub.url != "" {
		if err := input.ValidateURL(sub.url); err != nil {
			sub.problems.Add(fieldInputs, "%s", err)
		}
	} else if sub.file == "" && sub.files == "" && !sub.inline && !sub.problems.Has(fieldInputs) {
		sub.problems.Add(fieldInputs, "is missing; send an array of strings, the URL of a file of CSV, Parquet or JSON Lines, file: and the id of an uploaded file, or job: and the id of a job")
	}
}

// checkWhere checks the condition for the answers of the job in inputs.
func (sub *Submission) checkWhere(condition string) error {
	_, err := input.ParseCondition(condition)
	return cmp.Or(refuseIf(sub.fromJob == "" || sub.inSet, "is only for inputs of the form job:JOB; leave it out"), err)
}

// checkIDColumn checks the name of the ID column.
func checkIDColumn(job *CheckedJob) error {
	id := job.Spec.IDColumn
	return cmp.Or(
		refuseIf(id == "", "is empty; leave it out to have no ID column"),
		refuseIf(strings.HasPrefix(id, results.ReservedPrefix), "must not begin with the reserved prefix %s; rename the column", results.ReservedPrefix),
		// A later version may have a column confidence_score.
		refuseIf(results.IsReservedName(id) || id == "confidence_score" || id == job.ID, "must not be %q, which is a column of the results; rename the column", id),
		refuseIf(id == job.Spec.Column, "must differ from column_name, which names the column with the rows"),
		refuseIf(job.prompt.HasInput(id), "must not be %q, which is a column of the prompt; rename the column", id),
	)
}

// readKeep reads the columns of the input that results can repeat: "*" for all, or their names.
func (sub *Submission) readKeep(job *CheckedJob) {
	const field = "keep_columns"
	raw, given := sub.fields[field]
	if !given {
		return
	}
	names := []string{rowmill.KeepAll}
	if string(raw) != `"*"` {
		if err := request.Decode(raw, &names); err != nil || len(names) == 0 || len(names) > 1 && slices.Contains(names, rowmill.KeepAll) {
			sub.problems.Add(field, `must be "*" or an array of names of columns`)
			return
		}
	}
	if sub.fromJob != "" {
		sub.problems.Add(field, "is only for files and rows in the request; the stored input of a job has no other columns, so leave it out")
	}
	if sub.inline && sub.seen.objects == 0 {
		sub.problems.Add(field, "is only for files and for rows that are objects: strings have no columns; leave it out")
	}
	seen := map[string]bool{}
	for i, name := range names {
		problem := cmp.Or(
			refuseIf(name == "", "is empty; name a column"),
			refuseIf(len(name) > maxColumnBytes, "has %d bytes; it may have at most %d", len(name), maxColumnBytes),
			refuseIf(results.IsReservedName(name), "must not be %q, which is a column of the results; rename the column", name),
			refuseIf(seen[name], "is %q, which is named before; name it once", name),
		)
		if problem != nil {
			sub.problems.Add(fmt.Sprintf("%s[%d]", field, i), "%s", problem)
		}
		seen[name] = true
	}
	job.Spec.Keep = names
}

// checkSample checks how the rows of a job with a limit are chosen.
func checkSample(rows rowmill.RowChoice) error {
	return cmp.Or(
		refuseIf(rows.Sample != rowmill.SampleFirst && rows.Sample != rowmill.SampleRandom, "must be %q or %q", rowmill.SampleFirst, rowmill.SampleRandom),
		refuseIf(rows.Limit == 0, "needs limit, the number of rows to choose; send limit too, or leave sample out"),
	)
}

// checkOutputName checks the name of the output column.
func (job *CheckedJob) checkOutputName() error {
	name := job.Spec.Output
	return cmp.Or(
		refuseIf(name == "", "is empty; leave it out to name the column after the job"),
		refuseIf(len(name) > maxColumnBytes, "has %d bytes; it may have at most %d, so shorten it", len(name), maxColumnBytes),
		refuseIf(strings.ContainsFunc(name, unicode.IsControl), "must not contain line breaks or other control characters"),
		refuseIf(results.IsReservedName(name), "must not be %q, which is another column of the results; choose another name", name),
		refuseIf(name == job.Spec.IDColumn, "must differ from id_column_name; choose another name"),
		refuseIf(job.prompt.HasInput(name), "must not be %q, which is a column of the prompt; choose another name", name),
	)
}

// readPrompt sets the prompt that the rows of the job fill: that of the Function, or of the
// field prompt. The job has no such prompt if its rows are prompts.
func (sub *Submission) readPrompt(job *CheckedJob) {
	if f := job.call; f != nil {
		job.prompt, job.Spec.Function = f.prompt, &rowmill.FunctionPrompt{Inputs: f.Inputs, Prompt: f.Prompt}
		return
	}
	var text string
	if !sub.decodeField(fieldPrompt, "a string", &text) {
		return
	}
	run, err := function.FromText(text)
	if err == nil {
		job.prompt, err = function.NewPrompt(run)
	}
	if err != nil {
		sub.problems.Add(fieldPrompt, "%s", err)
		return
	}
	job.Spec.Function = &run
}

// readInstructions reads the system prompt and the schema. If the job runs a Function, it copies
// them from the Function.
func (sub *Submission) readInstructions(job *CheckedJob) {
	spec := &job.Spec
	if job.call != nil {
		sub.copyFunction(job)
		return
	}
	if sub.url != "" && job.prompt == nil && input.AssumesCSV(input.FileNameFromURL(sub.url), spec.Column, input.Format(spec.Format)) {
		job.warn("inputs: the URL does not show the format, and column_name is not set. The first line is read as a header, unless the file is Parquet or JSON Lines. For plain text, set input_format to lines")
	}
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

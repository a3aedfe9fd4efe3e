package http

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"unicode/utf8"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/catalog"
	"github.com/rowmill/rowmill/input"
	"github.com/rowmill/rowmill/schema"
)

const (
	maxSystemBytes      = 1 << 20 // of the decoded text
	maxNameRunes        = 45      // Unicode code points
	maxDescriptionRunes = 512     // Unicode code points

	// reservedPrefix and reservedColumns may not name an ID column: results
	// have columns of these names, or will.
	reservedPrefix = "RESERVED_"
)

// codeUnknownModel is the code of a model that is neither in the catalog nor a
// published Function of the account.
const codeUnknownModel = "unknown_model"

var reservedColumns = map[string]bool{
	"inputs": true, "outputs": true, "confidence_score": true, "cumulative_logprobs": true,
}

// A request is a submission that keeps all rules: what becomes a job.
type request struct {
	spec        rowmill.Spec // without rows, account and quotas
	function    *rowmill.FunctionRef
	name        *string
	description *string
	warnings    []string
}

// validate checks every rule of the submission table and collects all that
// are broken in the submission's problems. f is the Function that it names, or
// nil.
func (sub *submission) validate(models *catalog.Catalog, f *called, jobID string) request {
	var r request
	r.spec.URL = sub.url
	if f == nil {
		r.spec.Model = sub.model(models)
		sub.checkRows(nil, r.spec.Model.ID != "")
		sub.columns(&r.spec, jobID)
		sub.prompt(&r)
	} else {
		r.spec.Model = sub.modelOf(f, models)
		sub.checkRows(f.prompt, false)
		sub.columns(&r.spec, jobID)
		sub.ofFunction(&r, f)
	}
	r.spec.Sampling = sub.sampling(&r, f)

	sub.read(fieldSeeds, "a boolean", &r.spec.SeedPerRow)
	sub.read(fieldEstimate, "a boolean", &r.spec.Estimate)
	if r.spec.SeedPerRow && r.spec.Model.Kind == rowmill.KindEmbedding {
		r.warnings = append(r.warnings, fmt.Sprintf("random_seed_per_input ignored: %s is an embedding model and draws nothing at random", r.spec.Model.ID))
		r.spec.SeedPerRow = false
	}
	r.spec.TruncateRows = true
	sub.read(fieldTruncate, "a boolean", &r.spec.TruncateRows)
	if sub.read(fieldPriority, "the integer 0 or 1", &r.spec.Priority) && r.spec.Priority != 0 && r.spec.Priority != 1 {
		sub.problems.add(fieldPriority, "is %d; it must be 0 (prototyping) or 1 (production)", r.spec.Priority)
	}
	r.name = sub.label(fieldName, maxNameRunes)
	r.description = sub.label(fieldText, maxDescriptionRunes)

	r.spec.Seed = rand.Int64N(math.MaxInt32 + 1) // what every engine takes
	if seed, fixed := r.spec.Sampling["seed"].(int64); fixed {
		r.spec.Seed = seed
	}
	if len(sub.unknown) > 0 {
		r.warnings = append(r.warnings, sub.ignored())
	}
	if f == nil { // a Function's was compiled when it was published
		sub.problems.compile(fieldSchema, r.spec.Schema)
	}
	return r
}

func (sub *submission) ignored() string {
	text := "ignored unknown fields: " + strings.Join(sub.unknown, ", ")
	if sub.more > 0 {
		text += fmt.Sprintf(" and %d more", sub.more)
	}
	return text
}

// read decodes a field into the value, and reports whether it was there and
// well-typed.
func (sub *submission) read(field, must string, into any) bool {
	raw, given := sub.fields[field]
	if !given {
		return false
	}
	if err := json.Unmarshal(raw, into); err != nil {
		sub.problems.add(field, "must be %s or null", must)
		return false
	}
	return true
}

func (sub *submission) model(models *catalog.Catalog) rowmill.Model {
	id := catalog.DefaultModel
	if _, given := sub.fields[fieldModel]; given && !sub.read(fieldModel, "a string", &id) {
		return rowmill.Model{}
	}
	m, found := models.Find(id)
	if !found {
		hint := ""
		if near := models.Nearest(id); near != "" {
			hint = fmt.Sprintf("; did you mean %q?", near)
		}
		sub.problems.addCode(codeUnknownModel, rowmill.FieldError{Field: fieldModel, Message: fmt.Sprintf(
			"%q is neither a model of this service nor a published Function of your account%s", shorten(id, 128), hint)})
	}
	return m
}

// modelOf returns the model that a Function runs on.
func (sub *submission) modelOf(f *called, models *catalog.Catalog) rowmill.Model {
	m, found := models.Find(f.Model)
	if !found {
		sub.problems.addCode(codeUnknownModel, rowmill.FieldError{Field: fieldModel, Message: fmt.Sprintf(
			"revision %d of the Function %s runs on %q, which is no model of this service any more; publish a revision with another", f.Revision, f.Name, f.Model)})
	}
	return m
}

// ofFunction takes over what the Function decides, and refuses what only
// standalone models take.
func (sub *submission) ofFunction(r *request, f *called) {
	for _, field := range []string{fieldColumn, fieldSystem, fieldSchema} {
		if _, given := sub.fields[field]; given && !sub.has(field) {
			sub.problems.add(field, "cannot be given with a Function, which decides it; leave it out")
		}
	}
	for _, in := range f.Inputs {
		if in.Name == r.spec.IDColumn && r.spec.IDColumn != "" {
			sub.problems.add(fieldIDColumn, "must differ from every input of the Function, and %q is one; rename the column", in.Name)
		}
	}
	if f.System != nil {
		r.spec.System = *f.System
	}
	r.spec.Column, r.spec.Schema = "", f.Schema
	r.function = &rowmill.FunctionRef{Name: f.Name, Revision: f.Revision, Model: f.Model}
	r.spec.Function = &rowmill.FunctionRun{Inputs: f.Inputs, Prompt: f.Prompt}
}

// columns checks inputs and the two fields that only URLs have.
func (sub *submission) columns(spec *rowmill.Spec, jobID string) {
	url := sub.url != ""
	if url {
		if err := input.ValidateURL(sub.url); err != nil {
			sub.problems.add(fieldInputs, "%s", err)
		}
	} else if !sub.inline && !sub.has(fieldInputs) {
		sub.problems.add(fieldInputs, "is missing; send an array of strings, or the URL of a CSV or Parquet file")
	}
	if sub.read(fieldColumn, "a string", &spec.Column) {
		switch {
		case !url && sub.inline:
			sub.problems.add(fieldColumn, "is only for inputs given by a URL; leave it out")
		case spec.Column == "":
			sub.problems.add(fieldColumn, "is empty; leave it out to use the first column")
		}
	}
	if !sub.read(fieldIDColumn, "a string", &spec.IDColumn) {
		return
	}
	switch id := spec.IDColumn; {
	case !url && sub.inline:
		sub.problems.add(fieldIDColumn, "is only for inputs given by a URL; leave it out")
	case id == "":
		sub.problems.add(fieldIDColumn, "is empty; leave it out to have no ID column")
	case strings.HasPrefix(id, reservedPrefix):
		sub.problems.add(fieldIDColumn, "must not begin with the reserved prefix %s; rename the column", reservedPrefix)
	case reservedColumns[id], id == jobID:
		sub.problems.add(fieldIDColumn, "must not be %q, which is a column of the results; rename the column", id)
	case id == spec.Column:
		sub.problems.add(fieldIDColumn, "must differ from column_name, the column to run")
	}
}

// has reports whether a problem with the field is known already.
func (sub *submission) has(field string) bool {
	for _, problem := range sub.problems.fields {
		if problem.Field == field || strings.HasPrefix(problem.Field, field+"[") {
			return true
		}
	}
	return false
}

// prompt checks what stands around every row: system prompt and schema.
func (sub *submission) prompt(r *request) {
	embedding := r.spec.Model.Kind == rowmill.KindEmbedding
	if sub.read(fieldSystem, "a string", &r.spec.System) {
		if size := len(r.spec.System); size > maxSystemBytes {
			sub.problems.add(fieldSystem, "has %d bytes, more than %d; shorten it", size, maxSystemBytes)
		}
		if embedding && r.spec.System != "" {
			r.warnings = append(r.warnings, fmt.Sprintf("system_prompt ignored: %s is an embedding model and embeds the rows alone", r.spec.Model.ID))
			r.spec.System = ""
		}
	}
	raw, given := sub.fields[fieldSchema]
	if !given {
		return
	}
	text, err := schema.Check(raw)
	switch {
	case err != nil:
		sub.problems.add(fieldSchema, "%s", err)
	case embedding:
		sub.problems.add(fieldSchema, "cannot be kept by an embedding model, whose outputs are lists of numbers; leave it out")
	default:
		r.spec.Schema = text
	}
}

// sampling merges the caller's parameters over the Function's and the model's.
func (sub *submission) sampling(r *request, f *called) map[string]any {
	var given map[string]any
	if raw, there := sub.fields[fieldSampling]; there {
		decoder := json.NewDecoder(bytes.NewReader(raw))
		decoder.UseNumber()
		if err := decoder.Decode(&given); err != nil {
			sub.problems.addCode(catalog.CodeInvalidSampling, rowmill.FieldError{Field: fieldSampling, Message: "must be an object or null"})
			return nil
		}
	}
	if f != nil {
		given = f.sampling(given)
	}
	model := r.spec.Model
	if model.ID == "" { // unknown: check what does not depend on it
		model.ContextLength = math.MaxInt
	}
	effective, warnings, err := catalog.MergeSampling(model, given)
	if err != nil {
		sub.problems.addCode(err.Code, err.Fields...)
	}
	r.warnings = append(r.warnings, warnings...)
	return effective
}

func (sub *submission) label(field string, limit int) *string {
	var text string
	if !sub.read(field, "a string", &text) {
		return nil
	}
	if count := utf8.RuneCountInString(text); count > limit {
		sub.problems.add(field, "has %d characters, more than %d; shorten it", count, limit)
	}
	return &text
}

package submission

import (
	"encoding/json"
	"math"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/engine/catalog"
	"github.com/rowmill/rowmill/engine/offer"
	"github.com/rowmill/rowmill/http/request"
	"github.com/rowmill/rowmill/input/function"
)

// MaxDefinition limits the body of a definition: prompt, system prompt and schema at
// their limits, with every byte of the texts written as \u00XX.
const MaxDefinition = 16 << 20

// Definition reads the definition of a Function from a body and adds its problems to the
// body's problems. The caller must read its own fields first. others names them in the
// error about unknown fields.
func Definition(body *request.Object, models *offer.Models, others string) rowmill.Function {
	var f rowmill.Function
	before := body.Problems.Len()
	for _, field := range []struct {
		name string
		into any
	}{
		{fieldName, &f.Name}, {fieldText, &f.Description}, {"prompt", &f.Prompt}, {fieldSystem, &f.System}, {fieldModel, &f.Model},
	} {
		body.Read(field.name, "a string", field.into)
	}
	for _, entry := range body.Objects(fieldInputs) {
		in := rowmill.FunctionInput{Required: true}
		entry.Read("name", "a string", &in.Name)
		entry.Read("description", "a string", &in.Description)
		entry.Read("required", "a boolean", &in.Required)
		entry.End("name, required and description")
		f.Inputs = append(f.Inputs, in)
	}
	readable := body.Problems.Len() == before
	if readable { // otherwise a field with the wrong type would also be reported as missing
		body.Problems.AddCode(request.CodeInvalid, function.Check(&f)...)
	}
	if models.Known(f.Name) {
		body.Add(fieldName, "%q is the name of a model, and a submission uses the model first; choose another name", f.Name)
	}
	if f.System != nil && len(*f.System) > maxSystemBytes {
		body.Add(fieldSystem, "has %d bytes, more than %d; shorten it", len(*f.System), maxSystemBytes)
	}
	model, err := models.Find(f.Model)
	found := err == nil
	if !found && readable {
		body.Problems.AddCode(request.CodeUnknownModel, rowmill.FieldError{Field: fieldModel, Message: err.Error() + "; a Function cannot call another"})
	}
	embedding := found && model.Kind == rowmill.KindEmbedding
	if embedding && f.System != nil {
		body.Add(fieldSystem, "cannot be used by an embedding model, which embeds the prompt alone; leave it out")
	}
	var raw json.RawMessage
	if body.Read(fieldSchema, "an object", &raw) {
		f.Schema = readSchema(body.Problems, fieldSchema, raw, embedding)
	}
	if !found {
		model.ContextLength = math.MaxInt
	}
	var form outputConstraint
	f.Sampling, form = definedSampling(body, model)
	schemaField := fieldSchema
	switch {
	case form.field == "":
	case raw != nil:
		body.Add(form.field, "constrains the output, as %s does; send one of the two", fieldSchema)
	case form.schema != nil:
		schemaField = form.field
		f.Schema = readSchema(body.Problems, form.field, form.schema, embedding)
	}
	// Clients may send back an answer of the service after changes, so ignore these
	// fields of the answer.
	for _, field := range []string{"revision", "created_at", "published_at"} {
		body.Drop(field)
	}
	body.End("name, description, inputs, prompt, system_prompt, model, json_schema and sampling_params" + others)
	compileLast(body.Problems, schemaField, f.Schema)
	return f
}

// definedSampling reads sampling_params. It keeps the notation of numbers.
func definedSampling(body *request.Object, model rowmill.Model) (map[string]any, outputConstraint) {
	var raw json.RawMessage
	if !body.Read(fieldSampling, "an object", &raw) {
		return map[string]any{}, outputConstraint{}
	}
	given, form, ok := readSampling(body.Problems, raw)
	if !ok {
		return nil, outputConstraint{}
	}
	effective, _, err := catalog.MergeSampling(model, given)
	if err != nil {
		body.Problems.AddCode(err.Code, err.Fields...)
	} else if model.Kind == rowmill.KindEmbedding && len(given) > 0 {
		body.Add(fieldSampling, "cannot be used by an embedding model, which generates no text; leave it out")
	}
	checkConstraint(body.Problems, effective)
	return given, form
}

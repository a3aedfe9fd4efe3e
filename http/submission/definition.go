package submission

import (
	"encoding/json"
	"math"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/engine/catalog"
	"github.com/rowmill/rowmill/engine/served"
	"github.com/rowmill/rowmill/http/request"
	"github.com/rowmill/rowmill/input/function"
)

// MaxDefinition limits the body of a definition, in bytes. It is enough for the largest
// prompt, system prompt and schema, with every byte of the texts written as \u00XX.
const MaxDefinition = 16 << 20

// ReadDefinition reads the definition of a Function from a body and adds the problems of
// the definition to the body's problems. If the body has further fields, the caller
// must read them first; otherFields names them for the error about unknown fields.
func ReadDefinition(body *request.JSONObject, models *served.Models, otherFields string) rowmill.Function {
	var f rowmill.Function
	before := body.Problems.Len()
	body.Read("name", "a string", &f.Name)
	body.Read("description", "a string", &f.Description)
	body.Read("prompt", "a string", &f.Prompt)
	body.Read(fieldSystem, "a string", &f.System)
	body.Read(fieldModel, "a string", &f.Model)
	for _, entry := range body.ReadInnerObjects(fieldInputs) {
		in := rowmill.FunctionInput{Required: true}
		entry.Read("name", "a string", &in.Name)
		entry.Read("description", "a string", &in.Description)
		entry.Read("required", "a boolean", &in.Required)
		entry.RejectUnknown("name, required and description")
		f.Inputs = append(f.Inputs, in)
	}
	readable := body.Problems.Len() == before
	if readable { // otherwise a field with the wrong type would also be reported as missing
		body.Problems.AddWithCode(request.CodeInvalid, function.Check(&f)...)
	}
	if models.HasModel(f.Name) {
		body.AddProblem("name", "%q is the name of a model, and a submission with this name would use the model; choose another name", f.Name)
	}
	if f.System != nil && len(*f.System) > maxSystemBytes {
		body.AddProblem(fieldSystem, "has %d bytes; it may have at most %d, so shorten it", len(*f.System), maxSystemBytes)
	}
	model, err := models.Find(f.Model)
	found := err == nil
	if !found && readable {
		body.Problems.AddWithCode(request.CodeUnknownModel, rowmill.FieldError{Field: fieldModel, Message: err.Error() + "; a Function cannot use another Function as its model"})
	}
	embedding := found && model.Kind == rowmill.KindEmbedding
	if embedding && f.System != nil {
		body.AddProblem(fieldSystem, "cannot be used by an embedding model, which embeds the prompt alone; leave it out")
	}
	var raw json.RawMessage
	if body.Read(fieldSchema, "an object", &raw) {
		f.Schema = readSchema(body.Problems, fieldSchema, raw, embedding)
	}
	if !found {
		model.ContextLength = math.MaxInt
	}
	var constraint outputConstraint
	f.Sampling, constraint = readDefinedSampling(body, model)
	schemaField := fieldSchema
	switch {
	case constraint.field == "":
	case raw != nil:
		body.AddProblem(constraint.field, "constrains the output, as %s does; send one of the two", fieldSchema)
	case constraint.schema != nil:
		schemaField = constraint.field
		f.Schema = readSchema(body.Problems, constraint.field, constraint.schema, embedding)
	}
	// Clients may change an answer of the service and send it back. So ignore these fields,
	// which only an answer has.
	for _, field := range []string{"revision", "created_at", "published_at"} {
		body.Drop(field)
	}
	body.RejectUnknown("name, description, inputs, prompt, system_prompt, model, json_schema and sampling_params" + otherFields)
	checkSchemaCompiles(body.Problems, schemaField, f.Schema)
	return f
}

// readDefinedSampling reads the sampling_params of a definition. It returns numbers as the
// client wrote them, and the output constraint apart from the other parameters.
func readDefinedSampling(body *request.JSONObject, model rowmill.Model) (map[string]any, outputConstraint) {
	var raw json.RawMessage
	if !body.Read(fieldSampling, "an object", &raw) {
		return map[string]any{}, outputConstraint{}
	}
	given, constraint, ok := readSampling(body.Problems, raw)
	if !ok {
		return nil, outputConstraint{}
	}
	effective, _, err := catalog.MergeSampling(model, given)
	if err != nil {
		body.Problems.AddWithCode(err.Code, err.Fields...)
	} else if model.Kind == rowmill.KindEmbedding && len(given) > 0 {
		body.AddProblem(fieldSampling, "cannot be used by an embedding model, which generates no text; leave it out")
	}
	checkConstraint(body.Problems, effective)
	return given, constraint
}

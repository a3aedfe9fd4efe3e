package http

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

const (
	// maxSchemaBytes bounds json_schema without white space between tokens.
	maxSchemaBytes = 256 << 10
	// maxSchemaLevels bounds its nesting; the root is level 1.
	maxSchemaLevels = 64
	// schemaAddress stands for the schema in the compiler; references are
	// resolved against it.
	schemaAddress = "urn:rowmill:json_schema"
)

// checkSchema returns the schema without white space, or what can be seen to be
// wrong with it at little cost; compileSchema says the rest.
func checkSchema(raw json.RawMessage) (json.RawMessage, error) {
	if raw[0] != '{' {
		return nil, errors.New("must be an object holding a JSON Schema, or null")
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, raw); err != nil {
		return nil, fmt.Errorf("is not valid JSON: %w", err)
	}
	if size := compact.Len(); size > maxSchemaBytes {
		return nil, fmt.Errorf("has %d bytes, more than %d; send a smaller schema", size, maxSchemaBytes)
	}
	if deep := levels(compact.Bytes()); deep > maxSchemaLevels {
		return nil, fmt.Errorf("is nested %d levels deep, more than %d; flatten it with $defs and $ref", deep, maxSchemaLevels)
	}
	return compact.Bytes(), nil
}

// compileSchema says why a checked schema is none. Drafts are told by $schema;
// the default is 2020-12. It costs by far the most of all checks, and is made
// once all others have passed.
func compileSchema(schema json.RawMessage) error {
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(schema))
	if err != nil {
		return fmt.Errorf("is not valid JSON: %w", err)
	}
	compiler, patterns := jsonschema.NewCompiler(), patterns{}
	compiler.DefaultDraft(jsonschema.Draft2020)
	compiler.UseLoader(noRemote{})
	compiler.UseRegexpEngine(patterns.compile)
	if err = compiler.AddResource(schemaAddress, document); err == nil {
		_, err = compiler.Compile(schemaAddress)
	}
	switch {
	case err == nil:
		return nil
	case patterns.refused != nil:
		return fmt.Errorf("%w (found at %s)", patterns.refused, shorten(patterns.placeIn(err), 256))
	}
	return fmt.Errorf("is no JSON Schema: %s", plainReason(err))
}

// compile adds what is wrong with a schema, unless something else is wrong
// already: a request that is refused anyway costs no more than reading it.
func (p *problems) compile(field string, schema json.RawMessage) {
	if len(p.fields) > 0 || schema == nil {
		return
	}
	if err := compileSchema(schema); err != nil {
		p.add(field, "%s", err)
	}
}

// noRemote refuses every document that is not in the schema itself: the
// service fetches nothing on a client's behalf but inputs.
type noRemote struct{}

// Load refuses the document.
func (noRemote) Load(url string) (any, error) {
	return nil, fmt.Errorf("the reference to %s leaves the schema; put what it refers to under $defs", shorten(url, 256))
}

// plainReason is the compiler's text in one bounded line, without our address.
func plainReason(err error) string {
	text := strings.ReplaceAll(err.Error(), schemaAddress, "")
	return shorten(strings.Join(strings.Fields(text), " "), 1024)
}

// levels is the depth of objects and arrays in valid JSON.
func levels(text []byte) (deepest int) {
	var shape nesting
	for _, b := range text {
		shape.step(b)
		deepest = max(deepest, shape.depth)
	}
	return deepest
}

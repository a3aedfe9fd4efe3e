package sim

import (
	"bytes"
	"encoding/json"
	"strings"
	"sync"

	"github.com/rowmill/rowmill/engine/sim/jsongen"
)

// maxSchemas limits the number of compiled schemas that are kept. All rows of a job share
// one schema, and a node runs few jobs at once.
const maxSchemas = 256

// anyObject is the schema for requests with the response_format json_object.
const anyObject = `{"type":"object","properties":{"simulated":{"const":true},"answer":{"type":"string","minLength":40,"maxLength":120},` +
	`"confidence":{"type":"number","minimum":0,"maximum":1}},"required":["simulated","answer","confidence"],"additionalProperties":false}`

// schemaCache is a cache that compiles each JSON schema once.
type schemaCache struct {
	mu    sync.Mutex
	known map[string]func() (*jsongen.Generator, error)
}

func (c *schemaCache) compile(schema []byte) (*jsongen.Generator, error) {
	c.mu.Lock()
	compiled := c.known[string(schema)]
	if compiled == nil {
		if c.known == nil || len(c.known) >= maxSchemas {
			c.known = map[string]func() (*jsongen.Generator, error){}
		}
		text := bytes.Clone(schema)
		compiled = sync.OnceValues(func() (*jsongen.Generator, error) { return jsongen.Compile(text) })
		c.known[string(schema)] = compiled
	}
	c.mu.Unlock()
	return compiled()
}

// requiredForm returns the form that the answer to a request must have.
func (c *schemaCache) requiredForm(req *chatRequest) (form contentForm, err error) {
	if req.called, err = chosenTool(nilIfNull(req.Tools), nilIfNull(req.ToolChoice)); err == nil && req.called != nil {
		form.json, err = c.compile(req.called.Parameters)
	}
	switch {
	case err != nil:
		err = badRequest("tools", "tools: %s", oneLine(err))
	case req.called != nil:
	case req.Rule == nil:
		form.json, err = c.formatGenerator(req.Format)
	case req.Format != nil:
		err = badRequest("structured_outputs", "structured_outputs: You can only use one kind of structured outputs constraint")
	default:
		form.plain = true
		form.json, err = c.ruleGenerator(req.Rule)
	}
	return form, err
}

// outputRule is the member structured_outputs of a request.
type outputRule struct {
	Regex  *string  `json:"regex"`
	Choice []string `json:"choice"`
}

// ruleGenerator returns the generator of JSON strings that match the regex or the
// choices of r.
func (c *schemaCache) ruleGenerator(r *outputRule) (*jsongen.Generator, error) {
	made := map[string]any{"type": "string"}
	switch {
	case r.Regex != nil && r.Choice == nil:
		made["pattern"] = "^(" + *r.Regex + ")$"
	case r.Regex == nil && len(r.Choice) > 0:
		made["enum"] = r.Choice
	default:
		return nil, badRequest("structured_outputs", "structured_outputs: the simulator takes one of regex and choice")
	}
	schema, err := json.Marshal(made)
	if err != nil {
		return nil, err
	}
	g, err := c.compile(schema)
	if err != nil {
		return nil, badRequest("structured_outputs", "structured_outputs: it cannot be used: %s", oneLine(err))
	}
	return g, nil
}

// responseFormat is the member response_format of a request.
type responseFormat struct {
	Type string `json:"type"`
	JSON *struct {
		Name   string          `json:"name"`
		Schema json.RawMessage `json:"schema"`
	} `json:"json_schema"`
}

// formatGenerator returns the generator of answers in the requested format; nil for
// free text.
func (c *schemaCache) formatGenerator(f *responseFormat) (*jsongen.Generator, error) {
	if f == nil || f.Type == "text" {
		return nil, nil
	}
	problem, schema := "", []byte(anyObject)
	switch {
	case f.Type == "json_object":
	case f.Type != "json_schema":
		problem = "type must be one of text, json_object and json_schema"
	case f.JSON == nil:
		problem = "json_schema is required"
	case f.JSON.Name == "":
		problem = "json_schema.name is required"
	case f.JSON.Schema == nil:
		problem = "json_schema.schema is required"
	default:
		schema = f.JSON.Schema
	}
	if problem != "" {
		return nil, badRequest("response_format", "response_format: %s", problem)
	}
	g, err := c.compile(schema)
	if err != nil {
		return nil, badRequest("response_format", "response_format: the json_schema cannot be used: %s", oneLine(err))
	}
	return g, nil
}

// oneLine returns the text of an error on one line.
func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }

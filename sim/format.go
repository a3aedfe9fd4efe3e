package sim

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"

	"github.com/rowmill/rowmill/sim/jsongen"
)

// maxSchemas bounds the compiled schemas kept. All rows of a job share one, and
// a node runs few jobs at once.
const maxSchemas = 256

// anyObject is the schema behind response_format json_object.
const anyObject = `{"type":"object","properties":{"simulated":{"const":true},"answer":{"type":"string","minLength":40,"maxLength":120},` +
	`"confidence":{"type":"number","minimum":0,"maximum":1}},"required":["simulated","answer","confidence"],"additionalProperties":false}`

// schemas compiles each schema once.
type schemas struct {
	mu    sync.RWMutex
	known map[string]*compiledSchema
}

type compiledSchema struct {
	once      sync.Once
	generator *jsongen.Generator
	err       error
}

func (c *schemas) compile(schema []byte) (*jsongen.Generator, error) {
	c.mu.RLock()
	entry := c.known[string(schema)]
	c.mu.RUnlock()
	if entry == nil {
		entry = c.add(string(schema))
	}
	entry.once.Do(func() { entry.generator, entry.err = jsongen.Compile(schema) })
	return entry.generator, entry.err
}

func (c *schemas) add(schema string) *compiledSchema {
	c.mu.Lock()
	defer c.mu.Unlock()
	if entry := c.known[schema]; entry != nil {
		return entry
	}
	if c.known == nil || len(c.known) >= maxSchemas {
		c.known = map[string]*compiledSchema{}
	}
	entry := &compiledSchema{}
	c.known[schema] = entry
	return entry
}

// generator returns what makes the content of an answer, nil for free text. Where
// it is plain its values are JSON strings, and the content is what these hold.
func (s *Server) generator(req *chatRequest) (g *jsongen.Generator, plain bool, err error) {
	if req.called, err = chosenTool(req.tools, req.toolChoice); err != nil || req.called != nil {
		if err == nil {
			g, err = s.schemas.compile(req.called.Parameters)
		}
		if err != nil {
			return nil, false, badRequest("tools", "tools: %s", oneLine(err))
		}
		return g, false, nil
	}
	if req.rule == nil {
		g, err = s.formatted(req)
		return g, false, err
	}
	if req.format != nil {
		return nil, false, badRequest("structured_outputs", "structured_outputs: You can only use one kind of structured outputs constraint")
	}
	schema, err := readRule(req.rule)
	if err != nil {
		return nil, false, err
	}
	if g, err = s.schemas.compile(schema); err != nil {
		return nil, false, badRequest("structured_outputs", "structured_outputs: it cannot be used: %s", oneLine(err))
	}
	return g, true, nil
}

// readRule makes the schema of a string of structured_outputs.
func readRule(text []byte) (schema []byte, err error) {
	var rule struct {
		Regex  *string  `json:"regex"`
		Choice []string `json:"choice"`
	}
	if err := json.Unmarshal(text, &rule); err != nil {
		return nil, badRequest("structured_outputs", "structured_outputs: %s", oneLine(err))
	}
	made := map[string]any{"type": "string"}
	switch {
	case rule.Regex != nil && rule.Choice == nil:
		made["pattern"] = "^(" + *rule.Regex + ")$"
	case rule.Regex == nil && len(rule.Choice) > 0:
		made["enum"] = rule.Choice
	default:
		return nil, badRequest("structured_outputs", "structured_outputs: the simulator takes one of regex and choice")
	}
	return json.Marshal(made)
}

// formatted returns what makes an answer of the response_format.
func (s *Server) formatted(req *chatRequest) (*jsongen.Generator, error) {
	if req.format == nil {
		return nil, nil
	}
	kind, schema, err := readFormat(req.format)
	if err != nil {
		return nil, err
	}
	switch kind {
	case "text":
		return nil, nil
	case "json_object":
		schema = []byte(anyObject)
	}
	g, err := s.schemas.compile(schema)
	if err != nil {
		return nil, badRequest("response_format", "response_format: the json_schema cannot be used: %s", oneLine(err))
	}
	return g, nil
}

// oneLine folds the several lines of a validator's report into one.
func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }

// readFormat reads a response_format; schema points into it.
func readFormat(format []byte) (kind string, schema []byte, err error) {
	s := &scanner{data: format}
	named, hasSchema := false, false
	s.members(func(key []byte) {
		switch {
		case string(key) == "type" && s.peek() == '"':
			kind = string(s.text(nil))
		case string(key) == "json_schema" && s.peek() == '{':
			hasSchema = true
			s.members(func(key []byte) {
				switch {
				case string(key) == "name" && s.peek() == '"':
					named = len(s.text(nil)) > 0
				case string(key) == "schema":
					schema = s.skip()
				default:
					s.skip()
				}
			})
		default:
			s.skip()
		}
	})
	problem := ""
	switch {
	case s.err != nil:
		return "", nil, fmt.Errorf("response_format: %w", s.err)
	case kind == "text" || kind == "json_object":
	case kind != "json_schema":
		problem = "type must be one of text, json_object and json_schema"
	case !hasSchema:
		problem = "json_schema is required"
	case !named:
		problem = "json_schema.name is required"
	case schema == nil:
		problem = "json_schema.schema is required"
	}
	if problem != "" {
		return "", nil, badRequest("response_format", "response_format: %s", problem)
	}
	return kind, schema, nil
}

// Package schema owns the JSON Schemas that answers of a model must conform to:
// which of them are taken, and whether an answer conforms. Both are texts of
// strangers, so everything about them is bounded before the library that
// compiles and validates sees it, and a panic of that library is a violation
// like any other. It knows nothing of jobs, models and engines.
package schema

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/rowmill/rowmill/spelling"
)

const (
	// maxBytes bounds a schema without white space between tokens.
	maxBytes = 256 << 10
	// maxLevels bounds its nesting; the root is level 1.
	maxLevels = 64

	// address stands for the schema in the compiler; references are resolved
	// against it.
	address = "urn:rowmill:json_schema"

	// maxProblem bounds what is said of an answer, in bytes.
	maxProblem = 512
)

// Check returns a schema without white space between tokens, or what can be
// seen to be wrong with it at little cost, in words that follow "json_schema";
// Compile says the rest.
func Check(raw json.RawMessage) (json.RawMessage, error) {
	text, _, err := parse(raw)
	return text, err
}

// unwrapped takes off what OpenAI's clients and llama.cpp's hold around a schema:
// {"name", "strict", "schema"}, {"type": "json_schema", "schema"}, or either of them below
// "json_schema". It returns anything else as it is: a JSON Schema has no such members.
func unwrapped(raw json.RawMessage) json.RawMessage {
	for range 2 { // the object below "json_schema", then its "schema"
		inner := inside(raw)
		if inner == nil {
			break
		}
		raw = inner
	}
	return raw
}

// inside takes one object off; nil where there is none.
func inside(raw json.RawMessage) json.RawMessage {
	var outer map[string]json.RawMessage
	if json.Unmarshal(raw, &outer) != nil {
		return nil
	}
	for member := range outer {
		switch member {
		case "name", "description", "strict", "schema", "json_schema", "type":
		default:
			return nil
		}
	}
	kind := string(outer["type"])
	named := outer["name"] != nil || outer["strict"] != nil
	switch {
	case kind == `"json_schema"` && outer["json_schema"] != nil:
		return outer["json_schema"]
	case kind == `"json_schema"`, kind == `"json_object"`, kind == "" && named:
		return outer["schema"]
	}
	return nil
}

func parse(raw json.RawMessage) (checked json.RawMessage, document any, err error) {
	raw = unwrapped(raw)
	if len(raw) == 0 || raw[0] != '{' {
		return nil, nil, errors.New("must be an object holding a JSON Schema, or null")
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, raw); err != nil {
		return nil, nil, fmt.Errorf("is not valid JSON: %w", err)
	}
	if size := compact.Len(); size > maxBytes {
		return nil, nil, fmt.Errorf("has %d bytes, more than %d; send a smaller schema", size, maxBytes)
	}
	if document, err = jsonschema.UnmarshalJSON(bytes.NewReader(compact.Bytes())); err != nil {
		return nil, nil, fmt.Errorf("is not valid JSON: %w", err)
	}
	if deep := levels(document); deep > maxLevels {
		return nil, nil, fmt.Errorf("is nested %d levels deep, more than %d; flatten it with $defs and $ref", deep, maxLevels)
	}
	if place, number := unusable(document); number != "" {
		return nil, nil, fmt.Errorf("has a number at %q that is out of range: %s", place, number)
	}
	return compact.Bytes(), document, nil
}

// A Schema is compiled. It is safe for concurrent use, and holds one answer
// against itself at a time: however costly it is, it takes one processor.
type Schema struct {
	mu       sync.Mutex
	compiled *jsonschema.Schema
	steps    steps
	patterns patterns
}

// Compile says all that can be wrong with a schema. Drafts are told by $schema;
// the default is 2020-12. It costs by far the most of all checks of a request,
// and is best made once the others have passed.
func Compile(raw json.RawMessage) (s *Schema, err error) {
	_, document, err := parse(raw)
	if err != nil {
		return nil, err
	}
	defer func() {
		if reason := recover(); reason != nil {
			s, err = nil, fmt.Errorf("is no JSON Schema that can be compiled: %v", reason)
		}
	}()
	s = &Schema{steps: steps{most: maxSteps}, patterns: patterns{places: placesOfPatterns(document), most: maxMatchSteps}}
	dropFormats(document)
	compiler := jsonschema.NewCompiler()
	compiler.DefaultDraft(jsonschema.Draft2020)
	compiler.UseLoader(noRemote{})
	compiler.UseRegexpEngine(s.patterns.compile)
	compiler.RegisterVocabulary(s.steps.count())
	compiler.AssertVocabs()
	if err = compiler.AddResource(address, document); err == nil {
		s.compiled, err = compiler.Compile(address)
	}
	switch {
	case err == nil:
		s.patterns.places = nil
		return s, nil
	case s.patterns.refused != nil:
		return nil, s.patterns.refused
	}
	return nil, fmt.Errorf("is no JSON Schema: %s", plainReason(err))
}

// Violation says what is wrong with an answer, in words that follow a colon;
// nothing where it conforms, or where ctx has ended.
func (s *Schema) Violation(ctx context.Context, answer string) (problem string) {
	defer func() {
		reason := recover()
		if costly, is := reason.(*costlyMatch); is {
			problem = spelling.Shorten(costly.problem(), maxProblem)
			return
		}
		switch reason {
		case nil, errStopped:
		case errTooManySteps:
			problem = fmt.Sprintf("the schema branches so much that %d steps do not tell", s.steps.most)
		default: // a fault of the library, which the answer's author may provoke
			problem = "it cannot be checked"
		}
	}()
	return s.violation(ctx, answer)
}

// violation has one answer at a time: read, it takes many times its length.
func (s *Schema) violation(ctx context.Context, answer string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ctx.Err() != nil {
		return ""
	}
	value, err := jsonschema.UnmarshalJSON(strings.NewReader(answer))
	if err != nil {
		return "it is not JSON"
	}
	if place, number := unusable(value); number != "" {
		return spelling.Shorten(fmt.Sprintf("the number at %q is out of range: %s", place, number), maxProblem)
	}
	s.steps.ctx, s.steps.taken, s.patterns.left = ctx, 0, s.patterns.most
	if err := s.compiled.Validate(value); err != nil {
		_, problems, _ := strings.Cut(err.Error(), "\n") // the first line names the schema
		return spelling.Shorten(strings.ReplaceAll(strings.TrimPrefix(problems, "- "), "\n- ", "; "), maxProblem)
	}
	return ""
}

// noRemote refuses every document that is not in the schema itself: the
// service fetches nothing on a client's behalf but inputs.
type noRemote struct{}

// Load refuses the document.
func (noRemote) Load(url string) (any, error) {
	return nil, fmt.Errorf("the reference to %s leaves the schema; put what it refers to under $defs", spelling.Shorten(url, 256))
}

// plainReason is the compiler's text in one bounded line, without our address.
func plainReason(err error) string {
	reason := strings.ReplaceAll(err.Error(), address, "")
	return spelling.Shorten(strings.Join(strings.Fields(reason), " "), 1024)
}

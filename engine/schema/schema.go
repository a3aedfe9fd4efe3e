// Package schema checks the JSON Schemas that clients send and checks answers against
// them. Schemas and answers come from clients and models that may want to block the
// node. So the package limits their size and cost before the library compiles or
// validates them, and it treats a panic of the library as a violation. It does not
// know jobs, models or engines.
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
	"golang.org/x/text/language"
	"golang.org/x/text/message"

	"github.com/rowmill/rowmill/internal/textfmt"
)

const (
	// maxBytes limits the size of a schema in bytes, not counting white space between
	// tokens.
	maxBytes = 256 << 10
	// maxLevels limits how deep a schema is nested; the root is level 1.
	maxLevels = 64

	// address is the URI of the schema in the compiler of the library. The compiler
	// resolves references relative to it.
	address = "urn:rowmill:json_schema"

	// maxProblem limits the description of a violation, in bytes.
	maxProblem = 512
)

// Check makes the cheap checks of a schema and returns the schema without white space
// between tokens. The text of its error completes a sentence that begins with
// "json_schema". Compile makes the expensive checks.
func Check(raw json.RawMessage) (json.RawMessage, error) {
	text, _, err := parseAndCheck(raw)
	return text, err
}

// unwrap removes the objects that clients of OpenAI and llama.cpp put around a schema:
// {"name", "strict", "schema"}, {"type": "json_schema", "schema"}, or one of these two
// as the value of "json_schema". It returns any other JSON unchanged. A JSON Schema itself
// has no such fields.
func unwrap(raw json.RawMessage) json.RawMessage {
	for range 2 { // first "json_schema", then "schema" in it
		inner := unwrapOnce(raw)
		if inner == nil {
			break
		}
		raw = inner
	}
	return raw
}

// unwrapOnce returns the JSON inside one wrapper; nil if raw is no wrapper.
func unwrapOnce(raw json.RawMessage) json.RawMessage {
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

// parseAndCheck makes the cheap checks. It returns the schema without white space, and decoded.
func parseAndCheck(raw json.RawMessage) (checked json.RawMessage, document any, err error) {
	raw = unwrap(raw)
	if len(raw) == 0 || raw[0] != '{' {
		return nil, nil, errors.New("must be an object that holds a JSON Schema, or null")
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
	if deep := nestingDepth(document); deep > maxLevels {
		return nil, nil, fmt.Errorf("is nested %d levels deep, more than %d; flatten it with $defs and $ref", deep, maxLevels)
	}
	if place, number := findOutOfRange(document); number != "" {
		return nil, nil, fmt.Errorf("has a number at %q that is out of range: %s", place, number)
	}
	return compact.Bytes(), document, nil
}

// A Schema is a compiled JSON Schema. It is safe for concurrent use. It checks one
// answer at a time, so that even the most expensive schema uses only one processor.
type Schema struct {
	mu       sync.Mutex
	compiled *jsonschema.Schema
	steps    stepLimiter
	patterns patternCompiler
}

// Compile makes all checks of a schema and compiles it. The field $schema selects the
// draft of JSON Schema; the default is 2020-12. Of all checks of a request Compile is
// by far the most expensive: call it last.
func Compile(raw json.RawMessage) (s *Schema, err error) {
	_, document, err := parseAndCheck(raw)
	if err != nil {
		return nil, err
	}
	defer func() {
		if reason := recover(); reason != nil {
			s, err = nil, fmt.Errorf("cannot be compiled as a JSON Schema: %v", reason)
		}
	}()
	s = &Schema{steps: stepLimiter{limit: maxSteps}, patterns: patternCompiler{places: findPatternPointers(document), limit: maxMatchSteps}}
	dropFormats(document)
	compiler := jsonschema.NewCompiler()
	compiler.DefaultDraft(jsonschema.Draft2020)
	compiler.UseLoader(refusingLoader{})
	compiler.UseRegexpEngine(s.patterns.compile)
	compiler.RegisterVocabulary(s.steps.vocabulary())
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
	return nil, fmt.Errorf("is not a valid JSON Schema: %s", formatCompileError(err))
}

// Violation describes how an answer violates the schema. It returns an empty text if
// the answer conforms or ctx has ended. The text completes a sentence after a colon.
func (s *Schema) Violation(ctx context.Context, answer string) (problem string) {
	defer func() {
		reason := recover()
		if costly, is := reason.(*costlyMatch); is {
			problem = textfmt.Shorten(costly.problem(), maxProblem)
			return
		}
		switch reason {
		case nil, errStopped:
		case errTooManySteps:
			problem = fmt.Sprintf("the schema has too many branches: the check needs more than %d steps", s.steps.limit)
		default: // the answer triggered a bug of the library
			problem = "it cannot be checked"
		}
	}()
	return s.violation(ctx, answer)
}

// violation is Violation without the recovery from panics. It checks one answer at a
// time, because a decoded answer takes many times its length in memory.
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
	if place, number := findOutOfRange(value); number != "" {
		return textfmt.Shorten(fmt.Sprintf("the number at %q is out of range: %s", place, number), maxProblem)
	}
	s.steps.ctx, s.steps.taken, s.patterns.left = ctx, 0, s.patterns.limit
	if err := s.compiled.Validate(value); err != nil {
		_, problems, _ := strings.Cut(err.Error(), "\n") // the first line names the schema
		return textfmt.Shorten(plainPlaces.Replace(strings.TrimPrefix(problems, "- ")), maxProblem)
	}
	return ""
}

// plainPlaces puts the problems that the library found on one line, and names the root of the answer.
var plainPlaces = strings.NewReplacer("\n- ", "; ", "at '': ", "the whole answer: ")

// refusingLoader is a schema loader that loads no document: a client must not make the
// service fetch URLs other than the job's inputs.
type refusingLoader struct{}

// Load returns an error for every document.
func (refusingLoader) Load(url string) (any, error) {
	return nil, fmt.Errorf("the reference to %s leaves the schema; copy the schema that it refers to into $defs", textfmt.Shorten(url, 256))
}

// formatCompileError returns the text of the compiler's error on one line of limited length, without
// address: for each place of the schema that breaks a rule, the first rule.
func formatCompileError(err error) string {
	var broken *jsonschema.ValidationError
	if invalid := (*jsonschema.SchemaValidationError)(nil); !errors.As(err, &invalid) || !errors.As(invalid.Err, &broken) {
		reason := strings.ReplaceAll(err.Error(), address, "")
		return textfmt.Shorten(strings.Join(strings.Fields(reason), " "), 1024)
	}
	english, seen := message.NewPrinter(language.English), map[string]bool{}
	var problems []string
	var add func(*jsonschema.ValidationError)
	add = func(e *jsonschema.ValidationError) {
		place := "/" + strings.Join(e.InstanceLocation, "/")
		if len(e.Causes) == 0 && !seen[place] {
			seen[place] = true
			problems = append(problems, fmt.Sprintf("at %s: %s", place, e.ErrorKind.LocalizedString(english)))
		}
		for _, cause := range e.Causes {
			add(cause)
		}
	}
	add(broken)
	return textfmt.Shorten(strings.Join(problems, "; "), 1024)
}

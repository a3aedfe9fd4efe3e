// Package jsongen makes JSON values that conform to a JSON Schema, at random but
// repeatably. The simulated server answers with such values where a real server constrains
// its decoder.
//
// A value is built from types, enum and const, bounds of numbers and lengths, pattern,
// the usual formats, properties, required, items, $ref, allOf, and one alternative of
// anyOf and oneOf. Other keywords are ignored at first. Then the value is validated with
// all keywords. If it does not conform, another value is made. Compile refuses a schema
// for which it finds no value in this way.
package jsongen

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

const (
	// maxAttempts is how many values are tried for one answer. After that the example
	// from Compile is used.
	maxAttempts = 8

	// maxTrials is how many values Compile tries to find a conforming value.
	maxTrials = 256

	// maxTrialBytes is the largest size in bytes of a value that Compile makes. A
	// schema with larger values is used without an example.
	maxTrialBytes = 1 << 20

	// maxExponent is the largest exponent of a number in a schema: 1e400 is beyond
	// every float64, and arithmetic with much larger exponents takes seconds.
	maxExponent = 400
)

// A Generator makes values for one schema. It is safe for concurrent use.
type Generator struct {
	schema  *jsonschema.Schema
	order   map[string]int // position of each member's name among the names in the schema's text
	example []byte         // a conforming value; nil if all values are too large
}

// Compile reads a schema: JSON Schema 2020-12 unless its $schema says otherwise, without
// remote references. The error says why the schema is not valid, or why no value was
// found for it.
func Compile(schema []byte) (*Generator, error) {
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(schema))
	if err != nil {
		return nil, fmt.Errorf("read schema: %w", err)
	}
	order, err := scanMemberOrder(schema)
	if err != nil {
		return nil, fmt.Errorf("read schema: %w", err)
	}
	compiler := jsonschema.NewCompiler()
	compiler.UseLoader(refusingLoader{})
	compiler.AssertFormat() // without this, the compiled schema has no formats
	var unknown error
	compiler.UseRegexpEngine(func(pattern string) (jsonschema.Regexp, error) {
		compiled, err := regexp.Compile(pattern)
		if err != nil {
			unknown = fmt.Errorf("the simulator makes no texts for the pattern %q, only for patterns in the syntax of RE2", pattern)
		}
		return compiled, err
	})
	const name = "urn:rowmill:schema"
	if err := compiler.AddResource(name, document); err != nil {
		return nil, fmt.Errorf("read schema: %w", err)
	}
	compiled, err := compiler.Compile(name)
	if err = cmp.Or(unknown, err); err != nil {
		return nil, fmt.Errorf("compile schema: %w", err)
	}
	g := &Generator{schema: compiled, order: order}
	random := rand.NewPCG(1, 1)
	for range maxTrials {
		g.example, err = g.tryAppend(nil, random, maxTrialBytes)
		switch {
		case errors.Is(err, errFull):
			g.example = nil
			return g, nil
		case err == nil:
			return g, nil
		}
	}
	return nil, fmt.Errorf("no conforming value was found for the schema: %w", err)
}

// refusingLoader is a schema loader that reads neither files nor the network.
type refusingLoader struct{}

// Load returns an error for every document.
func (refusingLoader) Load(url string) (any, error) {
	return nil, fmt.Errorf("reference to %q: only references within the schema are allowed", url)
}

// lexemes matches the numbers in a JSON text, and the strings: with the colon if the
// string is the name of a member.
var lexemes = regexp.MustCompile(`("(?:[^"\\]|\\.)*")(\s*:)?|-?[0-9][-+.0-9eE]*`)

// scanMemberOrder returns the position at which each member's name first appears, because a model
// writes members in the order of the schema. It returns an error for numbers beyond
// maxExponent.
func scanMemberOrder(schema []byte) (order map[string]int, err error) {
	order = make(map[string]int)
	for _, found := range lexemes.FindAllSubmatch(schema, -1) {
		text, quoted, colon := string(found[0]), found[1], found[2]
		if quoted == nil {
			_, exponent, has := strings.Cut(strings.ToLower(text), "e")
			if n, err := strconv.Atoi(exponent); has && (err != nil || n < -maxExponent || n > maxExponent) {
				return nil, fmt.Errorf("number %.40s is beyond 1e±%d", text, maxExponent)
			}
		} else if colon != nil {
			var name string
			if err := json.Unmarshal(quoted, &name); err != nil {
				return nil, err
			}
			if _, known := order[name]; !known {
				order[name] = len(order)
			}
		}
	}
	return order, nil
}

// tryAppend appends one random value to dst and validates it. errFull means that the value
// would have more than limit bytes.
func (g *Generator) tryAppend(dst []byte, random rand.Source, limit int) ([]byte, error) {
	out, err := g.appendRandom(dst, random, limit)
	if err == nil {
		err = g.Validate(out[len(dst):])
	}
	return out, err
}

// Append appends a conforming value to dst. It stops after more than limit bytes; then
// complete is false and out ends with the beginning of a value.
func (g *Generator) Append(dst []byte, random rand.Source, limit int) (out []byte, complete bool) {
	for range maxAttempts {
		out, err := g.tryAppend(dst, random, limit)
		if err == nil || errors.Is(err, errFull) {
			return out, err == nil
		}
	}
	return append(dst, g.example...), g.example != nil
}

// Validate returns an error that says why a value does not conform to the schema, or nil.
func (g *Generator) Validate(value []byte) error {
	decoded, err := jsonschema.UnmarshalJSON(bytes.NewReader(value))
	if err != nil {
		return fmt.Errorf("read value: %w", err)
	}
	if err := g.schema.Validate(decoded); err != nil {
		return fmt.Errorf("validate value: %w", err)
	}
	return nil
}

// ErrTooLoose means that a schema accepts all values that GenerateViolation tries.
var ErrTooLoose = errors.New("no value violates the schema")

// GenerateViolation returns valid JSON that does not conform to the schema.
func (g *Generator) GenerateViolation() ([]byte, error) {
	for _, value := range []string{`{"simulated_violation": true}`, `"simulated violation"`, `-0.5`, `[[]]`, `false`, `null`} {
		if conforms := g.Validate([]byte(value)) == nil; !conforms {
			return []byte(value), nil
		}
	}
	return nil, ErrTooLoose
}

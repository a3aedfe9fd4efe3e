// Package jsongen makes JSON values that conform to a JSON Schema, at random
// but repeatably: the simulated server answers with them where a real one
// would constrain its decoder. It owns schema analysis and generation and
// knows nothing of HTTP, models or tokens.
//
// A schema is turned once into a graph of nodes, each the conjunction of a set
// of subschemas, so that $ref, allOf and sibling keywords all meet in one
// place and recursive schemas end in a finite graph. anyOf, oneOf and
// if/then/else become choices. Keywords that cannot be met by construction
// (not, oneOf, contains and a few more) mark the schema for checking: each
// value is then validated, another is drawn where it fails, and after
// maxAttempts a value known to conform is used.
package jsongen

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

const (
	// maxAttempts is how many values are drawn for one answer before the
	// example found at compilation is used. Low, since each failure costs a
	// validation.
	maxAttempts = 8

	// maxTrials is how many values Compile draws to find one that conforms. A
	// schema that needs more is taken as one that cannot be satisfied.
	maxTrials = 256

	// maxTrialBytes bounds a value drawn by Compile. A schema whose values are
	// larger is used without a check.
	maxTrialBytes = 1 << 20
)

// Source is a stream of random bits. Equal streams make equal values.
type Source interface{ Uint64() uint64 }

// A Generator makes values for one schema. It is safe for concurrent use.
type Generator struct {
	root    *node
	schema  *jsonschema.Schema
	checked bool   // values must be validated before use
	example []byte // a value that conforms; nil when all are too large to check
}

// Compile analyses a schema (JSON Schema 2020-12 unless its $schema says
// otherwise; no remote references). An error says why it is not valid, or why
// no value could be found for it.
func Compile(schema []byte) (*Generator, error) {
	compiled, err := compileValidator(schema)
	if err != nil {
		return nil, err
	}
	document, err := parse(schema)
	if err != nil {
		return nil, fmt.Errorf("read schema: %w", err)
	}
	c := newCompiler(document)
	root, err := c.compile()
	if err != nil {
		return nil, err
	}
	g := &Generator{root: root, schema: compiled, checked: c.inexact}
	if err := g.findExample(); err != nil {
		return nil, err
	}
	return g, nil
}

// refuseLoads is the loader of a validator that must not touch files or the
// network whatever a schema refers to.
type refuseLoads struct{}

// Load refuses.
func (refuseLoads) Load(url string) (any, error) {
	return nil, fmt.Errorf("reference to %q: only references within the schema are allowed", url)
}

func compileValidator(schema []byte) (*jsonschema.Schema, error) {
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(schema))
	if err != nil {
		return nil, fmt.Errorf("read schema: %w", err)
	}
	compiler := jsonschema.NewCompiler()
	compiler.UseLoader(refuseLoads{})
	const name = "urn:rowmill:schema"
	if err := compiler.AddResource(name, document); err != nil {
		return nil, fmt.Errorf("read schema: %w", err)
	}
	compiled, err := compiler.Compile(name)
	if err != nil {
		return nil, fmt.Errorf("compile schema: %w", err)
	}
	return compiled, nil
}

// findExample draws values until one conforms. It also guards against the
// analysis being wrong about a schema: one bad value and all are checked.
func (g *Generator) findExample() error {
	const enough = 8 // good values in a row, to trust a schema without checks
	random := splitmix(1)
	var last error
	for trial, good := 0, 0; trial < maxTrials && good < enough; trial++ {
		value, complete := g.draw(nil, &random, maxTrialBytes)
		if !complete {
			return nil
		}
		if err := g.Validate(value); err != nil {
			g.checked, last = true, err
			if g.example != nil {
				return nil
			}
			continue
		}
		if good++; g.example == nil {
			g.example = value
		}
	}
	if g.example == nil {
		return fmt.Errorf("no conforming value was found for the schema in %d attempts: %w", maxTrials, last)
	}
	return nil
}

// Append appends a conforming value to dst. It gives up once it has written
// more than limit bytes, and then reports false: dst holds the beginning of a
// value.
func (g *Generator) Append(dst []byte, random Source, limit int) ([]byte, bool) {
	base := len(dst)
	for range maxAttempts {
		out, complete := g.draw(dst, random, limit)
		if !complete || !g.checked || g.Validate(out[base:]) == nil {
			return out, complete
		}
		dst = out[:base]
	}
	if g.example == nil {
		return g.draw(dst, random, limit)
	}
	return append(dst, g.example...), true
}

// Validate says why a value does not conform, or nil.
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

// ErrTooLoose says that a schema accepts all values tried by Violate.
var ErrTooLoose = errors.New("no value violates the schema")

// Violate returns valid JSON that does not conform to the schema.
func (g *Generator) Violate() ([]byte, error) {
	for _, value := range []string{`{"simulated_violation": true}`, `"simulated violation"`, `-0.5`, `[[]]`, `false`, `null`} {
		if conforms := g.Validate([]byte(value)) == nil; !conforms {
			return []byte(value), nil
		}
	}
	return nil, ErrTooLoose
}

// splitmix is the SplitMix64 generator (Steele, Lea and Flood 2014).
type splitmix uint64

// Uint64 returns the next 64 bits.
func (s *splitmix) Uint64() uint64 {
	*s += 0x9e3779b97f4a7c15
	z := uint64(*s)
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// Package jsongen makes JSON values that conform to a JSON Schema, at random
// but repeatably: the simulated server answers with them where a real one
// would constrain its decoder. It owns the drawing of values and knows nothing
// of HTTP, models or tokens.
//
// A value is drawn from the schemas that hold at its place together: types,
// listed values, bounds, patterns, formats, items and members are met as it is
// written, and of anyOf, oneOf and if one alternative is followed. What this
// leaves open (not, oneOf's "one", dependent members and a few more) is luck:
// the value is validated, and another drawn where it fails.
package jsongen

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

const (
	// maxAttempts is how many values are drawn for one answer before the
	// example found at compilation is used. Low, since each costs a validation.
	maxAttempts = 8

	// maxTrials is how many values Compile draws to find one that conforms. A
	// schema that needs more is taken as one that cannot be satisfied.
	maxTrials = 256

	// maxTrialBytes bounds a value drawn by Compile. A schema whose values are
	// larger is used without an example.
	maxTrialBytes = 1 << 20

	// maxExponent bounds the numbers of a schema: 1e400 is beyond every
	// float64, and what calculates with larger ones takes seconds or panics.
	maxExponent = 400
)

// A Generator makes values for one schema. It is safe for concurrent use.
type Generator struct {
	schema  *jsonschema.Schema
	order   map[string]int // of the names of members in the schema's text
	deepest int            // nesting that values need; see maxDepth
	example []byte         // a value that conforms; nil where all are too large
	checked bool           // a value may not conform, and is validated
}

// luck are the keywords that a value may have missed, and so has to be checked.
var luck = []string{
	"not", "oneOf", "if", "contains", "uniqueItems", "propertyNames", "patternProperties", "$dynamicRef", "$recursiveRef",
	"dependencies", "dependentRequired", "dependentSchemas", "unevaluatedItems", "unevaluatedProperties",
}

// Compile reads a schema (JSON Schema 2020-12 unless its $schema says
// otherwise; no remote references). An error says why it is not valid, or why
// no value could be found for it.
func Compile(schema []byte) (*Generator, error) {
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(schema))
	if err != nil {
		return nil, fmt.Errorf("read schema: %w", err)
	}
	order, err := scan(schema)
	if err != nil {
		return nil, fmt.Errorf("read schema: %w", err)
	}
	compiler := jsonschema.NewCompiler()
	compiler.UseLoader(refuseLoads{})
	var unknown error
	compiler.UseRegexpEngine(func(pattern string) (jsonschema.Regexp, error) {
		compiled, err := regexp.Compile(pattern)
		if err != nil {
			unknown = fmt.Errorf("the simulator makes no texts for the pattern %q, only for patterns of RE2", pattern)
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
	if err := g.findExample(); err != nil {
		return nil, fmt.Errorf("no conforming value was found for the schema: %w", err)
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

// lexemes finds strings, with the colon behind a member's name, and numbers.
var lexemes = regexp.MustCompile(`("(?:[^"\\]|\\.)*")(\s*:)?|-?[0-9][-+.0-9eE]*`)

// scan notes the order in which the names of members first appear, since a
// model writes members in the order of the schema, and refuses numbers that
// nobody can calculate with.
func scan(schema []byte) (order map[string]int, err error) {
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

// findExample draws values until one conforms, allowing more nesting where
// there is none without. A value that does not means that all are checked.
func (g *Generator) findExample() error {
	const (
		enough  = 8  // good values in a row, to trust a schema without checks
		tooDeep = 16 // values that need more nesting, to allow it
	)
	g.checked = slices.ContainsFunc(luck, func(keyword string) bool { _, has := g.order[keyword]; return has })
	d := drawing{Generator: g, random: rand.NewPCG(1, 1)}
	var last error
	for g.deepest = freeDepth + 3; ; g.deepest *= 2 {
		for trial, good := 0, 0; trial < maxTrials && good < enough && d.misses <= maxMisses; trial++ {
			if trial >= tooDeep && errors.Is(last, errDeep) {
				break
			}
			value, err := d.draw(nil, maxTrialBytes)
			if errors.Is(err, errFull) {
				return nil
			}
			if err == nil {
				err = g.Validate(value)
			}
			if err != nil {
				g.checked, last = true, err
			} else if good++; g.example == nil {
				g.example = value
			}
			if g.example != nil && g.checked {
				return nil
			}
		}
		if g.example != nil || !errors.Is(last, errDeep) || 2*g.deepest > maxDepth || d.misses > maxMisses {
			return last
		}
	}
}

// Append appends a conforming value to dst. It gives up once it has written
// more than limit bytes, and then reports false: dst holds the beginning of a
// value.
func (g *Generator) Append(dst []byte, random rand.Source, limit int) (out []byte, complete bool) {
	d := drawing{Generator: g, random: random}
	for range maxAttempts {
		out, err := d.draw(dst, limit)
		if errors.Is(err, errFull) {
			return out, false
		}
		if err == nil && (!g.checked || g.Validate(out[len(dst):]) == nil) {
			return out, true
		}
	}
	return append(dst, g.example...), g.example != nil
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

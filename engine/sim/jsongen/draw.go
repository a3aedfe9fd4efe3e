package jsongen

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/bits"
	"math/rand/v2"
	"slices"
	"strconv"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/rowmill/rowmill/internal/textfmt"
)

const (
	// freeDepth is the nesting level down to which optional parts are written. Deeper
	// values have only what their schema demands, so that recursive schemas end.
	freeDepth = 5

	// maxDepth is the largest nesting depth of values.
	maxDepth = 64

	// usualItems is the largest number of items of an array if the schema sets no
	// bound.
	usualItems = 3
)

var (
	errFull = errors.New("the value is larger than the limit")
	errDeep = fmt.Errorf("the schema demands endless nesting, or more than %d levels", maxDepth)
)

// A valueDrawer is the state of making one random value.
type valueDrawer struct {
	*Generator
	random rand.Source
	limit  int // the drawing ends with errFull when the output has more bytes
	depth  int // nesting of the current part of the value
}

// appendRandom appends a random value to dst. The value may violate keywords that
// appendRandom ignores. An error names the demand of the schema that cannot be met.
func (g *Generator) appendRandom(dst []byte, random rand.Source, limit int) ([]byte, error) {
	d := valueDrawer{Generator: g, random: random, limit: len(dst) + limit}
	dst, err := d.appendValue(dst, g.schema)
	if err == nil && len(dst) > d.limit {
		err = errFull
	}
	return dst, err
}

// randomBelow returns a number from 0 to n-1.
func (d *valueDrawer) randomBelow(n int) int {
	high, _ := bits.Mul64(d.random.Uint64(), uint64(n))
	return int(high)
}

// randomBetween returns a number from low to high.
func (d *valueDrawer) randomBetween(low, high int) int { return low + d.randomBelow(high-low+1) }

// mustBeMinimal reports whether the current part of the value is nested so deep that it must
// have only its required parts.
func (d *valueDrawer) mustBeMinimal() bool { return d.depth > freeDepth }

// schemaConstraints are the schemas that one value must satisfy, all of them.
type schemaConstraints []*jsonschema.Schema

// add adds schemas to the rules (nil for none), the schemas that they imply, and one
// alternative of each anyOf and oneOf.
func (r *schemaConstraints) add(d *valueDrawer, schemas ...*jsonschema.Schema) error {
	for _, s := range schemas {
		if s == nil || slices.Contains(*r, s) {
			continue
		}
		if s.Bool != nil && !*s.Bool {
			return errors.New("a subschema is false")
		}
		*r = append(*r, s)
		implied := append([]*jsonschema.Schema{s.Ref}, s.AllOf...)
		for _, list := range [][]*jsonschema.Schema{s.AnyOf, s.OneOf} {
			if d.mustBeMinimal() && slices.ContainsFunc(list, isFlat) {
				list = slices.DeleteFunc(slices.Clone(list), func(s *jsonschema.Schema) bool { return !isFlat(s) })
			}
			if len(list) > 0 {
				implied = append(implied, list[d.randomBelow(len(list))])
			}
		}
		if err := r.add(d, implied...); err != nil {
			return err
		}
	}
	return nil
}

// isFlat reports whether a schema allows only values that are neither arrays nor objects,
// or gives the allowed values itself.
func isFlat(s *jsonschema.Schema) bool {
	for range maxDepth {
		if s.Ref == nil {
			break
		}
		s = s.Ref
	}
	return s.Const != nil || s.Enum != nil || s.Types != nil && *s.Types&nesting == 0
}

// appendValue appends a value that satisfies all schemas.
func (d *valueDrawer) appendValue(dst []byte, schemas ...*jsonschema.Schema) ([]byte, error) {
	if len(dst) > d.limit {
		return dst, errFull
	}
	var r schemaConstraints
	if err := r.add(d, schemas...); err != nil {
		return dst, err
	}
	for _, s := range r {
		if s.Const != nil {
			return appendJSON(dst, *s.Const)
		}
		if s.Enum != nil {
			return appendJSON(dst, s.Enum.Values[d.randomBelow(len(s.Enum.Values))])
		}
	}
	kind, err := d.drawKind(r)
	if err != nil {
		return dst, err
	}
	switch kind {
	case kindBool:
		return strconv.AppendBool(dst, d.randomBelow(2) == 1), nil
	case kindNumber:
		return d.appendNumber(dst, r)
	case kindString:
		text, err := d.randomText(r)
		return textfmt.AppendString(dst, []byte(text)), err
	case kindArray, kindObject:
		if d.depth++; d.depth > maxDepth {
			return dst, errDeep
		}
		write := d.appendArray
		if kind == kindObject {
			write = d.appendObject
		}
		dst, err := write(dst, r)
		d.depth--
		return dst, err
	}
	return append(dst, "null"...), nil
}

func appendJSON(dst []byte, value any) ([]byte, error) {
	text, err := json.Marshal(value)
	return append(dst, text...), err
}

// jsonTypes is a set of JSON types, such as number and object.
type jsonTypes = jsonschema.Types

func kindsOf(names ...string) (k jsonTypes) {
	for _, name := range names {
		k.Add(name)
	}
	return k
}

var (
	kindBool, kindString, kindNull = kindsOf("boolean"), kindsOf("string"), kindsOf("null")
	kindNumber, kindInteger        = kindsOf("number"), kindsOf("integer")
	kindArray, kindObject          = kindsOf("array"), kindsOf("object")
	nesting                        = kindArray | kindObject
	allKinds                       = kindBool | kindString | kindNull | kindNumber | nesting
)

// drawKind chooses the JSON type of a value from the types that all schemas allow. If
// all types are allowed, it chooses a type to which a keyword applies, or a string. It
// chooses null rarely, and arrays and objects only if necessary while d is mustBeMinimal.
func (d *valueDrawer) drawKind(r schemaConstraints) (jsonTypes, error) {
	allowed, ofKeywords := allKinds, jsonTypes(0)
	for _, s := range r {
		if s.Types == nil {
			ofKeywords |= keywordTypes(s)
			continue
		}
		named := *s.Types
		if named&kindInteger != 0 {
			named |= kindNumber
		}
		allowed &= named
	}
	switch {
	case allowed == 0:
		return 0, errors.New("no JSON type is allowed by all schemas of the value")
	case allowed == allKinds && ofKeywords != 0:
		allowed = ofKeywords
	case allowed == allKinds:
		allowed = kindString
	}
	if rest := allowed &^ kindNull; rest != 0 && d.randomBelow(6) != 0 {
		allowed = rest
	}
	if rest := allowed &^ nesting; rest != 0 && d.mustBeMinimal() {
		allowed = rest
	}
	for n := d.randomBelow(bits.OnesCount(uint(allowed))); n > 0; n-- {
		allowed &= allowed - 1
	}
	return allowed & -allowed, nil
}

// keywordTypes returns the JSON types to which the keywords of a schema apply: minimum
// applies to numbers, required to objects.
func keywordTypes(s *jsonschema.Schema) (about jsonTypes) {
	if s.Minimum != nil || s.Maximum != nil || s.ExclusiveMinimum != nil || s.ExclusiveMaximum != nil || s.MultipleOf != nil {
		about |= kindNumber
	}
	if s.MinItems != nil || s.Items != nil || s.PrefixItems != nil || s.Items2020 != nil {
		about |= kindArray
	}
	if s.Required != nil || s.Properties != nil || s.AdditionalProperties != nil {
		about |= kindObject
	}
	return about
}

// narrowestBounds returns the narrowest bounds that the rules set with a pair of keywords, such
// as minItems and maxItems. most is -1 if there is no upper bound.
func (r schemaConstraints) narrowestBounds(bounds func(*jsonschema.Schema) (least, most *int)) (least, most int) {
	most = -1
	for _, s := range r {
		low, high := bounds(s)
		if low != nil {
			least = max(least, *low)
		}
		if high != nil && (most < 0 || *high < most) {
			most = *high
		}
	}
	return least, most
}

// withPosition adds to an error the position in the value. It leaves errors about nesting and
// size unchanged, because each nesting level would add a position.
func withPosition(place string, err error) error {
	if errors.Is(err, errDeep) || errors.Is(err, errFull) {
		return err
	}
	return fmt.Errorf("%s: %w", place, err)
}

// itemSchemas returns the schemas of the first items of an array and the schema of all other
// items, from the keywords of 2020-12 or of older drafts.
func itemSchemas(s *jsonschema.Schema) (first []*jsonschema.Schema, rest *jsonschema.Schema) {
	switch list := s.Items.(type) {
	case []*jsonschema.Schema:
		return list, keywordSchema(s.AdditionalItems)
	case nil:
		return s.PrefixItems, s.Items2020
	}
	return nil, keywordSchema(s.Items)
}

// keywordSchema returns the schema in a keyword, whose value is a boolean or a schema; nil
// if the keyword is not set.
func keywordSchema(keyword any) *jsonschema.Schema {
	switch v := keyword.(type) {
	case bool:
		return &jsonschema.Schema{Bool: &v}
	case *jsonschema.Schema:
		return v
	}
	return nil
}

func (d *valueDrawer) appendArray(dst []byte, r schemaConstraints) ([]byte, error) {
	least, most := r.narrowestBounds(func(s *jsonschema.Schema) (*int, *int) { return s.MinItems, s.MaxItems })
	if most >= 0 && least > most {
		return dst, fmt.Errorf("minItems %d exceeds maxItems %d", least, most)
	}
	tuple := 0
	for _, s := range r {
		first, _ := itemSchemas(s)
		tuple = max(tuple, len(first))
	}
	length := least
	switch {
	case d.mustBeMinimal():
	case tuple > 0:
		length = max(least, tuple)
	default:
		length = max(least, d.randomBetween(1, usualItems))
	}
	if most >= 0 {
		length = min(length, most)
	}
	dst = append(dst, '[')
	for i := range length {
		var about []*jsonschema.Schema
		for _, s := range r {
			if first, rest := itemSchemas(s); i < len(first) {
				about = append(about, first[i])
			} else {
				about = append(about, rest)
			}
		}
		if i > 0 {
			dst = append(dst, ", "...)
		}
		var err error
		if dst, err = d.appendValue(dst, about...); err != nil {
			return dst, withPosition(fmt.Sprintf("item %d", i), err)
		}
	}
	return append(dst, ']'), nil
}

// members returns the names of the members that the schemas name, in the order in which
// they first appear in the schema's text, and which members are required.
func (d *valueDrawer) members(r schemaConstraints) (names []string, required map[string]bool) {
	required = make(map[string]bool)
	for _, s := range r {
		names = slices.AppendSeq(names, maps.Keys(s.Properties))
		names = append(names, s.Required...)
		for _, name := range s.Required {
			required[name] = true
		}
	}
	place := func(name string) int {
		if at, has := d.order[name]; has {
			return at
		}
		return len(d.order)
	}
	slices.SortFunc(names, func(a, b string) int { return cmp.Or(place(a)-place(b), cmp.Compare(a, b)) })
	return slices.Compact(names), required
}

func (d *valueDrawer) appendObject(dst []byte, r schemaConstraints) ([]byte, error) {
	names, required := d.members(r)
	dst = append(dst, '{')
	begin := len(dst)
	for _, name := range names {
		if !required[name] && (d.mustBeMinimal() || d.randomBelow(4) == 0) {
			continue
		}
		var about []*jsonschema.Schema
		for _, s := range r {
			if member, listed := s.Properties[name]; listed {
				about = append(about, member)
			} else {
				about = append(about, keywordSchema(s.AdditionalProperties))
			}
		}
		if len(dst) > begin {
			dst = append(dst, ", "...)
		}
		dst = append(textfmt.AppendString(dst, []byte(name)), ": "...)
		var err error
		if dst, err = d.appendValue(dst, about...); err != nil {
			return dst, withPosition(fmt.Sprintf("member %q", name), err)
		}
	}
	return append(dst, '}'), nil
}

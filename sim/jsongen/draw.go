package jsongen

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"slices"
	"strconv"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/rowmill/rowmill/spelling"
)

const (
	// freeDepth is the nesting down to which optional parts are written. Below
	// it only what must be there is, so that recursive schemas end.
	freeDepth = 5

	// maxDepth bounds the nesting of values.
	maxDepth = 64

	// maxMisses bounds what a drawing tries in vain in all its values: texts
	// and combinations of alternatives. maxCombinations bounds those of a value.
	maxMisses       = 10_000
	maxCombinations = 64
)

var (
	errFull = errors.New("the value is larger than it may be")
	errDeep = fmt.Errorf("the schema demands endless nesting, or more than %d levels", maxDepth)
)

// A drawing makes values; after one that did not conform, others.
type drawing struct {
	*Generator
	random  rand.Source
	limit   int // length of dst at which to give up
	attempt int // values drawn before; they differ in the members they leave out
	depth   int // nesting here
	misses  int
}

// draw appends one value, whatever luck has made of it. An error says what the
// schema demands and no value has.
func (d *drawing) draw(dst []byte, limit int) ([]byte, error) {
	d.limit, d.depth = len(dst)+limit, 0
	dst, err := d.value(dst, d.schema)
	d.attempt++
	if err == nil && len(dst) > d.limit {
		err = errFull
	}
	return dst, err
}

// below returns a number from 0 to n-1.
func (d *drawing) below(n int) int {
	high, _ := bits.Mul64(d.random.Uint64(), uint64(n))
	return int(high)
}

func (d *drawing) frugal() bool { return d.depth > freeDepth }

// rules are schemas that hold together at one place.
type rules struct {
	schemas []*jsonschema.Schema

	// choice says which alternatives are followed, a digit for each decision;
	// counting it up leads through all combinations.
	choice, combinations uint64
}

func (r *rules) choose(alternatives int) int {
	n := uint64(alternatives)
	digit := r.choice % n
	r.choice /= n
	r.combinations = min(r.combinations*n, maxCombinations)
	return int(digit)
}

// add takes in schemas (nil for none), all that they imply, and one
// alternative of each decision.
func (r *rules) add(schemas ...*jsonschema.Schema) error {
	for _, s := range schemas {
		if s == nil || slices.Contains(r.schemas, s) {
			continue
		}
		if s.Bool != nil {
			if !*s.Bool {
				return errors.New("a subschema is false")
			}
			continue
		}
		r.schemas = append(r.schemas, s)
		implied := append([]*jsonschema.Schema{s.Ref, s.RecursiveRef}, s.AllOf...)
		if s.DynamicRef != nil {
			implied = append(implied, s.DynamicRef.Ref)
		}
		for _, list := range [][]*jsonschema.Schema{s.AnyOf, s.OneOf} {
			if len(list) > 0 {
				implied = append(implied, list[r.choose(len(list))])
			}
		}
		if s.If != nil {
			if r.choose(2) == 0 {
				implied = append(implied, s.If, s.Then)
			} else {
				implied = append(implied, s.Else)
			}
		}
		if err := r.add(implied...); err != nil {
			return err
		}
	}
	return nil
}

// value writes a value for which all schemas hold. It begins with any
// combination of alternatives, and goes on to the next where one is impossible.
func (d *drawing) value(dst []byte, schemas ...*jsonschema.Schema) ([]byte, error) {
	base, start := len(dst), d.random.Uint64()>>1
	if base > d.limit {
		return dst, errFull
	}
	if d.depth > d.deepest {
		return dst, errDeep
	}
	for try := uint64(0); ; try++ {
		all := rules{choice: start + try, combinations: 1}
		err := all.add(schemas...)
		if err == nil {
			dst, err = d.combination(dst[:base], &all, try > 0)
		}
		if err == nil || errors.Is(err, errFull) {
			return dst, err
		}
		if d.misses++; d.misses > maxMisses || try+1 >= all.combinations {
			if try > 0 {
				err = fmt.Errorf("no alternative can be met; the last: %w", err)
			}
			return dst[:base], err
		}
	}
}

// kinds is a set of kinds of JSON values, a bit each.
type kinds = jsonschema.Types

func kindsOf(names ...string) (k kinds) {
	for _, name := range names {
		k.Add(name)
	}
	return k
}

var (
	kindBool, kindString, kindNull = kindsOf("boolean"), kindsOf("string"), kindsOf("null")
	kindNumber, kindInteger        = kindsOf("number"), kindsOf("integer")
	kindArray, kindObject          = kindsOf("array"), kindsOf("object")
	allKinds                       = kindBool | kindString | kindNull | kindNumber | kindArray | kindObject
	nesting                        = kindArray | kindObject
)

// combination writes a value for one combination of alternatives.
func (d *drawing) combination(dst []byte, r *rules, again bool) ([]byte, error) {
	if values, listed := r.listed(); listed {
		if len(values) == 0 {
			return dst, errors.New("none of the values of enum or const satisfies the keywords beside it")
		}
		text, err := json.Marshal(values[d.below(len(values))])
		return append(dst, text...), err
	}
	kind, err := d.kind(r, again)
	if err != nil {
		return dst, err
	}
	switch kind {
	case kindBool:
		return strconv.AppendBool(dst, d.below(2) == 1), nil
	case kindNumber:
		return d.number(dst, r)
	case kindString:
		text, err := d.text(r)
		return spelling.AppendString(dst, []byte(text)), err
	case kindArray, kindObject:
		write := d.array
		if kind == kindObject {
			write = d.object
		}
		d.depth++
		dst, err := write(dst, r)
		d.depth--
		return dst, err
	}
	return append(dst, "null"...), nil
}

// listed returns those values of enum or const for which all schemas hold, and
// whether there is such a keyword.
func (r *rules) listed() (values []any, listed bool) {
	for _, s := range r.schemas {
		switch {
		case s.Const != nil:
			values, listed = []any{*s.Const}, true
		case s.Enum != nil:
			values, listed = s.Enum.Values, true
		default:
			continue
		}
		break
	}
	if !listed {
		return nil, false
	}
	holds := func(v any) bool {
		return !slices.ContainsFunc(r.schemas, func(s *jsonschema.Schema) bool { return s.Validate(v) != nil })
	}
	return slices.DeleteFunc(slices.Clone(values), func(v any) bool { return !holds(v) }), true
}

// kind chooses the kind of value to write: one the keywords speak about, else
// a string for schemas that say nothing; null rarely, and nothing that nests
// when frugal. Again takes any that is allowed.
func (d *drawing) kind(r *rules, again bool) (kinds, error) {
	allowed, spoken := allKinds, kinds(0)
	for _, s := range r.schemas {
		if s.Types != nil {
			named := *s.Types
			if named&kindInteger != 0 {
				named |= kindNumber
			}
			allowed &= named
		} else {
			spoken |= speaksOf(s)
		}
	}
	switch {
	case allowed == 0:
		return 0, errors.New("its types exclude each other")
	case allowed == allKinds && spoken != 0:
		allowed = spoken
	case allowed == allKinds:
		allowed = kindString
	}
	nth := func(set kinds, n int) kinds {
		for ; n > 0; n-- {
			set &= set - 1
		}
		return set & -set
	}
	count := func(set kinds) int { return bits.OnesCount(uint(set)) }
	if next := nth(allowed, r.choose(count(allowed))); again {
		return next, nil
	}
	if rest := allowed &^ kindNull; rest != 0 && d.below(6) != 0 {
		allowed = rest
	}
	if rest := allowed &^ nesting; rest != 0 && d.frugal() {
		allowed = rest
	}
	return nth(allowed, d.below(count(allowed))), nil
}

// speaksOf says which kinds the keywords of a schema are about.
func speaksOf(s *jsonschema.Schema) (about kinds) {
	if s.Minimum != nil || s.Maximum != nil || s.ExclusiveMinimum != nil || s.ExclusiveMaximum != nil || s.MultipleOf != nil {
		about |= kindNumber
	}
	if s.MinLength != nil || s.MaxLength != nil || s.Pattern != nil || s.Format != nil {
		about |= kindString
	}
	if s.MinItems != nil || s.MaxItems != nil || s.UniqueItems || s.Contains != nil || s.Items != nil || s.PrefixItems != nil || s.Items2020 != nil {
		about |= kindArray
	}
	if s.MinProperties != nil || s.MaxProperties != nil || s.Required != nil || s.Properties != nil ||
		s.AdditionalProperties != nil || s.PatternProperties != nil || s.PropertyNames != nil {
		about |= kindObject
	}
	return about
}

// narrow returns the narrowest bounds that a pair of keywords sets; most is -1
// for none.
func (r *rules) narrow(bounds func(*jsonschema.Schema) (least, most *int)) (least, most int) {
	most = -1
	for _, s := range r.schemas {
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

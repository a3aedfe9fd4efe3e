package jsongen

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/rowmill/rowmill/spelling"
)

const (
	// usualItems bounds the items of an array about which nothing is said.
	usualItems = 3

	// uniqueTries is how often an item is redrawn to differ from its siblings.
	uniqueTries = 64

	// maxContains bounds the items made for contains.
	maxContains = 1000

	// maxExtras bounds the members made up for minProperties.
	maxExtras = 1000
)

// schemaOr reads a keyword that holds nothing, a boolean or a schema.
func schemaOr(keyword any) *jsonschema.Schema {
	switch v := keyword.(type) {
	case bool:
		return &jsonschema.Schema{Bool: &v}
	case *jsonschema.Schema:
		return v
	}
	return nil
}

// items returns what a schema says of the first items and of the others, in
// the 2020-12 form or the older one.
func items(s *jsonschema.Schema) (first []*jsonschema.Schema, rest *jsonschema.Schema) {
	first, rest = s.PrefixItems, s.Items2020
	if list, old := s.Items.([]*jsonschema.Schema); old {
		first, rest = list, schemaOr(s.AdditionalItems)
	} else if s.Items != nil {
		rest = schemaOr(s.Items)
	}
	if rest == nil {
		rest = s.UnevaluatedItems
	}
	return first, rest
}

func (d *drawing) array(dst []byte, r *rules) ([]byte, error) {
	must, most := r.narrow(func(s *jsonschema.Schema) (*int, *int) { return s.MinItems, s.MaxItems })
	prefix, unique := 0, false
	var contains []*jsonschema.Schema // of the items behind the prefix
	for _, s := range r.schemas {
		first, _ := items(s)
		prefix, unique = max(prefix, len(first)), unique || s.UniqueItems
		if s.Contains != nil {
			times := 1
			if s.MinContains != nil {
				times = min(*s.MinContains, maxContains)
			}
			contains = append(contains, slices.Repeat([]*jsonschema.Schema{s.Contains}, times)...)
		}
	}
	if len(contains) > 0 {
		must = max(must, prefix+len(contains))
	}
	if most >= 0 && must > most {
		return dst, fmt.Errorf("%d items are demanded and maxItems is %d", must, most)
	}
	length := must
	if upper := max(must, prefix, usualItems); !d.frugal() {
		if most >= 0 {
			upper = min(upper, most)
		}
		lower := max(must, min(upper, max(1, prefix)))
		length = lower + d.below(upper-lower+1)
	}
	dst = append(dst, '[')
	seen := map[string]bool{}
	for i := range length {
		var about []*jsonschema.Schema
		for _, s := range r.schemas {
			if first, rest := items(s); i < len(first) {
				about = append(about, first[i])
			} else {
				about = append(about, rest)
			}
		}
		if at := i - prefix; at >= 0 && at < len(contains) {
			about = append(about, contains[at])
		}
		end := len(dst)
		if i > 0 {
			dst = append(dst, ", "...)
		}
		start := len(dst)
		var err error
		for range uniqueTries {
			if dst, err = d.value(dst[:start], about...); err != nil || !unique {
				break
			}
			if item := string(dst[start:]); !seen[item] {
				seen[item] = true
				break
			}
			err = errors.New("it does not differ from those before, as uniqueItems demands")
		}
		switch {
		case errors.Is(err, errFull):
			return dst, err
		case err != nil && i >= must:
			return append(dst[:end], ']'), nil
		case err != nil:
			return dst, d.in(fmt.Sprintf("item %d", i), err)
		}
	}
	return append(dst, ']'), nil
}

// in says where in a value an error lies; of endless nesting the beginning will
// do.
func (d *drawing) in(place string, err error) error {
	if d.depth > 1 && errors.Is(err, errDeep) {
		return err
	}
	return fmt.Errorf("%s: %w", place, err)
}

// patterns returns the names of patternProperties in a fixed order.
func patterns(s *jsonschema.Schema) []jsonschema.Regexp {
	return slices.SortedFunc(maps.Keys(s.PatternProperties), func(a, b jsonschema.Regexp) int {
		return cmp.Compare(a.String(), b.String())
	})
}

// about lists what the schemas say of the member called name.
func (r *rules) about(name string) (list []*jsonschema.Schema) {
	named := false
	for _, s := range r.schemas {
		before := len(list)
		if sub, ok := s.Properties[name]; ok {
			list = append(list, sub)
		}
		for _, pattern := range patterns(s) {
			if pattern.MatchString(name) {
				list = append(list, s.PatternProperties[pattern])
			}
		}
		if len(list) > before {
			named = true
		} else {
			list = append(list, schemaOr(s.AdditionalProperties))
		}
	}
	if !named {
		for _, s := range r.schemas {
			list = append(list, s.UnevaluatedProperties)
		}
	}
	return list
}

// members lists the known members in the order of the schema, required ones
// without a schema of their own last.
func (d *drawing) members(r *rules) (names []string, required map[string]bool) {
	required = make(map[string]bool)
	var others []string
	for _, s := range r.schemas {
		names = slices.AppendSeq(names, maps.Keys(s.Properties))
		for _, name := range s.Required {
			required[name] = true
		}
		others = append(others, s.Required...)
	}
	slices.SortFunc(names, func(a, b string) int { return cmp.Or(d.order[a]-d.order[b], cmp.Compare(a, b)) })
	names = slices.Compact(names)
	for _, name := range others {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names, required
}

func (d *drawing) object(dst []byte, r *rules) ([]byte, error) {
	least, most := r.narrow(func(s *jsonschema.Schema) (*int, *int) { return s.MinProperties, s.MaxProperties })
	names, required := d.members(r)
	if most >= 0 && (len(required) > most || least > most) {
		return dst, fmt.Errorf("more members are required than maxProperties %d allows", most)
	}
	need := least - len(required) // members that must be added of free will
	room := most - len(required)  // members that may be; negative for any number
	optional := len(names) - len(required)
	dst = append(dst, '{')
	base := len(dst)
	write := func(name string) (err error) {
		end := len(dst)
		if end > base {
			dst = append(dst, ", "...)
		}
		dst = append(spelling.AppendString(dst, []byte(name)), ": "...)
		if dst, err = d.value(dst, r.about(name)...); errors.Is(err, errFull) {
			return err
		} else if err != nil {
			dst = dst[:end]
			return d.in(fmt.Sprintf("member %q", name), err)
		}
		return nil
	}
	for _, name := range names {
		if !required[name] {
			wanted := need >= optional || !d.frugal() && d.takes()
			optional--
			if !wanted || most >= 0 && room <= 0 {
				continue
			}
		}
		err := write(name)
		switch {
		case errors.Is(err, errFull), err != nil && required[name]:
			return dst, err
		case err == nil && !required[name]:
			room--
			need--
		}
	}
	for i := 0; need > 0 && i < 4*min(least, maxExtras); i++ {
		name, err := d.extraName(r, i)
		if err == nil && !slices.Contains(names, name) {
			names = append(names, name)
			if err = write(name); err == nil {
				need--
			}
		}
		if errors.Is(err, errFull) {
			return dst, err
		}
	}
	if need > 0 {
		return dst, fmt.Errorf("fewer members are possible than minProperties %d demands", least)
	}
	return append(dst, '}'), nil
}

// takes reports whether to write an optional member: usually most; all or
// none in drawings after one that did not conform, since members may depend on
// each other.
func (d *drawing) takes() bool {
	switch d.attempt % 3 {
	case 1:
		return true
	case 2:
		return false
	}
	return d.below(4) != 0
}

// extraName makes up a member's name, of the form that propertyNames and
// patternProperties have, where there are such.
func (d *drawing) extraName(r *rules, i int) (string, error) {
	about := []*jsonschema.Schema{{Types: &kindString}}
	var forms []jsonschema.Regexp
	for _, s := range r.schemas {
		if s.PropertyNames != nil {
			about = append(about, s.PropertyNames)
		}
		forms = append(forms, patterns(s)...)
	}
	if len(forms) > 0 {
		about = append(about, &jsonschema.Schema{Pattern: forms[i%len(forms)]})
	}
	if len(about) == 1 {
		return "field" + strconv.Itoa(i+1), nil
	}
	text, err := d.value(nil, about...)
	if err != nil {
		return "", err
	}
	var name string
	err = json.Unmarshal(text, &name)
	return name, err
}

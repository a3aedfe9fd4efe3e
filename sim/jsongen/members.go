package jsongen

import (
	"regexp"
	"slices"
	"strconv"
)

// maxExtras bounds the members made up to reach minProperties.
const maxExtras = 1000

// maxExtraName is the length aimed at for names made from a pattern.
const maxExtraName = 64

// memberRules are the keywords of one subschema that decide about members.
type memberRules struct {
	properties  *object
	patterns    []patternRule
	rest        any // additionalProperties, or unevaluatedProperties without it
	restApplies bool
}

type patternRule struct {
	text string
	re   *regexp.Regexp
	sub  any
}

func (c *compiler) memberRules(subs []*object) ([]memberRules, error) {
	rules := make([]memberRules, len(subs))
	for i, sub := range subs {
		rules[i].properties, _ = sub.values["properties"].(*object)
		if patterns, ok := sub.values["patternProperties"].(*object); ok {
			for _, text := range patterns.names {
				re, err := patternOf(text)
				if err != nil {
					return nil, err
				}
				rules[i].patterns = append(rules[i].patterns, patternRule{text, re, patterns.values[text]})
			}
		}
		rules[i].rest, rules[i].restApplies = sub.get("additionalProperties")
	}
	return rules, nil
}

// about lists what the subschemas say of the member called name.
func about(rules []memberRules, name string) []any {
	var list []any
	for _, rule := range rules {
		known := false
		if rule.properties != nil {
			if sub, ok := rule.properties.get(name); ok {
				list, known = append(list, sub), true
			}
		}
		for _, pattern := range rule.patterns {
			if pattern.re.MatchString(name) {
				list, known = append(list, pattern.sub), true
			}
		}
		if !known && rule.restApplies {
			list = append(list, rule.rest)
		}
	}
	return list
}

// named reports whether any subschema speaks of the member by name.
func named(rules []memberRules, name string) bool {
	return slices.ContainsFunc(rules, func(rule memberRules) bool {
		if rule.properties != nil {
			if _, ok := rule.properties.get(name); ok {
				return true
			}
		}
		return slices.ContainsFunc(rule.patterns, func(p patternRule) bool { return p.re.MatchString(name) })
	})
}

func (c *compiler) buildObject(rule *objectRule, subs []*object) (err error) {
	if rule.min, rule.max, err = limits(subs, "minProperties", "maxProperties"); err != nil {
		return err
	}
	rules, err := c.memberRules(subs)
	if err != nil {
		return err
	}
	names, required := c.memberNames(subs, rules)
	var forbid []any // unevaluatedProperties, for members nobody names
	var nameRules []any
	for _, sub := range subs {
		if v, ok := sub.get("unevaluatedProperties"); ok {
			c.inexact = true
			forbid = append(forbid, v)
		}
		if v, ok := sub.get("propertyNames"); ok {
			c.inexact = true
			nameRules = append(nameRules, v)
		}
	}
	add := func(list *[]member, name string, must bool) error {
		subs := about(rules, name)
		if !named(rules, name) {
			subs = append(subs, forbid...)
		}
		n, err := c.conjunction(subs, nil)
		if err != nil {
			return err
		}
		*list = append(*list, member{name, n, must})
		return nil
	}
	for _, name := range names {
		if err := add(&rule.members, name, required[name]); err != nil {
			return err
		}
		if required[name] {
			rule.required++
		}
	}
	for _, name := range c.extraNames(rule, rules, nameRules, names) {
		if err := add(&rule.extras, name, false); err != nil {
			return err
		}
	}
	return nil
}

// memberNames lists the known members in the order of the schema, required
// ones without a schema of their own last.
func (c *compiler) memberNames(subs []*object, rules []memberRules) (names []string, required map[string]bool) {
	required = map[string]bool{}
	seen := map[string]bool{}
	note := func(name string) {
		if !seen[name] {
			seen[name] = true
			names = append(names, name)
		}
	}
	for _, rule := range rules {
		if rule.properties != nil {
			for _, name := range rule.properties.names {
				note(name)
			}
		}
	}
	demand := func(value any) {
		list, _ := value.([]any)
		for _, item := range list {
			if name, ok := item.(string); ok {
				note(name)
				required[name] = true
			}
		}
	}
	for _, sub := range subs {
		demand(sub.values["required"])
		// Demanding what may only be needed is stricter, hence safe.
		for _, keyword := range []string{"dependentRequired", "dependencies"} {
			if dependents, ok := sub.values[keyword].(*object); ok {
				c.inexact = true
				for _, name := range dependents.names {
					demand(dependents.values[name])
				}
			}
		}
	}
	return names, required
}

// extraNames makes up as many names as minProperties may need.
func (c *compiler) extraNames(rule *objectRule, rules []memberRules, nameRules []any, known []string) []string {
	need := min(rule.min, maxExtras)
	if need == 0 {
		return nil
	}
	var names []string
	take := func(name string) {
		if !slices.Contains(known, name) && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	random := splitmix(7)
	var sources []*pattern
	for _, r := range rules {
		for _, p := range r.patterns {
			if compiled, err := newPattern(p.text); err == nil {
				sources = append(sources, compiled)
			}
		}
	}
	var nameText *textRule
	if len(nameRules) > 0 {
		if n, err := c.conjunction(nameRules, nil); err == nil && n.never == "" && n.choices == nil && n.enum == nil {
			nameText = &n.text
		}
	}
	// Names made from patterns, then from propertyNames, then plain ones: those
	// that turn out to be forbidden end as nodes nothing satisfies.
	for i := 0; i < 4*need; i++ {
		for _, source := range sources {
			take(string(source.appendSized(nil, &random, i, 0, maxExtraName)))
		}
		if nameText != nil {
			if text, ok := nameText.draw(&random); ok {
				take(text)
			}
			continue
		}
		take("field" + strconv.Itoa(i+1))
	}
	return names
}

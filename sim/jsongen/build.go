package jsongen

import (
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
)

// build fills a node without open choices from its subschemas.
func (c *compiler) build(n *node, set []int) error {
	subs := make([]*object, len(set))
	for i, id := range set {
		subs[i] = c.subs[id]
	}
	whole := allowedKinds(n, subs)
	var numbers numberRule
	for _, sub := range subs {
		if err := addNumberRules(&numbers, sub); err != nil {
			return err
		}
	}
	if err := c.buildText(n, subs); err != nil {
		return err
	}
	if listed, err := c.buildEnum(n, subs, &numbers, whole); listed || err != nil {
		return err
	}
	if n.kinds.has(kindNumber) {
		g, err := numbers.grid(whole)
		if err != nil {
			n.kinds &^= 1 << kindNumber
			n.never = err.Error()
		}
		n.number = g
	}
	if n.kinds.has(kindString) {
		if err := n.text.feasible(); err != nil {
			n.kinds &^= 1 << kindString
			n.never = err.Error()
		}
	}
	if n.kinds.has(kindArray) {
		if err := c.buildArray(&n.array, subs); err != nil {
			return err
		}
	}
	if n.kinds.has(kindObject) {
		if err := c.buildObject(&n.object, subs); err != nil {
			return err
		}
	}
	if n.kinds != 0 {
		n.never = ""
	}
	return nil
}

// keywordsOf says which keywords speak about which kind.
var keywordsOf = [kinds][]string{
	kindNumber: {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"},
	kindString: {"minLength", "maxLength", "pattern", "format"},
	kindArray:  {"items", "prefixItems", "minItems", "maxItems", "uniqueItems", "contains"},
	kindObject: {"properties", "required", "additionalProperties", "patternProperties", "propertyNames", "minProperties", "maxProperties"},
}

// allowedKinds sets the kinds of n, and reports whether numbers must be whole.
func allowedKinds(n *node, subs []*object) (whole bool) {
	n.kinds = allKinds
	for _, sub := range subs {
		for k, keywords := range keywordsOf {
			for _, keyword := range keywords {
				if _, ok := sub.get(keyword); ok {
					n.prefer |= 1 << k
				}
			}
		}
		var names []any
		switch v := sub.values["type"].(type) {
		case string:
			names = []any{v}
		case []any:
			names = v
		default:
			continue
		}
		var allowed kindSet
		fractions := false
		for _, name := range names {
			switch name {
			case "null":
				allowed |= 1 << kindNull
			case "boolean":
				allowed |= 1 << kindBool
			case "integer":
				allowed |= 1 << kindNumber
			case "number":
				allowed |= 1 << kindNumber
				fractions = true
			case "string":
				allowed |= 1 << kindString
			case "array":
				allowed |= 1 << kindArray
			case "object":
				allowed |= 1 << kindObject
			}
		}
		if allowed.has(kindNumber) && !fractions {
			whole = true
		}
		n.kinds &= allowed
	}
	if n.kinds == 0 {
		n.never = "its types exclude each other"
	}
	return whole
}

func addNumberRules(rule *numberRule, sub *object) error {
	for _, keyword := range keywordsOf[kindNumber] {
		number, ok := sub.values[keyword].(json.Number)
		if !ok {
			continue
		}
		value, err := parseDecimal(number)
		if err != nil {
			return fmt.Errorf("%s: %w", keyword, err)
		}
		switch keyword {
		case "minimum":
			rule.atLeast(bound{value, false})
		case "exclusiveMinimum":
			rule.atLeast(bound{value, true})
		case "maximum":
			rule.atMost(bound{value, false})
		case "exclusiveMaximum":
			rule.atMost(bound{value, true})
		case "multipleOf":
			rule.multipleOf(value)
		}
	}
	return nil
}

// buildEnum handles enum and const, and reports whether the node has either.
func (c *compiler) buildEnum(n *node, subs []*object, numbers *numberRule, whole bool) (bool, error) {
	var values []any
	listed := false
	for _, sub := range subs {
		list, ok := sub.values["enum"].([]any)
		if fixed, hasConst := sub.get("const"); hasConst {
			if !ok || slices.ContainsFunc(list, func(v any) bool { return sameValue(v, fixed) }) {
				list = []any{fixed}
			} else {
				list = nil
			}
			ok = true
		}
		if !ok {
			continue
		}
		if !listed {
			values, listed = list, true
			continue
		}
		values = slices.DeleteFunc(slices.Clone(values), func(v any) bool {
			return !slices.ContainsFunc(list, func(w any) bool { return sameValue(v, w) })
		})
	}
	if !listed {
		return false, nil
	}
	for _, value := range values {
		if n.admits(value, numbers, whole) {
			n.enum = append(n.enum, appendValue(nil, value))
		}
	}
	// Members and items of listed values are not looked into.
	if n.prefer.has(kindArray) || n.prefer.has(kindObject) {
		c.inexact = true
	}
	if len(n.enum) == 0 {
		n.never = "none of the values of enum or const satisfies the keywords beside it"
	}
	return true, nil
}

// admits reports whether a listed value obeys the node's plain keywords.
func (n *node) admits(value any, numbers *numberRule, whole bool) bool {
	switch v := value.(type) {
	case nil:
		return n.kinds.has(kindNull)
	case bool:
		return n.kinds.has(kindBool)
	case json.Number:
		d, err := parseDecimal(v)
		return err == nil && n.kinds.has(kindNumber) && numbers.admits(v) && (!whole || d.whole())
	case string:
		return n.kinds.has(kindString) && n.text.admits(v)
	case []any:
		return n.kinds.has(kindArray)
	default:
		return n.kinds.has(kindObject)
	}
}

// count reads a keyword that holds a number of things.
func count(sub *object, keyword string) (int, bool, error) {
	number, ok := sub.values[keyword].(json.Number)
	if !ok {
		return 0, false, nil
	}
	d, err := parseDecimal(number)
	if err != nil || !d.whole() {
		return 0, false, fmt.Errorf("%s: %s is no whole number", keyword, number)
	}
	whole := d.mantissa.Div(d.mantissa, pow10(d.scale))
	if !whole.IsInt64() || whole.Int64() > math.MaxInt32 {
		return math.MaxInt32, true, nil
	}
	return int(whole.Int64()), true, nil
}

// limits reads a pair of counting keywords; most is -1 for no bound.
func limits(subs []*object, minimum, maximum string) (least, most int, err error) {
	most = -1
	for _, sub := range subs {
		if v, ok, err := count(sub, minimum); err != nil {
			return 0, 0, err
		} else if ok {
			least = max(least, v)
		}
		if v, ok, err := count(sub, maximum); err != nil {
			return 0, 0, err
		} else if ok && (most < 0 || v < most) {
			most = v
		}
	}
	return least, most, nil
}

func (c *compiler) buildArray(rule *arrayRule, subs []*object) (err error) {
	if rule.min, rule.max, err = limits(subs, "minItems", "maxItems"); err != nil {
		return err
	}
	longest := 0
	for _, sub := range subs {
		longest = max(longest, len(prefixOf(sub)))
		if sub.values["uniqueItems"] == true {
			rule.unique = true
			c.inexact = c.inexact || rule.min > 1
		}
		if _, ok := sub.get("unevaluatedItems"); ok {
			c.inexact = true
		}
	}
	itemAt := func(i int) []any {
		var list []any
		for _, sub := range subs {
			prefix := prefixOf(sub)
			if i < len(prefix) {
				list = append(list, prefix[i])
			} else if rest, ok := restOf(sub); ok {
				list = append(list, rest)
			} else if last, ok := sub.get("unevaluatedItems"); ok {
				list = append(list, last)
			}
		}
		return list
	}
	for i := range longest {
		n, err := c.conjunction(itemAt(i), nil)
		if err != nil {
			return err
		}
		rule.prefix = append(rule.prefix, n)
	}
	if rule.rest, err = c.conjunction(itemAt(longest), nil); err != nil {
		return err
	}
	return c.buildContains(rule, subs, itemAt(longest))
}

func (c *compiler) buildContains(rule *arrayRule, subs []*object, rest []any) error {
	const most = 1000 // more copies than this of one item are left to the check
	for _, sub := range subs {
		wanted, ok := sub.get("contains")
		if !ok {
			continue
		}
		c.inexact = true
		times, given, err := count(sub, "minContains")
		if err != nil {
			return err
		}
		if !given {
			times = 1
		}
		n, err := c.conjunction(append(slices.Clone(rest), wanted), nil)
		if err != nil {
			return err
		}
		for range min(times, most) {
			rule.contains = append(rule.contains, n)
		}
	}
	return nil
}

// prefixOf returns the schemas of the first items, in the 2020-12 form or the
// older one where items is a list.
func prefixOf(sub *object) []any {
	if list, ok := sub.values["prefixItems"].([]any); ok {
		return list
	}
	list, _ := sub.values["items"].([]any)
	return list
}

func restOf(sub *object) (any, bool) {
	if _, old := sub.values["items"].([]any); old {
		return sub.get("additionalItems")
	}
	return sub.get("items")
}

// patternOf compiles a pattern in Go's syntax, as the validator does.
func patternOf(text string) (*regexp.Regexp, error) {
	re, err := regexp.Compile(text)
	if err != nil {
		return nil, fmt.Errorf("pattern %s: %w", strconv.Quote(text), err)
	}
	return re, nil
}

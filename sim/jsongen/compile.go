package jsongen

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

const (
	// maxNodes bounds the graph of one schema. Choices inside choices multiply;
	// schemas people write stay far below.
	maxNodes = 5000

	// endless is the depth of a node that no finite value satisfies.
	endless = math.MaxInt32
)

// errTooComplex is returned for schemas whose graph exceeds maxNodes.
var errTooComplex = fmt.Errorf("the schema is too complex for the simulator: more than %d combinations of subschemas", maxNodes)

// kind is one type of JSON value.
type kind uint8

const (
	kindNull kind = iota
	kindBool
	kindNumber
	kindString
	kindArray
	kindObject
	kinds int = iota
)

// kindSet is a set of kinds, one bit each.
type kindSet uint8

const allKinds kindSet = 1<<kinds - 1

func (s kindSet) has(k kind) bool { return s&(1<<k) != 0 }

// A node is the conjunction of a set of subschemas at one place of a value:
// either a choice between further nodes, or rules for each kind.
type node struct {
	choices []*node  // exactly one is followed; nil where there is no choice
	enum    [][]byte // the only values, as JSON text; nil for any

	kinds  kindSet // kinds the schema allows
	prefer kindSet // kinds its keywords speak about
	number grid
	text   textRule
	array  arrayRule
	object objectRule

	never     string       // why no value satisfies the node by itself; empty where one may
	depth     int          // least nesting of a value; endless where there is none
	kindDepth [kinds]int32 // the same by kind
}

// arrayRule is what a node demands of arrays.
type arrayRule struct {
	prefix   []*node // the first items
	rest     *node   // the items after prefix
	contains []*node // items that must occur, placed after the prefix
	min, max int     // number of items; max -1 for any
	unique   bool
}

// objectRule is what a node demands of objects.
type objectRule struct {
	members  []member
	extras   []member // made-up members, for minProperties only
	min, max int      // number of members; max -1 for any
	required int      // how many of members are required
	cutoff   int      // optional members up to this depth suffice for min
}

type member struct {
	name     string
	node     *node
	required bool
}

type compiler struct {
	document any
	ids      map[*object]int
	subs     []*object
	nodes    map[string]*node
	order    []*node
	names    map[string]any // anchors and ids
	inexact  bool           // some keyword is not met by construction
}

func newCompiler(document any) *compiler {
	c := &compiler{document: document, ids: map[*object]int{}, nodes: map[string]*node{}, names: map[string]any{}}
	c.collectNames(document)
	return c
}

// collectNames finds the anchors and ids that references may use. A member
// that merely looks like one inside an enum or example is harmless.
func (c *compiler) collectNames(value any) {
	switch v := value.(type) {
	case []any:
		for _, item := range v {
			c.collectNames(item)
		}
	case *object:
		for _, keyword := range []string{"$anchor", "$dynamicAnchor"} {
			if name, ok := v.values[keyword].(string); ok {
				c.names["#"+name] = v
			}
		}
		if id, ok := v.values["$id"].(string); ok {
			c.names[strings.TrimSuffix(id, "#")] = v
		}
		for _, name := range v.names {
			c.collectNames(v.values[name])
		}
	}
}

func (c *compiler) compile() (*node, error) {
	root, err := c.conjunction([]any{c.document}, nil)
	if err != nil {
		return nil, err
	}
	c.findDepths()
	if root.depth == endless {
		return nil, fmt.Errorf("no value satisfies the schema: %s", root.reason(map[*node]bool{}))
	}
	return root, nil
}

// resolve follows a reference within the document.
func (c *compiler) resolve(reference string) (any, error) {
	if target, ok := c.names[reference]; ok {
		return target, nil
	}
	base, pointer, found := strings.Cut(reference, "#")
	target := c.document
	if base != "" {
		named, ok := c.names[base]
		if !ok {
			return nil, fmt.Errorf("$ref %q: the simulator follows references within the schema only", reference)
		}
		target = named
	}
	if !found || pointer == "" {
		return target, nil
	}
	if !strings.HasPrefix(pointer, "/") {
		return nil, fmt.Errorf("$ref %q: there is no such anchor", reference)
	}
	for _, step := range strings.Split(pointer[1:], "/") {
		switch v := target.(type) {
		case *object:
			value, ok := v.get(unescapePointer(percentDecode(step)))
			if !ok {
				return nil, fmt.Errorf("$ref %q: there is no %q", reference, step)
			}
			target = value
		case []any:
			index, err := strconv.Atoi(step)
			if err != nil || index < 0 || index >= len(v) {
				return nil, fmt.Errorf("$ref %q: there is no item %q", reference, step)
			}
			target = v[index]
		default:
			return nil, fmt.Errorf("$ref %q: %q is inside a plain value", reference, step)
		}
	}
	return target, nil
}

// A group is a choice that a subschema demands: one of its alternatives holds.
type group struct {
	key  string
	alts [][]any // each alternative is a set of subschemas
}

// conjunction returns the node of all the given subschemas together. Resolved
// names the groups already decided on the way here.
func (c *compiler) conjunction(members []any, resolved []string) (*node, error) {
	set, impossible, err := c.expand(members)
	if err != nil {
		return nil, err
	}
	key := setKey(set, resolved, impossible)
	if n, ok := c.nodes[key]; ok {
		return n, nil
	}
	if len(c.nodes) >= maxNodes {
		return nil, errTooComplex
	}
	n := &node{never: impossible}
	c.nodes[key] = n
	c.order = append(c.order, n)
	if impossible != "" {
		return n, nil
	}
	for _, id := range set {
		g, ok, err := c.openGroup(id, resolved)
		if err != nil {
			return nil, err
		}
		if ok {
			return n, c.choose(n, set, g, resolved)
		}
	}
	return n, c.build(n, set)
}

func setKey(set []int, resolved []string, impossible string) string {
	if impossible != "" {
		return "never " + impossible
	}
	var b strings.Builder
	for _, id := range set {
		b.WriteString(strconv.Itoa(id))
		b.WriteByte(' ')
	}
	for _, key := range resolved {
		b.WriteString(key)
		b.WriteByte(' ')
	}
	return b.String()
}

// expand follows $ref, allOf and dependentSchemas until the set is closed.
func (c *compiler) expand(members []any) (set []int, impossible string, err error) {
	work := slices.Clone(members)
	seen := map[*object]bool{}
	for len(work) > 0 {
		next := work[len(work)-1]
		work = work[:len(work)-1]
		switch v := next.(type) {
		case bool:
			if !v {
				impossible = "a subschema is false"
			}
			continue
		case *object:
			if seen[v] {
				continue
			}
			seen[v] = true
			more, reason, err := c.implied(v)
			if err != nil {
				return nil, "", err
			}
			if reason != "" {
				impossible = reason
			}
			work = append(work, more...)
			set = append(set, c.id(v))
		default:
			return nil, "", errors.New("a subschema is neither an object nor a boolean")
		}
	}
	slices.Sort(set)
	return set, impossible, nil
}

func (c *compiler) id(sub *object) int {
	id, ok := c.ids[sub]
	if !ok {
		id = len(c.subs)
		c.ids[sub] = id
		c.subs = append(c.subs, sub)
	}
	return id
}

// implied lists the subschemas that hold wherever sub does.
func (c *compiler) implied(sub *object) (more []any, impossible string, err error) {
	for _, keyword := range []string{"$ref", "$dynamicRef"} {
		if reference, ok := sub.values[keyword].(string); ok {
			target, err := c.resolve(reference)
			if err != nil {
				return nil, "", err
			}
			c.inexact = c.inexact || keyword == "$dynamicRef"
			more = append(more, target)
		}
	}
	if all, ok := sub.values["allOf"].([]any); ok {
		more = append(more, all...)
	}
	for _, keyword := range []string{"dependentSchemas", "dependencies"} {
		if dependents, ok := sub.values[keyword].(*object); ok {
			c.inexact = true
			for _, name := range dependents.names {
				if _, list := dependents.values[name].([]any); !list {
					more = append(more, dependents.values[name])
				}
			}
		}
	}
	if not, ok := sub.values["not"]; ok {
		c.inexact = true
		negated, isObject := not.(*object)
		if not == true || isObject && len(negated.names) == 0 {
			impossible = "\"not\" excludes every value"
		}
	}
	return more, impossible, nil
}

// openGroup returns the first choice of a subschema that is not resolved.
func (c *compiler) openGroup(id int, resolved []string) (group, bool, error) {
	sub := c.subs[id]
	for _, keyword := range []string{"anyOf", "oneOf"} {
		list, ok := sub.values[keyword].([]any)
		key := strconv.Itoa(id) + keyword
		if !ok || slices.Contains(resolved, key) {
			continue
		}
		c.inexact = c.inexact || keyword == "oneOf"
		g := group{key: key}
		for _, alternative := range list {
			g.alts = append(g.alts, []any{alternative})
		}
		return g, true, nil
	}
	condition, ok := sub.values["if"]
	key := strconv.Itoa(id) + "if"
	if !ok || slices.Contains(resolved, key) {
		return group{}, false, nil
	}
	c.inexact = true
	then, otherwise := []any{condition}, []any{}
	if branch, ok := sub.values["then"]; ok {
		then = append(then, branch)
	}
	if branch, ok := sub.values["else"]; ok {
		otherwise = append(otherwise, branch)
	}
	return group{key: key, alts: [][]any{then, otherwise}}, true, nil
}

// choose makes n a choice between the alternatives of g.
func (c *compiler) choose(n *node, set []int, g group, resolved []string) error {
	decided := append(slices.Clone(resolved), g.key)
	slices.Sort(decided)
	for _, alternative := range g.alts {
		members := slices.Clone(alternative)
		for _, id := range set {
			members = append(members, c.subs[id])
		}
		choice, err := c.conjunction(members, decided)
		if err != nil {
			return err
		}
		n.choices = append(n.choices, choice)
	}
	return nil
}

package jsongen

import (
	"fmt"
	"slices"
)

// findDepths computes the least nesting of a value of every node: the smallest
// solution of the equations below, reached from above by repetition.
func (c *compiler) findDepths() {
	for _, n := range c.order {
		n.depth = endless
	}
	for changed := true; changed; {
		changed = false
		for _, n := range c.order {
			if depth := n.leastDepth(); depth < n.depth {
				n.depth = depth
				changed = true
			}
		}
	}
	for _, n := range c.order {
		n.leastDepth() // kindDepth of the final state
	}
}

func (n *node) leastDepth() int {
	if n.never != "" {
		return endless
	}
	least := endless
	if n.choices != nil {
		for _, choice := range n.choices {
			least = min(least, choice.depth)
		}
		return least
	}
	if n.enum != nil {
		return 0
	}
	for k := range kinds {
		depth := endless
		if n.kinds.has(kind(k)) {
			switch kind(k) {
			case kindArray:
				depth = n.array.depth()
			case kindObject:
				depth = n.object.depth()
			default:
				depth = 0
			}
		}
		n.kindDepth[k] = int32(depth)
		least = min(least, depth)
	}
	return least
}

// under is the depth of a value that holds one of the given depth.
func under(depth int) int {
	if depth == endless {
		return endless
	}
	return depth + 1
}

func (r *arrayRule) depth() int {
	must := r.least()
	if r.max >= 0 && must > r.max {
		return endless
	}
	deepest := 0
	for i := range min(must, len(r.prefix)+len(r.contains)+1) {
		deepest = max(deepest, under(r.item(i).depth))
	}
	return deepest
}

func (r *objectRule) depth() int {
	if r.max >= 0 && (r.required > r.max || r.min > r.max) {
		return endless
	}
	deepest := 0
	for _, m := range r.members {
		if m.required {
			deepest = max(deepest, under(m.node.depth))
		}
	}
	need := r.min - r.required
	if need <= 0 {
		return deepest
	}
	var free []int
	for _, list := range [][]member{r.members, r.extras} {
		for _, m := range list {
			if !m.required {
				free = append(free, m.node.depth)
			}
		}
	}
	if len(free) < need {
		return endless
	}
	slices.Sort(free)
	r.cutoff = free[need-1]
	return max(deepest, under(r.cutoff))
}

// reason explains, for a person, why nothing satisfies n.
func (n *node) reason(seen map[*node]bool) string {
	const recursion = "the schema demands endless nesting"
	if seen[n] {
		return recursion
	}
	seen[n] = true
	if n.never != "" {
		return n.never
	}
	for _, choice := range n.choices {
		return "no alternative can be met; the first: " + choice.reason(seen)
	}
	if n.kinds.has(kindObject) {
		if text := n.object.reason(seen); text != "" {
			return text
		}
	}
	if n.kinds.has(kindArray) {
		if text := n.array.reason(seen); text != "" {
			return text
		}
	}
	return recursion
}

func (r *objectRule) reason(seen map[*node]bool) string {
	for _, m := range r.members {
		if m.required && m.node.depth == endless {
			return fmt.Sprintf("member %q: %s", m.name, m.node.reason(seen))
		}
	}
	if r.max >= 0 && (r.required > r.max || r.min > r.max) {
		return fmt.Sprintf("more members are required than maxProperties %d allows", r.max)
	}
	if r.min > r.required {
		return fmt.Sprintf("fewer members are possible than minProperties %d demands", r.min)
	}
	return ""
}

func (r *arrayRule) reason(seen map[*node]bool) string {
	must := r.least()
	if r.max >= 0 && must > r.max {
		return fmt.Sprintf("%d items are demanded and maxItems is %d", must, r.max)
	}
	for i := range min(must, len(r.prefix)+len(r.contains)+1) {
		if n := r.item(i); n.depth == endless {
			return fmt.Sprintf("item %d: %s", i, n.reason(seen))
		}
	}
	return ""
}

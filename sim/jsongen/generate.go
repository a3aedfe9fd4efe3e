package jsongen

import (
	"bytes"
	"net/url"
)

const (
	// freeDepth is the nesting down to which optional parts are written. Below
	// it only what must be there is, so that recursive schemas end.
	freeDepth = 5

	// usualItems bounds the items of an array about which nothing is said.
	usualItems = 3

	// uniqueTries is how often an item is redrawn to differ from its siblings.
	uniqueTries = 64
)

// A drawing is one value in the making.
type drawing struct {
	random Source
	limit  int // length of dst at which to give up
	depth  int
}

func (g *Generator) draw(dst []byte, random Source, limit int) ([]byte, bool) {
	d := drawing{random: random, limit: len(dst) + limit}
	dst = d.value(dst, g.root)
	return dst, len(dst) <= d.limit
}

func (d *drawing) below(n int) int { return below(d.random, n) }

// value writes a value of n. Depths make it end: once beyond freeDepth every
// step goes to a node of smaller depth.
func (d *drawing) value(dst []byte, n *node) []byte {
	for n.choices != nil {
		n = d.choice(n)
	}
	if len(dst) > d.limit {
		return dst
	}
	if n.enum != nil {
		return append(dst, n.enum[d.below(len(n.enum))]...)
	}
	switch d.kind(n) {
	case kindBool:
		if d.below(2) == 0 {
			return append(dst, "false"...)
		}
		return append(dst, "true"...)
	case kindNumber:
		return n.number.append(dst, d.random.Uint64()%n.number.count)
	case kindString:
		text, _ := n.text.draw(d.random)
		return appendString(dst, text)
	case kindArray:
		d.depth++
		dst = d.array(dst, &n.array)
		d.depth--
		return dst
	case kindObject:
		d.depth++
		dst = d.object(dst, &n.object)
		d.depth--
		return dst
	}
	return append(dst, "null"...)
}

func (d *drawing) frugal() bool { return d.depth > freeDepth }

// choice follows a random alternative that can be satisfied, or the shallowest
// one when frugal.
func (d *drawing) choice(n *node) *node {
	var best *node
	possible := 0
	for _, alternative := range n.choices {
		if alternative.depth == endless {
			continue
		}
		possible++
		if best == nil || alternative.depth < best.depth {
			best = alternative
		}
	}
	if d.frugal() {
		return best
	}
	at := d.below(possible)
	for _, alternative := range n.choices {
		if alternative.depth == endless {
			continue
		}
		if at == 0 {
			return alternative
		}
		at--
	}
	return best
}

// kind chooses the kind of value to write: one the keywords speak about, else
// a string for a schema that says nothing, and null rarely.
func (d *drawing) kind(n *node) kind {
	var possible kindSet
	for k := range kinds {
		if n.kindDepth[k] != endless {
			possible |= 1 << k
		}
	}
	if d.frugal() {
		best := kindNull
		for k := range kinds {
			if !possible.has(best) || possible.has(kind(k)) && n.kindDepth[k] < n.kindDepth[best] {
				best = kind(k)
			}
		}
		return best
	}
	if n.prefer&possible != 0 && n.kinds == allKinds {
		possible &= n.prefer
	} else if possible == allKinds {
		return kindString
	}
	if rest := possible &^ (1 << kindNull); rest != 0 && d.below(6) != 0 {
		possible = rest
	}
	chosen, seen := kindNull, 0
	for k := range kinds {
		if possible.has(kind(k)) {
			seen++
			if d.below(seen) == 0 {
				chosen = kind(k)
			}
		}
	}
	return chosen
}

func (d *drawing) array(dst []byte, rule *arrayRule) []byte {
	must, length := d.arrayLength(rule)
	dst = append(dst, '[')
	type span struct{ from, to int }
	var items []span
	for i := 0; i < length && len(dst) <= d.limit; i++ {
		n := rule.item(i)
		start := len(dst)
		duplicate := false
		for range uniqueTries {
			dst = dst[:start]
			if i > 0 {
				dst = append(dst, ", "...)
			}
			from := len(dst)
			dst = d.value(dst, n)
			duplicate = false
			if !rule.unique {
				break
			}
			for _, other := range items {
				if bytes.Equal(dst[from:], dst[other.from:other.to]) {
					duplicate = true
					break
				}
			}
			if !duplicate {
				items = append(items, span{from, len(dst)})
				break
			}
		}
		if duplicate && i >= must {
			dst = dst[:start]
			break
		}
	}
	return append(dst, ']')
}

// arrayLength draws the number of items, and says how many there must be.
func (d *drawing) arrayLength(rule *arrayRule) (must, length int) {
	must = rule.least()
	most := max(must, len(rule.prefix), usualItems)
	if rule.max >= 0 {
		most = min(most, rule.max)
	}
	if reach := rule.reach(); reach >= 0 {
		most = min(most, reach)
	}
	if d.frugal() || most <= must {
		return must, must
	}
	low := max(must, min(most, max(1, len(rule.prefix))))
	return must, low + d.below(most-low+1)
}

// least is the number of items an array must have.
func (r *arrayRule) least() int {
	if len(r.contains) == 0 {
		return r.min
	}
	return max(r.min, len(r.prefix)+len(r.contains))
}

// reach is the number of items an array can have before one that nothing
// satisfies; -1 where there is no bound.
func (r *arrayRule) reach() int {
	for i, n := range r.prefix {
		if n.depth == endless {
			return i
		}
	}
	if r.rest.depth == endless {
		return len(r.prefix)
	}
	return -1
}

// item returns the node of the i-th item.
func (r *arrayRule) item(i int) *node {
	if i < len(r.prefix) {
		return r.prefix[i]
	}
	if i -= len(r.prefix); i < len(r.contains) {
		return r.contains[i]
	}
	return r.rest
}

func (d *drawing) object(dst []byte, rule *objectRule) []byte {
	room := len(rule.members) + len(rule.extras)
	if rule.max >= 0 {
		room = rule.max
	}
	room -= rule.required // members that may be added of free will
	need := rule.min - rule.required
	dst = append(dst, '{')
	first := true
	write := func(m member) {
		if !first {
			dst = append(dst, ", "...)
		}
		first = false
		dst = appendString(dst, m.name)
		dst = append(dst, ": "...)
		dst = d.value(dst, m.node)
	}
	possible := 0
	for _, m := range rule.members {
		if !m.required && m.node.depth != endless {
			possible++
		}
	}
	for _, m := range rule.members {
		if len(dst) > d.limit {
			return dst
		}
		if m.required {
			write(m)
			continue
		}
		if m.node.depth == endless {
			continue
		}
		wanted := need >= possible || d.below(4) != 0
		if d.frugal() {
			wanted = need > 0 && m.node.depth <= rule.cutoff
		}
		possible--
		if wanted && room > 0 {
			write(m)
			room--
			need--
		}
	}
	for _, m := range rule.extras {
		if need <= 0 || len(dst) > d.limit {
			break
		}
		if m.node.depth != endless && (!d.frugal() || m.node.depth <= rule.cutoff) {
			write(m)
			need--
		}
	}
	return append(dst, '}')
}

// percentDecode undoes the escapes of a URI fragment; text that is no valid
// escape stays as it is.
func percentDecode(text string) string {
	if decoded, err := url.PathUnescape(text); err == nil {
		return decoded
	}
	return text
}

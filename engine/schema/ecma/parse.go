package ecma

import (
	"fmt"
	"unicode"
)

// maxDepth limits how deep groups are nested, because the parser and the compiler call
// themselves for each group. Groups in real patterns are nested about ten deep.
const maxDepth = 200

// A parser parses a pattern into nodes.
type parser struct {
	text       []rune
	at         int            // index in text of the next character
	depth      int            // number of open groups
	size       int            // number of sets and of ranges in them so far
	most       int            // limit of size
	groups     int            // number of groups so far
	names      map[string]int // number of each named group, by name
	references []*node        // all back references
	backtracks bool           // the pattern needs the matcher of this package: Go's regexp cannot run it
	wanted     []bool         // true if a back reference refers to the group, by number of the group
}

// parse parses the whole pattern and connects the back references with their groups.
func (p *parser) parse() (*node, error) {
	root, err := p.parseAlternatives()
	if err != nil {
		return nil, err
	}
	if p.at < len(p.text) { // parseAlternatives stops before the end only at a ) without a (
		return nil, p.errorAt(p.at, "closes a group that nothing opens; write \\)")
	}
	p.wanted = make([]bool, p.groups+1)
	for _, r := range p.references {
		if r.name != "" {
			r.group = p.names[r.name]
		}
		switch {
		case r.name != "" && r.group == 0:
			return nil, fmt.Errorf("\\k<%s> names a group that the pattern lacks", r.name)
		case r.group > p.groups:
			return nil, fmt.Errorf("\\%d names a group that the pattern lacks; it has %d groups", r.group, p.groups)
		}
		p.wanted[r.group] = true
	}
	return root, nil
}

// errorAt returns an error that quotes the text from the position from to the current
// position, at least one character.
func (p *parser) errorAt(from int, format string, args ...any) error {
	to := min(max(p.at, from+1), len(p.text))
	return fmt.Errorf("%q at character %d %s", string(p.text[min(from, to):to]), from+1, fmt.Sprintf(format, args...))
}

// hasMore reports whether the pattern has another character.
func (p *parser) hasMore() bool { return p.at < len(p.text) }

// consume moves over piece and returns true, if piece comes next in the pattern.
func (p *parser) consume(piece string) bool {
	for i, c := range []rune(piece) {
		if p.at+i >= len(p.text) || p.text[p.at+i] != c {
			return false
		}
	}
	p.at += len([]rune(piece))
	return true
}

// parseAlternatives reads branches that | separates, up to the end of the group or of the
// pattern.
func (p *parser) parseAlternatives() (*node, error) {
	if p.depth++; p.depth > maxDepth {
		return nil, fmt.Errorf("the pattern nests groups more than %d deep; nest less", maxDepth)
	}
	defer func() { p.depth-- }()
	whole := &node{op: opAlternate}
	for {
		branch := &node{op: opConcat}
		for p.hasMore() && p.text[p.at] != '|' && p.text[p.at] != ')' {
			term, err := p.parseTerm()
			if err != nil {
				return nil, err
			}
			branch.sub = append(branch.sub, term)
		}
		whole.sub = append(whole.sub, branch)
		if !p.consume("|") {
			return whole, nil
		}
	}
}

// parseTerm reads an atom or an assertion, and the quantifier behind it if there is one.
func (p *parser) parseTerm() (*node, error) {
	from, groups := p.at, p.groups
	atom, err := p.parseAtom()
	if err != nil {
		return nil, err
	}
	start := p.at
	least, most, found := p.parseQuantifier()
	if !found {
		return atom, nil
	}
	switch {
	case atom.op == opBegin, atom.op == opEnd, atom.op == opWord, atom.op == opNotWord, atom.op == opLook && atom.behind:
		return nil, p.errorAt(start, "repeats %q, which cannot be repeated", string(p.text[from:start]))
	case least > most:
		return nil, p.errorAt(start, "has a smallest number above the largest")
	}
	r := &node{op: opRepeat, sub: []*node{atom}, least: least, most: most, first: groups + 1, last: p.groups + 1}
	r.lazy = p.consume("?")
	return r, nil
}

// parseQuantifier reads *, +, ? or a count in braces. It treats braces without a count as
// plain characters: then found is false.
func (p *parser) parseQuantifier() (least, most int, found bool) {
	switch {
	case p.consume("*"):
		return 0, unlimited, true
	case p.consume("+"):
		return 1, unlimited, true
	case p.consume("?"):
		return 0, 1, true
	}
	from := p.at
	if !p.consume("{") {
		return 0, 0, false
	}
	least, found = p.parseNumber()
	most = least
	if found && p.consume(",") {
		if most, found = p.parseNumber(); !found {
			most, found = unlimited, true
		}
	}
	if !found || !p.consume("}") {
		p.at = from
		return 0, 0, false
	}
	return least, most, true
}

// parseNumber reads a decimal number, limited to the constant unlimited.
func (p *parser) parseNumber() (n int, found bool) {
	for p.hasMore() && p.text[p.at] >= '0' && p.text[p.at] <= '9' {
		n, found = min(n*10+int(p.text[p.at]-'0'), unlimited), true
		p.at++
	}
	return n, found
}

// parseAtom reads a character, an escape, a class, a group or an assertion.
func (p *parser) parseAtom() (*node, error) {
	from := p.at
	c := p.text[p.at]
	p.at++
	switch c {
	case '^':
		return &node{op: opBegin}, nil
	case '$':
		return &node{op: opEnd}, nil
	case '.':
		return p.newSetNode(lineBreaks.complement())
	case '(':
		return p.parseGroup()
	case '[':
		return p.parseClass()
	case '\\':
		return p.parseEscape()
	case '*', '+', '?':
		return nil, p.errorAt(from, "has nothing before it to repeat; write \\%c", c)
	case '{':
		p.at = from
		if _, _, found := p.parseQuantifier(); found {
			return nil, p.errorAt(from, "has nothing before it to repeat; write \\{")
		}
		p.at = from + 1
	}
	return p.newSetNode(charSet{c, c})
}

// newSetNode returns a node for a set of characters. It returns an error if all sets of
// the pattern together are too large.
func (p *parser) newSetNode(s charSet) (*node, error) {
	if p.size += 1 + len(s)/2; p.size > p.most {
		return nil, tooLargeError(p.most)
	}
	return &node{op: opSet, set: s}, nil
}

// parseGroup reads a group. The parser has already read the opening parenthesis.
func (p *parser) parseGroup() (*node, error) {
	from := p.at - 1
	n := &node{op: opLook}
	switch {
	case p.consume("?:"):
		n = nil
	case p.consume("?="):
	case p.consume("?!"):
		n.negative = true
	case p.consume("?<="):
		n.behind = true
	case p.consume("?<!"):
		n.behind, n.negative = true, true
	case p.consume("?<"):
		p.groups++
		n = &node{op: opGroup, group: p.groups}
		name, ok := p.parseGroupName()
		if !ok {
			return nil, p.errorAt(from, "is no name of a group; write (?<name>…)")
		}
		if p.names == nil {
			p.names = map[string]int{}
		}
		if p.names[name] != 0 {
			return nil, p.errorAt(from, "names a group again; take another name")
		}
		p.names[name] = n.group
	case p.consume("?"):
		p.at = min(p.at+1, len(p.text))
		return nil, p.errorAt(from, "begins no group of ECMA-262%s", dialectHint(p.text[from:p.at]))
	default:
		p.groups++
		n = &node{op: opGroup, group: p.groups}
	}
	p.backtracks = p.backtracks || n != nil && n.op == opLook
	inner, err := p.parseAlternatives()
	switch {
	case err != nil:
		return nil, err
	case !p.consume(")"):
		p.at = from + 1
		return nil, p.errorAt(from, "opens a group that nothing closes; write \\( or add )")
	case n == nil:
		return inner, nil
	}
	n.sub = []*node{inner}
	return n, nil
}

// dialectHint returns a hint for the begin of a group that only other dialects have, such
// as (?P: what to write instead.
func dialectHint(begin []rune) string {
	switch string(begin) {
	case "(?P":
		return "; write (?<name>…)"
	case "(?>":
		return ", which has no atomic groups; write (?:…)"
	case "(?#":
		return ", which has no comments; leave it out"
	case "(?i":
		return ", which has no flags in a pattern; write both cases, such as [Aa]"
	case "(?s":
		return ", which has no flags in a pattern; write [^] for a dot that takes all characters"
	case "(?m", "(?x", "(?a", "(?u", "(?L", "(?-", "(?^":
		return ", which has no flags in a pattern; leave the flag out, and write its effect"
	}
	return ""
}

// parseGroupName reads the name of a group and the closing > after it; false if the name is
// invalid.
func (p *parser) parseGroupName() (string, bool) {
	from := p.at
	for ; p.hasMore() && p.text[p.at] != '>'; p.at++ {
		c := p.text[p.at]
		first := c == '$' || c == '_' || unicode.IsLetter(c) || unicode.Is(unicode.Nl, c)
		if !first && (p.at == from || !unicode.In(c, unicode.Mn, unicode.Mc, unicode.Nd, unicode.Pc)) {
			return "", false
		}
	}
	name := string(p.text[from:p.at])
	return name, p.consume(">") && name != ""
}

package ecma

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode"
)

// maxDepth bounds groups within groups. The parser and the compiler call themselves
// for each of them. Patterns in use nest some ten deep.
const maxDepth = 200

// A parser reads a pattern.
type parser struct {
	text       []rune
	at         int
	depth      int
	size       int // of the sets so far
	most       int // bounds size
	groups     int // so many groups were opened
	names      map[string]int
	references []*node
	backtracks bool // Go's regexp cannot run the pattern
	wanted     []bool
}

func (p *parser) parse() (*node, error) {
	root, err := p.alternatives()
	if err != nil {
		return nil, err
	}
	if p.at < len(p.text) { // alternatives stops at an unopened parenthesis only
		return nil, p.wrong(p.at, "closes a group that nothing opens; write \\)")
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

// wrong is an error about the text from a place to where the parser is, at least one
// character.
func (p *parser) wrong(from int, format string, args ...any) error {
	to := min(max(p.at, from+1), len(p.text))
	return fmt.Errorf("%q at character %d %s", string(p.text[min(from, to):to]), from+1, fmt.Sprintf(format, args...))
}

func (p *parser) more() bool { return p.at < len(p.text) }

// take goes past a piece of text, if it comes next.
func (p *parser) take(piece string) bool {
	for i, c := range []rune(piece) {
		if p.at+i >= len(p.text) || p.text[p.at+i] != c {
			return false
		}
	}
	p.at += len([]rune(piece))
	return true
}

// alternatives reads up to the end of the group or of the pattern.
func (p *parser) alternatives() (*node, error) {
	if p.depth++; p.depth > maxDepth {
		return nil, fmt.Errorf("the pattern nests groups more than %d deep; nest less", maxDepth)
	}
	defer func() { p.depth-- }()
	whole := &node{op: opAlternate}
	for {
		branch := &node{op: opConcat}
		for p.more() && p.text[p.at] != '|' && p.text[p.at] != ')' {
			term, err := p.term()
			if err != nil {
				return nil, err
			}
			branch.sub = append(branch.sub, term)
		}
		whole.sub = append(whole.sub, branch)
		if !p.take("|") {
			return whole, nil
		}
	}
}

// term reads an atom or an assertion and the quantifier behind it.
func (p *parser) term() (*node, error) {
	from, groups := p.at, p.groups
	atom, err := p.atom()
	if err != nil {
		return nil, err
	}
	start := p.at
	least, most, found, err := p.quantifier()
	if err != nil || !found {
		return atom, err
	}
	switch {
	case atom.op == opBegin, atom.op == opEnd, atom.op == opWord, atom.op == opNotWord, atom.op == opLook && atom.behind:
		return nil, p.wrong(start, "repeats %q, which cannot be repeated", string(p.text[from:start]))
	case least > most:
		return nil, p.wrong(start, "has a smallest number above the largest")
	}
	r := &node{op: opRepeat, sub: []*node{atom}, least: least, most: most, first: groups + 1, last: p.groups + 1}
	r.lazy = p.take("?")
	return r, nil
}

// quantifier reads *, +, ? or a count in braces. Braces that hold no count are
// characters.
func (p *parser) quantifier() (least, most int, found bool, err error) {
	switch {
	case p.take("*"):
		return 0, unlimited, true, nil
	case p.take("+"):
		return 1, unlimited, true, nil
	case p.take("?"):
		return 0, 1, true, nil
	}
	from := p.at
	if !p.take("{") {
		return 0, 0, false, nil
	}
	least, found = p.number()
	most = least
	if found && p.take(",") {
		if most, found = p.number(); !found {
			most, found = unlimited, true
		}
	}
	if !found || !p.take("}") {
		p.at = from
		return 0, 0, false, nil
	}
	return least, most, true, nil
}

// number reads digits. A number beyond every limit is unlimited.
func (p *parser) number() (n int, found bool) {
	for p.more() && p.text[p.at] >= '0' && p.text[p.at] <= '9' {
		n, found = min(n*10+int(p.text[p.at]-'0'), unlimited), true
		p.at++
	}
	return n, found
}

func (p *parser) atom() (*node, error) {
	from := p.at
	c := p.text[p.at]
	p.at++
	switch c {
	case '^':
		return &node{op: opBegin}, nil
	case '$':
		return &node{op: opEnd}, nil
	case '.':
		return p.setNode(lineBreaks.other())
	case '(':
		return p.group()
	case '[':
		return p.class()
	case '\\':
		return p.escape()
	case '*', '+', '?':
		return nil, p.wrong(from, "has nothing before it to repeat; write \\%c", c)
	case '{':
		p.at = from
		if _, _, found, _ := p.quantifier(); found {
			return nil, p.wrong(from, "has nothing before it to repeat; write \\{")
		}
		p.at = from + 1
	}
	return p.setNode(set{c, c})
}

// setNode is a node of a set. The sets of a pattern together are bounded here, before
// anything is built of them.
func (p *parser) setNode(s set) (*node, error) {
	if p.size += 1 + len(s)/2; p.size > p.most {
		return nil, errSize(p.most)
	}
	return &node{op: opSet, set: s}, nil
}

// group reads what stands behind an opening parenthesis.
func (p *parser) group() (*node, error) {
	from := p.at - 1
	n := &node{op: opLook}
	switch {
	case p.take("?:"):
		n = nil
	case p.take("?="):
	case p.take("?!"):
		n.negative = true
	case p.take("?<="):
		n.behind = true
	case p.take("?<!"):
		n.behind, n.negative = true, true
	case p.take("?<"):
		p.groups++
		n = &node{op: opGroup, group: p.groups}
		name, ok := p.name()
		if !ok {
			return nil, p.wrong(from, "is no name of a group; write (?<name>…)")
		}
		if p.names == nil {
			p.names = map[string]int{}
		}
		if p.names[name] != 0 {
			return nil, p.wrong(from, "names a group again; take another name")
		}
		p.names[name] = n.group
	case p.take("?"):
		p.at = min(p.at+1, len(p.text))
		return nil, p.wrong(from, "begins no group of ECMA-262%s", dialect(p.text[from:p.at]))
	default:
		p.groups++
		n = &node{op: opGroup, group: p.groups}
	}
	p.backtracks = p.backtracks || n != nil && n.op == opLook
	inner, err := p.alternatives()
	switch {
	case err != nil:
		return nil, err
	case !p.take(")"):
		p.at = from + 1
		return nil, p.wrong(from, "opens a group that nothing closes; write \\( or add )")
	case n == nil:
		return inner, nil
	}
	n.sub = []*node{inner}
	return n, nil
}

// dialect says what to write in place of a group of another dialect.
func dialect(begin []rune) string {
	switch string(begin) {
	case "(?P":
		return "; write (?<name>…)"
	case "(?>":
		return ", which has no atomic groups; write (?:…)"
	case "(?#":
		return ", which has no comments; leave it out"
	case "(?i", "(?m", "(?s", "(?x", "(?a", "(?u", "(?L", "(?-", "(?^":
		return ", which has no flags in a pattern; write what they mean, such as [Aa]"
	}
	return ""
}

// name reads the name of a group up to its closing bracket.
func (p *parser) name() (string, bool) {
	from := p.at
	for ; p.more() && p.text[p.at] != '>'; p.at++ {
		c := p.text[p.at]
		first := c == '$' || c == '_' || unicode.IsLetter(c) || unicode.Is(unicode.Nl, c)
		if !first && (p.at == from || !unicode.In(c, unicode.Mn, unicode.Mc, unicode.Nd, unicode.Pc)) {
			return "", false
		}
	}
	name := string(p.text[from:p.at])
	return name, p.take(">") && name != ""
}

// escape reads what stands behind a backslash outside of a class.
func (p *parser) escape() (*node, error) {
	from := p.at - 1
	switch {
	case p.take("b"):
		return &node{op: opWord}, nil
	case p.take("B"):
		return &node{op: opNotWord}, nil
	case p.take("k"):
		name, ok := "", p.take("<")
		if ok {
			name, ok = p.name()
		}
		if !ok {
			return nil, p.wrong(from, "refers to no group; write \\k<name>")
		}
		return p.reference(&node{op: opBack, name: name}), nil
	case p.more() && p.text[p.at] >= '1' && p.text[p.at] <= '9':
		n, _ := p.number()
		return p.reference(&node{op: opBack, group: n}), nil
	}
	s, err := p.characters(from)
	if err != nil {
		return nil, err
	}
	return p.setNode(s)
}

func (p *parser) reference(n *node) *node {
	p.references = append(p.references, n)
	p.backtracks = true
	return n
}

// characters reads an escape that stands for a character or a set of them.
func (p *parser) characters(from int) (set, error) {
	if !p.more() {
		return nil, p.wrong(from, "ends the pattern; write \\\\")
	}
	c := p.text[p.at]
	p.at++
	switch c {
	case 'd':
		return digits, nil
	case 'D':
		return digits.other(), nil
	case 'w':
		return words, nil
	case 'W':
		return words.other(), nil
	case 's':
		return spaces, nil
	case 'S':
		return spaces.other(), nil
	case 'p', 'P':
		return p.property(from, c == 'P')
	case 'x', 'u':
		return p.code(from, c)
	case 'c':
		if p.more() && unicode.IsLetter(p.text[p.at]) && p.text[p.at] < 0x80 {
			c = p.text[p.at] % 32
			p.at++
			return set{c, c}, nil
		}
		return nil, p.wrong(from, "needs a letter, as in \\cA")
	case '0':
		if p.more() && p.text[p.at] >= '0' && p.text[p.at] <= '9' {
			p.at++
			return nil, p.wrong(from, "is an octal number; write \\x and two digits")
		}
		return set{0, 0}, nil
	}
	if i := strings.IndexRune("tnvfr", c); i >= 0 {
		c = []rune("\t\n\v\f\r")[i]
		return set{c, c}, nil
	}
	if c < 0x80 && (unicode.IsLetter(c) || unicode.IsDigit(c)) {
		return nil, p.wrong(from, "means nothing in ECMA-262%s", remedy(c))
	}
	return set{c, c}, nil
}

// remedy says what to write in place of an escape of another dialect.
func remedy(c rune) string {
	switch c {
	case 'A':
		return "; write ^"
	case 'z', 'Z':
		return "; write $"
	case 'a':
		return "; write \\x07"
	case 'e':
		return "; write \\x1b"
	case 'h':
		return "; write [ \\t]"
	case 'R':
		return "; write (?:\\r\\n|[\\n\\r])"
	}
	return "; write the character without a backslash"
}

// code reads \xHH, \uHHHH, \u{H…} and two \uHHHH that are one character.
func (p *parser) code(from int, kind rune) (set, error) {
	if kind == 'u' && p.take("{") {
		start := p.at
		for p.more() && p.text[p.at] != '}' {
			p.at++
		}
		c, err := strconv.ParseUint(string(p.text[start:p.at]), 16, 32)
		if !p.take("}") || err != nil || c > unicode.MaxRune {
			return nil, p.wrong(from, "is no character; write up to \\u{10FFFF}")
		}
		return set{rune(c), rune(c)}, nil
	}
	length := 2
	if kind == 'u' {
		length = 4
	}
	c, ok := p.hex(length)
	if !ok {
		return nil, p.wrong(from, "needs %d hexadecimal digits", length)
	}
	if back := p.at; c >= 0xd800 && c < 0xdc00 && p.take(`\u`) {
		if low, ok := p.hex(4); ok && low >= 0xdc00 && low < 0xe000 {
			c = 0x10000 + (c-0xd800)<<10 + (low - 0xdc00)
		} else {
			p.at = back
		}
	}
	return set{c, c}, nil
}

func (p *parser) hex(length int) (rune, bool) {
	if p.at+length > len(p.text) {
		return 0, false
	}
	for _, c := range p.text[p.at : p.at+length] {
		if c >= 0x80 || !unicode.Is(unicode.ASCII_Hex_Digit, c) {
			return 0, false
		}
	}
	c, err := strconv.ParseUint(string(p.text[p.at:p.at+length]), 16, 32)
	p.at += length
	return rune(c), err == nil
}

func hex(c rune) string { return strconv.FormatInt(int64(c), 16) }

// class reads what stands behind an opening bracket.
func (p *parser) class() (*node, error) {
	from := p.at - 1
	negated := p.take("^")
	var made set
	for !p.take("]") {
		if !p.more() {
			p.at = from + 1
			return nil, p.wrong(from, "opens a class that nothing closes; write \\[ or add ]")
		}
		start := p.at
		low, err := p.member()
		if err != nil {
			return nil, err
		}
		// A dash before the closing bracket, or beside a set such as \w, is a character.
		if p.at+1 < len(p.text) && p.text[p.at] == '-' && p.text[p.at+1] != ']' {
			p.at++
			high, err := p.member()
			switch {
			case err != nil:
				return nil, err
			case !single(low) || !single(high):
				made = append(append(made, '-', '-'), high...)
			case low[0] > high[0]:
				return nil, p.wrong(start, "is a range that ends before it begins")
			default:
				low = set{low[0], high[0]}
			}
		}
		made = append(made, low...)
		if p.size+len(made)/2 > p.most {
			return nil, errSize(p.most)
		}
	}
	made = made.normal()
	if negated {
		made = made.other()
	}
	return p.setNode(made)
}

// single reports whether a set was written as one character.
func single(s set) bool { return len(s) == 2 && s[0] == s[1] }

// member reads one character or escape of a class.
func (p *parser) member() (set, error) {
	from := p.at
	c := p.text[p.at]
	p.at++
	switch {
	case c != '\\':
		return set{c, c}, nil
	case p.take("b"):
		return set{'\b', '\b'}, nil
	case p.take("-"):
		return set{'-', '-'}, nil
	case p.more() && p.text[p.at] >= '1' && p.text[p.at] <= '9':
		p.at++
		return nil, p.wrong(from, "is an octal number; write \\x and two digits")
	}
	return p.characters(from)
}

// property reads what stands behind \p or \P.
func (p *parser) property(from int, negated bool) (set, error) {
	if !p.take("{") {
		return nil, p.wrong(from, "needs a property in braces, as in \\p{L}")
	}
	start := p.at
	for p.more() && p.text[p.at] != '}' {
		p.at++
	}
	name, value, named := strings.Cut(string(p.text[start:p.at]), "=")
	if !p.take("}") {
		return nil, p.wrong(from, "needs a closing brace")
	}
	s, err := property(name, value, named)
	switch {
	case errors.Is(err, errUnknown):
		return nil, p.wrong(from, "names a property that is not known here")
	case negated:
		s = s.other()
	}
	return s, nil
}

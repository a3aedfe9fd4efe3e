package ecma

import (
	"errors"
	"strconv"
	"strings"
	"unicode"
)

// parseEscape reads an escape outside of a class. The parser has already read the backslash.
func (p *parser) parseEscape() (*node, error) {
	from := p.at - 1
	switch {
	case p.consume("b"):
		return &node{op: opWord}, nil
	case p.consume("B"):
		return &node{op: opNotWord}, nil
	case p.consume("k"):
		name, ok := "", p.consume("<")
		if ok {
			name, ok = p.parseGroupName()
		}
		if !ok {
			return nil, p.errorAt(from, "refers to no group; write \\k<name>")
		}
		return p.addBackReference(&node{op: opBack, name: name}), nil
	case p.hasMore() && p.text[p.at] >= '1' && p.text[p.at] <= '9':
		n, _ := p.parseNumber()
		return p.addBackReference(&node{op: opBack, group: n}), nil
	}
	s, err := p.parseCharEscape(from)
	if err != nil {
		return nil, err
	}
	return p.newSetNode(s)
}

// addBackReference records a back reference. Only the backtracking matcher of this package can
// run a pattern with a back reference.
func (p *parser) addBackReference(n *node) *node {
	p.references = append(p.references, n)
	p.backtracks = true
	return n
}

// parseCharEscape reads an escape for a character or for a set of characters.
func (p *parser) parseCharEscape(from int) (charSet, error) {
	if !p.hasMore() {
		return nil, p.errorAt(from, "ends the pattern; write \\\\")
	}
	c := p.text[p.at]
	p.at++
	switch c {
	case 'd':
		return digits, nil
	case 'D':
		return digits.complement(), nil
	case 'w':
		return words, nil
	case 'W':
		return words.complement(), nil
	case 's':
		return spaces, nil
	case 'S':
		return spaces.complement(), nil
	case 'p', 'P':
		return p.parseProperty(from, c == 'P')
	case 'x', 'u':
		return p.parseCodePoint(from, c)
	case 'c':
		if p.hasMore() && unicode.IsLetter(p.text[p.at]) && p.text[p.at] < 0x80 {
			c = p.text[p.at] % 32
			p.at++
			return charSet{c, c}, nil
		}
		return nil, p.errorAt(from, "needs a letter, as in \\cA")
	case '0':
		if p.hasMore() && p.text[p.at] >= '0' && p.text[p.at] <= '9' {
			p.at++
			return nil, p.errorAt(from, "is an octal number; write \\x and two digits")
		}
		return charSet{0, 0}, nil
	}
	if i := strings.IndexRune("tnvfr", c); i >= 0 {
		c = []rune("\t\n\v\f\r")[i]
		return charSet{c, c}, nil
	}
	if c < 0x80 && (unicode.IsLetter(c) || unicode.IsDigit(c)) {
		return nil, p.errorAt(from, "means nothing in ECMA-262%s", escapeHint(c))
	}
	return charSet{c, c}, nil
}

// escapeHint returns a hint for a backslash before the letter c, which has no meaning in
// ECMA-262: what to write instead.
func escapeHint(c rune) string {
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

// parseCodePoint reads \xHH, \uHHHH, \u{H…}, or two \uHHHH that form one character. The parser
// has already read the x or u, which is kind.
func (p *parser) parseCodePoint(from int, kind rune) (charSet, error) {
	if kind == 'u' && p.consume("{") {
		start := p.at
		for p.hasMore() && p.text[p.at] != '}' {
			p.at++
		}
		c, err := strconv.ParseUint(string(p.text[start:p.at]), 16, 32)
		if !p.consume("}") || err != nil || c > unicode.MaxRune {
			return nil, p.errorAt(from, "is no character; write up to \\u{10FFFF}")
		}
		return charSet{rune(c), rune(c)}, nil
	}
	length := 2
	if kind == 'u' {
		length = 4
	}
	c, ok := p.parseHex(length)
	if !ok {
		return nil, p.errorAt(from, "needs %d hexadecimal digits", length)
	}
	if back := p.at; c >= 0xd800 && c < 0xdc00 && p.consume(`\u`) {
		if low, ok := p.parseHex(4); ok && low >= 0xdc00 && low < 0xe000 {
			c = 0x10000 + (c-0xd800)<<10 + (low - 0xdc00)
		} else {
			p.at = back
		}
	}
	return charSet{c, c}, nil
}

// parseHex reads a hexadecimal number of length digits.
func (p *parser) parseHex(length int) (rune, bool) {
	if p.at+length > len(p.text) {
		return 0, false
	}
	for _, c := range p.text[p.at : p.at+length] {
		if !unicode.Is(unicode.ASCII_Hex_Digit, c) {
			return 0, false
		}
	}
	c, err := strconv.ParseUint(string(p.text[p.at:p.at+length]), 16, 32)
	p.at += length
	return rune(c), err == nil
}

func hex(c rune) string { return strconv.FormatInt(int64(c), 16) }

// parseClass reads a class of characters, such as [a-z]. The parser has already read the
// opening bracket.
func (p *parser) parseClass() (*node, error) {
	from := p.at - 1
	negated, counted := p.consume("^"), 0
	var made charSet
	for !p.consume("]") {
		if !p.hasMore() {
			p.at = from + 1
			return nil, p.errorAt(from, "opens a class that nothing closes; write \\[ or add ]")
		}
		start := p.at
		low, err := p.parseClassMember()
		if err != nil {
			return nil, err
		}
		// A dash before the closing bracket, or beside a set such as \w, is a character.
		if p.at+1 < len(p.text) && p.text[p.at] == '-' && p.text[p.at+1] != ']' {
			p.at++
			high, err := p.parseClassMember()
			switch {
			case err != nil:
				return nil, err
			case !isSingleChar(low) || !isSingleChar(high):
				made = append(append(made, '-', '-'), high...)
			case low[0] > high[0]:
				return nil, p.errorAt(start, "is a range that ends before it begins")
			default:
				low = charSet{low[0], high[0]}
			}
		}
		made = append(made, low...)
		if p.size += len(made)/2 - counted; p.size > p.most {
			return nil, tooLargeError(p.most)
		}
		counted = len(made) / 2
	}
	made = made.normalized()
	if negated {
		made = made.complement()
	}
	return p.newSetNode(made)
}

// isSingleChar reports whether a set is one character.
func isSingleChar(s charSet) bool { return len(s) == 2 && s[0] == s[1] }

// parseClassMember reads one character or one escape inside a class.
func (p *parser) parseClassMember() (charSet, error) {
	from := p.at
	c := p.text[p.at]
	p.at++
	switch {
	case c != '\\':
		return charSet{c, c}, nil
	case p.consume("b"):
		return charSet{'\b', '\b'}, nil
	case p.consume("-"):
		return charSet{'-', '-'}, nil
	case p.hasMore() && p.text[p.at] >= '1' && p.text[p.at] <= '9':
		p.at++
		return nil, p.errorAt(from, "is an octal number; write \\x and two digits")
	}
	return p.parseCharEscape(from)
}

// parseProperty reads the name in braces of \p{…} or \P{…} and returns the set of its
// characters. negated means \P.
func (p *parser) parseProperty(from int, negated bool) (charSet, error) {
	if !p.consume("{") {
		return nil, p.errorAt(from, "needs a property in braces, as in \\p{L}")
	}
	start := p.at
	for p.hasMore() && p.text[p.at] != '}' {
		p.at++
	}
	name, value, named := strings.Cut(string(p.text[start:p.at]), "=")
	if !p.consume("}") {
		return nil, p.errorAt(from, "needs a closing brace")
	}
	s, err := propertySet(name, value, named)
	switch {
	case errors.Is(err, errUnknown):
		return nil, p.errorAt(from, "names a property that is not known here")
	case negated:
		s = s.complement()
	}
	return s, nil
}

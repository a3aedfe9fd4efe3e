package jsongen

import (
	"fmt"
	"regexp"
	"regexp/syntax"
	"unicode"
	"unicode/utf8"
)

// maxRepeats is how often a part that may repeat without end repeats at most,
// beyond its minimum, where no length asks for more.
const maxRepeats = 4

// pattern makes strings that match a regular expression.
type pattern struct {
	re   *regexp.Regexp
	tree *syntax.Regexp
	open bool // matches anywhere, so that text may follow
}

func newPattern(text string) (*pattern, error) {
	re, err := patternOf(text)
	if err != nil {
		return nil, err
	}
	tree, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		return nil, fmt.Errorf("pattern %q: %w", text, err)
	}
	return &pattern{re: re, tree: tree, open: !endsText(tree)}, nil
}

// endsText reports whether the expression is tied to the end of the text.
func endsText(tree *syntax.Regexp) bool {
	switch tree.Op {
	case syntax.OpEndText, syntax.OpEndLine:
		return true
	case syntax.OpConcat, syntax.OpCapture:
		return endsText(tree.Sub[len(tree.Sub)-1])
	case syntax.OpAlternate:
		for _, sub := range tree.Sub {
			if endsText(sub) {
				return true
			}
		}
	}
	return false
}

// appendSized aims at a length in code points. Attempts differ: the usual
// number of repeats, none beyond the minimum, and from least downwards, since
// a single repeated part must fill what the rest of the pattern leaves.
func (p *pattern) appendSized(dst []byte, random Source, attempt, least, most int) []byte {
	size := maxRepeats
	switch {
	case attempt%4 == 1 && most >= 0:
		size = 0
	case attempt%4 >= 2 && least > 0:
		size = least - attempt/2%least
	}
	room := maxTextLength
	if most >= 0 {
		room = most
	}
	base := len(dst)
	dst = appendMatch(dst, p.tree, random, size, base+4*room+64)
	if p.open {
		for utf8.RuneCount(dst[base:]) < least {
			dst = append(dst, 'a'+byte(below(random, 26)))
		}
	}
	return dst
}

// appendMatch writes a match of tree. Once dst is longer than stop it repeats
// nothing more: the match is too long anyway.
func appendMatch(dst []byte, tree *syntax.Regexp, random Source, size, stop int) []byte {
	repeat := func(least, most int) []byte {
		if most < 0 || most > least+size {
			most = least + size
		}
		times := most
		if below(random, 2) == 0 {
			times = least + below(random, most-least+1)
		}
		out := dst
		for range times {
			if len(out) > stop {
				break
			}
			out = appendMatch(out, tree.Sub[0], random, size, stop)
		}
		return out
	}
	switch tree.Op {
	case syntax.OpLiteral:
		for _, r := range tree.Rune {
			dst = utf8.AppendRune(dst, r)
		}
	case syntax.OpCharClass:
		dst = utf8.AppendRune(dst, pick(tree.Rune, random))
	case syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		dst = append(dst, 'a'+byte(below(random, 26)))
	case syntax.OpStar:
		return repeat(0, -1)
	case syntax.OpPlus:
		return repeat(1, -1)
	case syntax.OpQuest:
		return repeat(0, 1)
	case syntax.OpRepeat:
		return repeat(tree.Min, tree.Max)
	case syntax.OpCapture, syntax.OpConcat:
		for _, sub := range tree.Sub {
			dst = appendMatch(dst, sub, random, size, stop)
		}
	case syntax.OpAlternate:
		return appendMatch(dst, tree.Sub[below(random, len(tree.Sub))], random, size, stop)
	}
	return dst // anchors, boundaries and the empty match add nothing
}

// pick draws a character of a class (pairs of first and last), a printable
// ASCII one where there is any.
func pick(class []rune, random Source) rune {
	if r, ok := pickBetween(class, ' ', '~', random); ok {
		return r
	}
	if r, ok := pickBetween(class, 0xa0, 0xd7ff, random); ok {
		return r
	}
	r, _ := pickBetween(class, 0, unicode.MaxRune, random)
	return r
}

func pickBetween(class []rune, low, high rune, random Source) (rune, bool) {
	total := 0
	for i := 0; i < len(class); i += 2 {
		if first, last := max(class[i], low), min(class[i+1], high); first <= last {
			total += int(last-first) + 1
		}
	}
	if total == 0 {
		return low, false
	}
	at := below(random, total)
	for i := 0; i < len(class); i += 2 {
		first, last := max(class[i], low), min(class[i+1], high)
		if first > last {
			continue
		}
		if width := int(last-first) + 1; at >= width {
			at -= width
			continue
		}
		return first + rune(at), true
	}
	return low, false
}

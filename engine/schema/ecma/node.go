package ecma

import (
	"strconv"
	"strings"
)

// An op says what a node of a pattern matches.
type op uint8

const (
	opSet       op = iota // one character of a set
	opConcat              // all nodes of sub, one after the other
	opAlternate           // one node of sub
	opRepeat              // sub[0], repeated least to most times
	opGroup               // sub[0]; a back reference can refer to its text
	opLook                // a lookahead or lookbehind of sub[0]
	opBack                // the text that a group has matched, again
	opBegin               // the begin of the text
	opEnd                 // the end of the text
	opWord                // a word boundary
	opNotWord             // a place without a word boundary
)

// unlimited is the value of node.most for a repetition without an upper limit.
const unlimited = 1<<31 - 1

// A node is one part of a parsed pattern.
type node struct {
	op          op
	sub         []*node // the parts inside this node
	set         charSet // opSet: the characters
	least, most int     // opRepeat: smallest and largest number of repetitions
	lazy        bool    // opRepeat: try as few repetitions as possible first
	group       int     // opGroup and opBack: number of the group, from 1
	name        string  // opBack: name of the group, which the parser later replaces by the number
	behind      bool    // opLook: a lookbehind
	negative    bool    // opLook: sub[0] must not match
	first, last int     // opRepeat: the groups inside have the numbers first to last-1
}

// measure returns the size of a node as a program of Go's regexp, which copies a
// repeated part once per repetition. instructions is the number of instructions. size
// is the number of instructions and of ranges in their sets. repeat is the largest
// product of the counts of nested repetitions. No result exceeds the constant
// unlimited.
func (n *node) measure() (instructions, size, repeat int) {
	instructions, size, repeat = 1, 1+len(n.set)/2, 1
	for _, sub := range n.sub {
		i, s, r := sub.measure()
		instructions, size, repeat = min(instructions+i, unlimited), min(size+s, unlimited), max(repeat, r)
	}
	if n.op != opRepeat {
		return instructions, size, repeat
	}
	times := n.least
	if n.most != unlimited {
		times = n.most
	}
	copies := max(n.least+1, times)
	return min(instructions*copies, unlimited), min(size*copies, unlimited), min(repeat*max(times, 1), unlimited)
}

// programSize returns the size of a node as a program of this package, which does not copy
// repeated parts.
func (n *node) programSize() int {
	size := 1 + len(n.set)/2
	for _, sub := range n.sub {
		size += sub.programSize()
	}
	return size
}

// mayBeEmpty reports whether a node may match the empty text. For some kinds of node it
// always returns true.
func (n *node) mayBeEmpty() bool {
	switch n.op {
	case opSet:
		return false
	case opConcat, opAlternate:
		all := n.op == opConcat
		for _, sub := range n.sub {
			if sub.mayBeEmpty() != all {
				return !all
			}
		}
		return all
	case opGroup:
		return n.sub[0].mayBeEmpty()
	case opRepeat:
		return n.least == 0 || n.sub[0].mayBeEmpty()
	}
	return true
}

// goSyntax returns a node in the syntax of Go's regexp. Greedy and lazy repetitions
// become equal, because the caller asks only whether there is a match.
func (n *node) goSyntax() string {
	var b strings.Builder
	n.write(&b)
	return b.String()
}

// write writes a node in the syntax of Go's regexp.
func (n *node) write(b *strings.Builder) {
	switch n.op {
	case opSet:
		n.set.write(b)
	case opBegin:
		b.WriteString(`\A`)
	case opEnd:
		b.WriteString(`\z`)
	case opWord:
		b.WriteString(`\b`)
	case opNotWord:
		b.WriteString(`\B`)
	default:
		b.WriteString("(?:")
		for i, sub := range n.sub {
			if i > 0 && n.op == opAlternate {
				b.WriteByte('|')
			}
			sub.write(b)
		}
		b.WriteByte(')')
	}
	if n.op == opRepeat {
		b.WriteString("{" + strconv.Itoa(n.least) + ",")
		if n.most != unlimited {
			b.WriteString(strconv.Itoa(n.most))
		}
		b.WriteByte('}')
	}
}

package ecma

import (
	"strconv"
	"strings"
)

// An op is the kind of a node.
type op uint8

const (
	opSet       op = iota // one character of a set
	opConcat              // all of sub, one after the other
	opAlternate           // one of sub
	opRepeat              // sub[0], from least to most times
	opGroup               // sub[0], remembered as a group
	opLook                // a lookahead or lookbehind of sub[0]
	opBack                // the text of a group again
	opBegin               // the begin of the text
	opEnd                 // the end of the text
	opWord                // a word boundary
	opNotWord             // a place without a word boundary
)

// unlimited is the largest count of a repetition without a limit.
const unlimited = 1<<31 - 1

// A node is a part of a parsed pattern.
type node struct {
	op          op
	sub         []*node
	set         set
	least, most int    // of opRepeat
	lazy        bool   // of opRepeat: as few as possible first
	group       int    // of opGroup and opBack, from 1
	name        string // of opBack: the group's name, until the parser knows its number
	behind      bool   // of opLook: a lookbehind
	negative    bool   // of opLook: sub[0] must not match
	first, last int    // of opRepeat: the groups inside are first, first+1 … last-1
}

// measure returns the size of a node as a program of Go's regexp, which copies a repeated
// part for each repetition. instructions counts the instructions, size counts the
// instructions and the ranges of their sets, and repeat is the largest product of nested
// counts. No number exceeds the constant unlimited.
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

// count returns the size of a node as a program of this package, which counts
// repetitions while it runs.
func (n *node) count() int {
	size := 1 + len(n.set)/2
	for _, sub := range n.sub {
		size += sub.count()
	}
	return size
}

// mayBeEmpty reports whether a node may match the empty text. It also returns true if it
// does not know.
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

// linear writes a node in the syntax of Go's regexp. The caller needs only the answer yes
// or no, so linear writes greedy and lazy repetitions in the same way.
func (n *node) linear() string {
	var b strings.Builder
	n.write(&b)
	return b.String()
}

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

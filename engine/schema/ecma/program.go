package ecma

import "slices"

// A program is a compiled pattern: a list of instructions for the matcher.
type program struct {
	code        []instruction
	slots       int // number of integers that the matcher stores: two for each group, then two for each loop
	lookarounds int // number of lookaheads and lookbehinds
}

// An opcode says what an instruction does.
type opcode uint8

const (
	codeMatch   opcode = iota // the whole pattern has matched
	codeSet                   // read one character of a set
	codeRun                   // read least to most characters of a set
	codeJump                  // continue at the instruction to
	codeSplit                 // continue at the next instruction; if that fails, at the instruction to
	codeReset                 // begin a loop: set its count to 0
	codeLoop                  // begin one more pass of a loop, or leave it and continue at the instruction to
	codePass                  // begin a pass of a loop
	codeEndPass               // end a pass of a loop and continue at the instruction to
	codeSave                  // store the current place in a slot
	codeBack                  // read the text that a group has matched again
	codeLook                  // begin a lookahead or lookbehind
	codeLookEnd               // end a lookahead or lookbehind whose inner part has matched
	codeBegin                 // check that this is the begin of the text
	codeEnd                   // check that this is the end of the text
	codeWord                  // check that this is a word boundary
	codeNotWord               // check that this is no word boundary
)

// An instruction is one step of a program.
type instruction struct {
	code        opcode
	backward    bool // read the characters before the current place
	lazy        bool
	negative    bool
	set         *set
	to          int // index of an instruction
	slot        int // for a loop: the slot of its count; the next slot stores the place where the pass began
	least, most int
	first, last int // a pass clears the groups in the slots first to last-1
}

// A builder compiles nodes into a program. The program stores the places only of groups
// to which a back reference refers.
type builder struct {
	*program
	wanted   []bool // true if a back reference refers to the group, by number of the group
	backward bool   // the current node is inside a lookbehind, which the matcher reads from its end to its begin
}

// newProgram compiles a parsed pattern with this number of groups.
func newProgram(root *node, groups int, wanted []bool) *program {
	b := &builder{program: &program{slots: 2 * (groups + 1)}, wanted: wanted}
	b.node(root)
	b.add(instruction{code: codeMatch})
	return b.program
}

// add appends an instruction and returns its index.
func (b *builder) add(i instruction) int {
	i.backward = b.backward
	b.code = append(b.code, i)
	return len(b.code) - 1
}

// node appends the instructions of a node.
func (b *builder) node(n *node) {
	switch n.op {
	case opSet:
		b.add(instruction{code: codeSet, set: &n.set})
	case opConcat:
		for i := range n.sub {
			if b.backward {
				i = len(n.sub) - 1 - i
			}
			b.node(n.sub[i])
		}
	case opAlternate:
		b.alternate(n)
	case opRepeat:
		b.repeat(n)
	case opGroup:
		b.save(2*n.group, n)
		b.node(n.sub[0])
		b.save(2*n.group+1, n)
	case opBack:
		b.add(instruction{code: codeBack, slot: 2 * n.group})
	case opLook:
		b.lookaround(n)
	case opBegin:
		b.add(instruction{code: codeBegin})
	case opEnd:
		b.add(instruction{code: codeEnd})
	case opWord:
		b.add(instruction{code: codeWord})
	case opNotWord:
		b.add(instruction{code: codeNotWord})
	}
}

// save appends the instruction that stores where group n begins or ends, if a back
// reference refers to the group.
func (b *builder) save(slot int, n *node) {
	if b.wanted[n.group] {
		b.add(instruction{code: codeSave, slot: slot})
	}
}

func (b *builder) alternate(n *node) {
	var ends []int
	for i, sub := range n.sub {
		if i == len(n.sub)-1 {
			b.node(sub)
			break
		}
		split := b.add(instruction{code: codeSplit})
		b.node(sub)
		ends = append(ends, b.add(instruction{code: codeJump}))
		b.code[split].to = len(b.code)
	}
	for _, at := range ends {
		b.code[at].to = len(b.code)
	}
}

func (b *builder) lookaround(n *node) {
	number, outer := b.lookarounds, b.backward
	b.lookarounds++
	begin := b.add(instruction{code: codeLook, slot: number, negative: n.negative})
	b.backward = n.behind
	b.node(n.sub[0])
	b.backward = outer
	b.add(instruction{code: codeLookEnd, slot: number, negative: n.negative})
	b.code[begin].to = len(b.code)
}

// repeat appends a repetition in one of four forms: codeRun, optional, star or loop.
// The first three forms take the matcher the least memory. But they cannot distinguish
// a skipped group from a group that matched the empty text. So repeat uses loop if a
// back reference refers to a group inside the repetition.
func (b *builder) repeat(n *node) {
	inner := n.sub[0]
	plain := !slices.Contains(b.wanted[n.first:n.last], true)
	switch {
	case n.most == 0:
	case inner.op == opSet:
		b.add(instruction{code: codeRun, set: &inner.set, least: n.least, most: n.most, lazy: n.lazy})
	case plain && n.least == 0 && n.most == 1:
		b.optional(n)
	case plain && n.least <= 1 && n.most == unlimited && !inner.mayBeEmpty():
		b.star(n)
	default:
		b.loop(n)
	}
}

func (b *builder) optional(n *node) {
	split := b.add(instruction{code: codeSplit})
	if !n.lazy {
		b.node(n.sub[0])
		b.code[split].to = len(b.code)
		return
	}
	jump := b.add(instruction{code: codeJump})
	b.code[split].to = len(b.code)
	b.node(n.sub[0])
	b.code[jump].to = len(b.code)
}

func (b *builder) star(n *node) {
	enter := -1
	if n.least == 0 {
		enter = b.add(instruction{code: codeJump})
	}
	begin := len(b.code)
	b.node(n.sub[0])
	if enter >= 0 {
		b.code[enter].to = len(b.code)
	}
	split := b.add(instruction{code: codeSplit, to: begin})
	if !n.lazy {
		b.add(instruction{code: codeJump, to: begin})
		b.code[split].to = len(b.code)
	}
}

func (b *builder) loop(n *node) {
	slot := b.slots
	b.slots += 2
	b.add(instruction{code: codeReset, slot: slot})
	loop := b.add(instruction{code: codeLoop, slot: slot, least: n.least, most: n.most, lazy: n.lazy})
	b.add(instruction{code: codePass, slot: slot, first: 2 * n.first, last: 2 * n.last})
	b.node(n.sub[0])
	b.add(instruction{code: codeEndPass, slot: slot, least: n.least, to: loop})
	b.code[loop].to = len(b.code)
}

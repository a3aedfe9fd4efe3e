package ecma

import "slices"

// A program is a pattern as instructions for the matcher.
type program struct {
	code  []instruction
	slots int // numbers that the matcher keeps: two for each group, then two for each loop
	looks int // lookaheads and lookbehinds
}

type opcode uint8

const (
	codeMatch   opcode = iota
	codeSet            // read one character of a set
	codeRun            // read least to most characters of a set
	codeJump           // continue at the instruction to
	codeSplit          // continue at the next instruction; if that fails, at the instruction to
	codeReset          // begin a loop
	codeLoop           // begin one more pass of a loop, or leave it and continue at the instruction to
	codePass           // a pass begins
	codeEndPass        // a pass ends: continue at the instruction to
	codeSave           // put the place into a slot
	codeBack           // read the text of a group again
	codeLook           // begin a lookahead or lookbehind
	codeLookEnd        // its inner part matched
	codeBegin          // check for the begin of the text
	codeEnd            // check for the end of the text
	codeWord           // check for a word boundary
	codeNotWord        // check that there is no word boundary
)

type instruction struct {
	code        opcode
	backward    bool // the instruction reads the characters before the current place
	lazy        bool
	negative    bool
	set         *set
	to          int // index of an instruction
	slot        int // for a loop: the slot of its count; the next slot has the place where the pass began
	least, most int
	first, last int // a pass forgets the groups in the slots first to last-1
}

// A builder writes a program. Groups that no back reference names are not remembered.
type builder struct {
	*program
	wanted   []bool
	backward bool // inside a lookbehind, which is read from its end to its begin
}

func newProgram(root *node, groups int, wanted []bool) *program {
	b := &builder{program: &program{slots: 2 * (groups + 1)}, wanted: wanted}
	b.node(root)
	b.add(instruction{code: codeMatch})
	return b.program
}

func (b *builder) add(i instruction) int {
	i.backward = b.backward
	b.code = append(b.code, i)
	return len(b.code) - 1
}

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
		b.look(n)
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

// save adds the instruction that stores where a group begins or ends, in the order of
// reading, if a back reference names the group.
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

func (b *builder) look(n *node) {
	number, outer := b.looks, b.backward
	b.looks++
	begin := b.add(instruction{code: codeLook, slot: number, negative: n.negative})
	b.backward = n.behind
	b.node(n.sub[0])
	b.backward = outer
	b.add(instruction{code: codeLookEnd, slot: number, negative: n.negative})
	b.code[begin].to = len(b.code)
}

// repeat writes a repetition in one of four forms: codeRun, optional, star or loop. The
// first three cost the matcher the least memory. But they cannot distinguish a group that
// was skipped from a group that matched the empty text. So a part with a group that a back
// reference names gets the form loop.
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

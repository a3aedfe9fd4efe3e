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
	set         *charSet
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
func newProgram(root *node, groups int, referenced []bool) *program {
	b := &builder{program: &program{slots: 2 * (groups + 1)}, wanted: referenced}
	b.emitNode(root)
	b.emit(instruction{code: codeMatch})
	return b.program
}

// emit appends an instruction and returns its index.
func (b *builder) emit(i instruction) int {
	i.backward = b.backward
	b.code = append(b.code, i)
	return len(b.code) - 1
}

// emitNode appends the instructions of a node.
func (b *builder) emitNode(n *node) {
	switch n.op {
	case opSet:
		b.emit(instruction{code: codeSet, set: &n.set})
	case opConcat:
		for i := range n.sub {
			if b.backward {
				i = len(n.sub) - 1 - i
			}
			b.emitNode(n.sub[i])
		}
	case opAlternate:
		b.emitAlternation(n)
	case opRepeat:
		b.emitRepeat(n)
	case opGroup:
		b.emitSave(2*n.group, n)
		b.emitNode(n.sub[0])
		b.emitSave(2*n.group+1, n)
	case opBack:
		b.emit(instruction{code: codeBack, slot: 2 * n.group})
	case opLook:
		b.emitLookaround(n)
	case opBegin:
		b.emit(instruction{code: codeBegin})
	case opEnd:
		b.emit(instruction{code: codeEnd})
	case opWord:
		b.emit(instruction{code: codeWord})
	case opNotWord:
		b.emit(instruction{code: codeNotWord})
	}
}

// emitSave appends the instruction that stores where group n begins or ends, if a back
// reference refers to the group.
func (b *builder) emitSave(slot int, n *node) {
	if b.wanted[n.group] {
		b.emit(instruction{code: codeSave, slot: slot})
	}
}

func (b *builder) emitAlternation(n *node) {
	var ends []int
	for i, sub := range n.sub {
		if i == len(n.sub)-1 {
			b.emitNode(sub)
			break
		}
		split := b.emit(instruction{code: codeSplit})
		b.emitNode(sub)
		ends = append(ends, b.emit(instruction{code: codeJump}))
		b.code[split].to = len(b.code)
	}
	for _, at := range ends {
		b.code[at].to = len(b.code)
	}
}

func (b *builder) emitLookaround(n *node) {
	number, outer := b.lookarounds, b.backward
	b.lookarounds++
	begin := b.emit(instruction{code: codeLook, slot: number, negative: n.negative})
	b.backward = n.behind
	b.emitNode(n.sub[0])
	b.backward = outer
	b.emit(instruction{code: codeLookEnd, slot: number, negative: n.negative})
	b.code[begin].to = len(b.code)
}

// emitRepeat appends a repetition in one of four forms: codeRun, or the code that
// emitOptional, emitStar or emitLoop appends. The first three forms take the matcher the
// least memory. But they cannot distinguish a skipped group from a group that matched the
// empty text. So emitRepeat uses emitLoop if a back reference refers to a group inside the
// repetition.
func (b *builder) emitRepeat(n *node) {
	inner := n.sub[0]
	plain := !slices.Contains(b.wanted[n.first:n.last], true)
	switch {
	case n.most == 0:
	case inner.op == opSet:
		b.emit(instruction{code: codeRun, set: &inner.set, least: n.least, most: n.most, lazy: n.lazy})
	case plain && n.least == 0 && n.most == 1:
		b.emitOptional(n)
	case plain && n.least <= 1 && n.most == unlimited && !inner.mayBeEmpty():
		b.emitStar(n)
	default:
		b.emitLoop(n)
	}
}

func (b *builder) emitOptional(n *node) {
	split := b.emit(instruction{code: codeSplit})
	if !n.lazy {
		b.emitNode(n.sub[0])
		b.code[split].to = len(b.code)
		return
	}
	jump := b.emit(instruction{code: codeJump})
	b.code[split].to = len(b.code)
	b.emitNode(n.sub[0])
	b.code[jump].to = len(b.code)
}

func (b *builder) emitStar(n *node) {
	enter := -1
	if n.least == 0 {
		enter = b.emit(instruction{code: codeJump})
	}
	begin := len(b.code)
	b.emitNode(n.sub[0])
	if enter >= 0 {
		b.code[enter].to = len(b.code)
	}
	split := b.emit(instruction{code: codeSplit, to: begin})
	if !n.lazy {
		b.emit(instruction{code: codeJump, to: begin})
		b.code[split].to = len(b.code)
	}
}

func (b *builder) emitLoop(n *node) {
	slot := b.slots
	b.slots += 2
	b.emit(instruction{code: codeReset, slot: slot})
	loop := b.emit(instruction{code: codeLoop, slot: slot, least: n.least, most: n.most, lazy: n.lazy})
	b.emit(instruction{code: codePass, slot: slot, first: 2 * n.first, last: 2 * n.last})
	b.emitNode(n.sub[0])
	b.emit(instruction{code: codeEndPass, slot: slot, least: n.least, to: loop})
	b.code[loop].to = len(b.code)
}

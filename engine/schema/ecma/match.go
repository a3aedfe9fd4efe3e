package ecma

import (
	"strings"
	"unicode/utf8"
)

// A stackEntry of the matcher's stack is an alternative that the matcher has not tried yet,
// or a change that it must undo before it tries the next alternative.
type stackEntry struct {
	kind entryKind
	to   int32 // index of the next instruction; for undo: the slot
	at   int32 // place in the text; for undo: the previous number in the slot
	end  int32 // greedy: place where the shortest run ends; lazy: how many more characters the run may take
}

type entryKind uint8

const (
	choice entryKind = iota // continue at another instruction
	undo                    // restore the previous number in a slot, then go to the next entry
	greedy                  // shorten a run by one character
	lazy                    // lengthen a run by one character
)

// A matcher runs a program over a text. It stores the alternatives that it has not
// tried in a slice. So it needs no recursion, which some texts would make too deep.
type matcher struct {
	*program
	text   string
	next   int          // index of the next instruction
	at     int          // current place in text, in bytes
	slots  []int32      // see program.slots; -1 means not set
	stack  []stackEntry // alternatives and changes, see stackEntry
	marks  []int        // for each lookahead or lookbehind: length of the stack when it began
	places []int        // for each lookahead or lookbehind: the place where it began
	left   *int         // number of steps that the matcher may still use
	err    error
}

// match reports whether text contains a match that begins at any place.
func (p *program) match(text string, stepsLeft *int) (bool, error) {
	m := matcher{program: p, text: text, left: stepsLeft, slots: make([]int32, p.slots), marks: make([]int, p.lookarounds), places: make([]int, p.lookarounds)}
	for i := range m.slots {
		m.slots[i] = -1
	}
	for start := 0; ; {
		if found := m.matchAt(start); found || m.err != nil {
			return found, m.err
		}
		if start == len(text) || p.code[0].code == codeBegin {
			return false, nil
		}
		_, start = m.read(start, false)
	}
}

// matchAt reports whether a match begins at the place start. If there is none, matchAt
// leaves an empty stack and the slots as they were.
func (m *matcher) matchAt(start int) bool {
	m.next, m.at = 0, start
	for {
		m.spend(1)
		in := &m.code[m.next]
		m.next++
		if in.code == codeMatch {
			return m.err == nil
		}
		if m.err != nil || !m.runInstruction(in) && !m.backtrack() {
			return false
		}
	}
}

// spend subtracts steps from the number of steps that are left.
func (m *matcher) spend(steps int) {
	if *m.left -= steps; *m.left < 0 {
		m.err = errSteps
	}
}

// runInstruction runs one instruction. It returns false if the current alternative has failed.
func (m *matcher) runInstruction(in *instruction) bool {
	switch in.code {
	case codeSet:
		return m.matchRune(in)
	case codeRun:
		return m.matchSetRun(in)
	case codeJump:
		m.next = in.to
	case codeSplit:
		m.push(stackEntry{kind: choice, to: int32(in.to), at: int32(m.at)})
	case codeSave:
		m.setSlot(in.slot, m.at)
	case codeReset:
		m.setSlot(in.slot, 0)
	case codeLoop:
		m.enterLoop(in)
	case codePass:
		m.beginPass(in)
	case codeEndPass:
		m.next = in.to
		// Fail after a pass that read nothing and was not required: the loop would never
		// end.
		return m.at != int(m.slots[in.slot+1]) || int(m.slots[in.slot]) <= in.least
	case codeBack:
		return m.matchBackReference(in)
	case codeLook:
		m.marks[in.slot], m.places[in.slot] = len(m.stack), m.at
		if in.negative {
			m.push(stackEntry{kind: choice, to: int32(in.to), at: int32(m.at)})
		}
	case codeLookEnd:
		return m.endLookaround(in)
	case codeBegin:
		return m.at == 0
	case codeEnd:
		return m.at == len(m.text)
	case codeWord:
		return m.atWordBoundary()
	case codeNotWord:
		return !m.atWordBoundary()
	}
	return true
}

// push puts an entry on the stack. It stores ErrPlaces if the stack is full.
func (m *matcher) push(e stackEntry) {
	if len(m.stack) == MaxPlaces {
		m.err = ErrPlaces
		return
	}
	m.stack = append(m.stack, e)
}

// setSlot writes the number to into a slot. It pushes an entry, so that backtrack restores the
// previous number.
func (m *matcher) setSlot(slot, value int) {
	m.push(stackEntry{kind: undo, to: int32(slot), at: m.slots[slot]})
	m.slots[slot] = int32(value)
}

// backtrack returns to the last alternative that was not tried yet. It returns false if
// there is none.
func (m *matcher) backtrack() bool {
	for len(m.stack) > 0 && m.err == nil {
		m.spend(1)
		last := len(m.stack) - 1
		e := &m.stack[last]
		m.next, m.at = int(e.to), int(e.at)
		switch e.kind {
		case choice:
			m.stack = m.stack[:last]
			return true
		case undo:
			m.slots[e.to] = e.at
			m.stack = m.stack[:last]
		case greedy:
			_, m.at = m.read(m.at, !m.code[m.next-1].backward)
			if e.at = int32(m.at); e.at == e.end {
				m.stack = m.stack[:last]
			}
			return true
		case lazy:
			e.end--
			if e.end >= 0 && m.matchRune(&m.code[m.next-1]) {
				e.at = int32(m.at)
				return true
			}
			m.stack = m.stack[:last]
		}
	}
	return false
}

// read returns the character after position at and the position after this character.
// If backward is set, it returns the character before at and the position before it.
func (m *matcher) read(at int, backward bool) (c rune, beyond int) {
	if backward {
		if c = rune(m.text[at-1]); c < utf8.RuneSelf {
			return c, at - 1
		}
		c, size := utf8.DecodeLastRuneInString(m.text[:at])
		return c, at - size
	}
	if c = rune(m.text[at]); c < utf8.RuneSelf {
		return c, at + 1
	}
	c, size := utf8.DecodeRuneInString(m.text[at:])
	return c, at + size
}

// matchRune moves over one character, if this character is in the set of in. It returns
// false if not.
func (m *matcher) matchRune(in *instruction) bool {
	if m.at == 0 && in.backward || m.at == len(m.text) && !in.backward {
		return false
	}
	c, beyond := m.read(m.at, in.backward)
	if !in.set.has(c) {
		return false
	}
	m.at = beyond
	return true
}

// matchSetRun moves over characters of a set: as many as possible for a greedy run, as few as
// allowed for a lazy run. One entry of the stack stands for all other lengths of the
// run.
func (m *matcher) matchSetRun(in *instruction) bool {
	count, most := 0, in.most
	if in.lazy {
		most = in.least
	}
	shortest := m.at
	for count < most && m.matchRune(in) {
		if count++; count == in.least {
			shortest = m.at
		}
	}
	m.spend(count)
	switch {
	case count < in.least:
		return false
	case in.lazy && in.most > in.least:
		m.push(stackEntry{kind: lazy, to: int32(m.next), at: int32(m.at), end: int32(in.most - in.least)})
	case !in.lazy && count > in.least:
		m.push(stackEntry{kind: greedy, to: int32(m.next), at: int32(m.at), end: int32(shortest)})
	}
	return true
}

// enterLoop decides whether one more pass of a loop begins, at the next instruction, or the
// loop ends, at in.to. It pushes the other choice if both are allowed.
func (m *matcher) enterLoop(in *instruction) {
	count, pass := int(m.slots[in.slot]), m.next
	switch {
	case count < in.least:
	case count >= in.most:
		m.next = in.to
	case in.lazy:
		m.push(stackEntry{kind: choice, to: int32(pass), at: int32(m.at)})
		m.next = in.to
	default:
		m.push(stackEntry{kind: choice, to: int32(in.to), at: int32(m.at)})
	}
}

// beginPass counts a pass of a loop and clears the groups inside the loop.
func (m *matcher) beginPass(in *instruction) {
	m.setSlot(in.slot, int(m.slots[in.slot])+1)
	m.setSlot(in.slot+1, m.at)
	for slot := in.first; slot < in.last; slot++ {
		if m.slots[slot] >= 0 {
			m.setSlot(slot, -1)
		}
	}
	m.spend(in.last - in.first)
}

// matchBackReference moves over a copy of the text that a group has matched. If the group
// has not matched, or has not ended yet, the copy is empty.
func (m *matcher) matchBackReference(in *instruction) bool {
	begin, end := m.slots[in.slot], m.slots[in.slot+1]
	if begin < 0 || end < 0 {
		return true
	}
	text := m.text[min(begin, end):max(begin, end)]
	m.spend(len(text))
	if in.backward {
		m.at -= len(text)
		return m.at >= 0 && strings.HasPrefix(m.text[m.at:], text)
	}
	m.at += len(text)
	return m.at <= len(m.text) && strings.HasSuffix(m.text[:m.at], text)
}

// endLookaround ends a lookahead or lookbehind whose inner part has matched. The matcher
// needs no other match of the inner part, so endLookaround removes the inner part's entries
// from the stack. For a positive lookaround it leaves the undo entries. For a negative
// lookaround it undoes the changes and returns false.
func (m *matcher) endLookaround(in *instruction) bool {
	mark := m.marks[in.slot]
	m.spend(len(m.stack) - mark)
	if in.negative {
		for len(m.stack) > mark {
			last := len(m.stack) - 1
			if e := m.stack[last]; e.kind == undo {
				m.slots[e.to] = e.at
			}
			m.stack = m.stack[:last]
		}
		return false
	}
	kept := mark
	for _, e := range m.stack[mark:] {
		if e.kind == undo {
			m.stack[kept] = e
			kept++
		}
	}
	m.stack, m.at = m.stack[:kept], m.places[in.slot]
	return true
}

// atWordBoundary reports whether a word begins or ends at the current place in the
// text.
func (m *matcher) atWordBoundary() bool {
	before := m.at > 0 && words.has(rune(m.text[m.at-1]))
	after := m.at < len(m.text) && words.has(rune(m.text[m.at]))
	return before != after
}

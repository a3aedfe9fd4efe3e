package prompt

import (
	"encoding/binary"
	"strings"
	"unsafe"
)

// A Tokenizer turns a text that stands alone into tokens. *tokenize.Encoding is
// one; Template.Encoding returns the one to use with a template.
type Tokenizer interface {
	// Count is how many tokens a text has.
	Count(text string) int
	// Truncate is the longest beginning of a text, cut between characters,
	// that has at most n tokens.
	Truncate(text string, n int) string
}

// A Measure counts the prompts of one job. It is safe for concurrent use where
// its tokenizer is.
type Measure struct {
	tokens        Tokenizer
	template      Template
	fixed         int    // tokens outside of the row's own text
	before, after string // what stands beside the row up to the next special token
	overhead      int
}

// Measure prepares the counting of a job's rows: what they have in common is
// counted here, once.
func (t Template) Measure(tokens Tokenizer, j Job) *Measure {
	if t.name == "" {
		t = Template{name: None, family: families[None]}
	}
	m := &Measure{tokens: tokens, template: t}
	run, inRow := "", false // the text since the last special token
	end := func() {
		switch {
		case inRow:
			m.after = run
		case run != "":
			m.fixed += tokens.Count(run)
		}
		run, inRow = "", false
	}
	for _, p := range t.family.render(j) {
		switch {
		case p.row:
			m.before, run, inRow = run, "", true
		case p.text != "":
			run += p.text
		default:
			end()
			if p.special != "" {
				m.fixed++
			}
		}
	}
	end()
	m.overhead = m.Count("")
	return m
}

// Overhead is the tokens of a prompt with an empty row. Count of a text is that
// plus the tokens of the text, give or take the few that merge where they meet.
func (m *Measure) Overhead() int { return m.overhead }

// Count returns the tokens of the whole prompt with text as its row.
func (m *Measure) Count(text string) int {
	if m.template.family.trims {
		text = trim(text)
	}
	return m.fixed + m.tokens.Count(m.before+text+m.after)
}

// AtMost is a bound on what Count returns, which takes no counting: a token has at
// least one byte. Unicode's form C, which some vocabularies want, has up to three
// times as many bytes as a text (Unicode Standard Annex 15); ASCII stays as it is.
func (m *Measure) AtMost(text string) int {
	n := len(text)
	if !ascii(text) {
		n *= 3
	}
	return m.fixed + 3*len(m.before) + n + 3*len(m.after)
}

// ascii looks at eight bytes at a time: every row comes by here.
func ascii(text string) bool {
	const high = 0x8080808080808080
	b := unsafe.Slice(unsafe.StringData(text), len(text))
	for ; len(b) >= 8; b = b[8:] {
		if binary.LittleEndian.Uint64(b)&high != 0 {
			return false
		}
	}
	for _, c := range b {
		if c >= 0x80 {
			return false
		}
	}
	return true
}

// Exact reports whether Count is beyond doubt what a server with this template
// and vocabulary counts. It is not where the text holds what may be the name of
// a special token, since servers differ there, and never without a template.
func (m *Measure) Exact(text string) bool {
	if m.template.name == None {
		return false
	}
	for _, marker := range m.template.family.markers {
		if strings.Contains(text, marker) {
			return false
		}
	}
	return true
}

// Fit returns the longest beginning of text whose whole prompt has at most limit
// tokens, and the tokens of that prompt. It reports false where even an empty row
// has more. Where line breaks of the text merge with the template's, a token or
// two may stay free. A text that a template trims is cut trimmed.
func (m *Measure) Fit(text string, limit int) (cut string, tokens int, ok bool) {
	if tokens = m.Count(text); tokens <= limit {
		return text, tokens, true
	}
	if m.overhead > limit {
		return "", m.overhead, false
	}
	if m.template.family.trims {
		text = trim(text)
	}
	for room := limit - m.overhead; room > 0; room-- {
		cut = m.tokens.Truncate(text, room)
		if tokens = m.Count(cut); tokens <= limit {
			return cut, tokens, true
		}
	}
	return "", m.overhead, true
}

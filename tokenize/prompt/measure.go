package prompt

import (
	"encoding/binary"
	"strings"
	"unsafe"
)

// Tokenizer counts the tokens of texts. *tokenize.Encoding is a Tokenizer.
// Template.Encoding returns the right Encoding for a template.
type Tokenizer interface {
	// Count returns the number of tokens in a text.
	Count(text string) int
	// Truncate returns the longest prefix of a text, cut between characters,
	// that has at most n tokens.
	Truncate(text string, n int) string
}

// TokenCounter counts the tokens of the prompts of a job. It is safe for concurrent use if
// its tokenizer is safe too.
type TokenCounter struct {
	tokens        Tokenizer
	template      Template
	fixed         int    // number of tokens that do not depend on the row's text
	before, after string // texts before and after the row's text, up to the next special token
	overhead      int
}

// Measure returns a TokenCounter for the rows of a job. It counts the common part of the
// prompts once.
func (t Template) Measure(tokens Tokenizer, j JobPrompt) *TokenCounter {
	if t.name == "" {
		t = Template{name: None, family: families[None]}
	}
	m := &TokenCounter{tokens: tokens, template: t}
	run, inRow := "", false // text since the last special token
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

// Overhead returns the number of tokens in a prompt with an empty row. The count of
// another row is about the overhead plus the tokens of its text; a few tokens can merge
// at the borders.
func (m *TokenCounter) Overhead() int { return m.overhead }

// Count returns the number of tokens in the whole prompt with text as its row.
func (m *TokenCounter) Count(text string) int {
	if m.template.family.trims {
		text = trim(text)
	}
	return m.fixed + m.tokens.Count(m.before+text+m.after)
}

// CountUpperBound returns an upper limit of Count without counting. A token has at least
// one byte. Some vocabularies use Unicode's form C, which can triple the bytes
// of a text (Unicode Standard Annex 15); ASCII does not change.
func (m *TokenCounter) CountUpperBound(text string) int {
	n := len(text)
	if !isASCII(text) {
		n *= 3
	}
	return m.fixed + 3*len(m.before) + n + 3*len(m.after)
}

// isASCII reports whether a text is plain ASCII. It checks eight bytes at a time, because
// it runs for every row.
func isASCII(text string) bool {
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

// IsExact reports whether Count is certainly the count of a server with this template and
// vocabulary. It returns false if the text may contain the name of a special token,
// because servers treat such names differently, and always if the template is None.
func (m *TokenCounter) IsExact(text string) bool {
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

// TruncateToFit returns the longest prefix of text whose whole prompt has at most limit tokens,
// and the number of tokens of that prompt. ok is false if the prompt of an empty row
// has more tokens. If line breaks of the text merge with line breaks of the template,
// one or two tokens may stay unused. If the template trims texts, the prefix is
// trimmed.
func (m *TokenCounter) TruncateToFit(text string, limit int) (cut string, tokens int, ok bool) {
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

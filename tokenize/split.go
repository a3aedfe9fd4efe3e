package tokenize

import (
	"fmt"
	"unicode/utf8"

	"github.com/dlclark/regexp2"
)

// These are the patterns that have a scanner, as written in tiktoken and in the
// tokenizer.json files of the models.
const (
	// patternCL100K is the pattern of cl100k_base, in the form that Llama 3
	// also uses.
	patternCL100K = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	// patternQwen is the pattern of Qwen 2, 2.5 and 3. Every digit is a piece.
	patternQwen = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	// patternQwenMarks is patternQwen with marks inside words.
	patternQwenMarks = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	// patternO200K is the pattern of o200k_base, gpt-oss and Llama 4.
	patternO200K = `[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|` +
		`[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|` +
		`\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	// patternGPT2 is the pattern of GPT-2, r50k_base, p50k_base, and
	// ByteLevel's use_regex.
	patternGPT2 = `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`
)

// scannerFor returns the scanner of a pattern, or nil if the pattern has no scanner.
func scannerFor(pattern string) *scanner {
	t := classes()
	switch pattern {
	case patternCL100K:
		return &scanner{cl100k, letter, 3, t}
	case patternQwen:
		return &scanner{cl100k, letter, 1, t}
	case patternQwenMarks:
		return &scanner{cl100k, letter | mark, 1, t}
	case patternO200K:
		return &scanner{o200k, letter, 3, t}
	case patternGPT2, `'s|'t|'re|'ve|'m|'ll|'d| ?[\p{L}]+| ?[\p{N}]+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`:
		return &scanner{gpt2, letter, 0, t}
	}
	return nil
}

// pieceSplitter is a step of the pre-tokenizer: it splits a text, or every piece of the step
// before, into pieces.
type pieceSplitter interface {
	// appendPieceEnds appends the ends of the pieces of s to ends. base is the position of s in
	// the whole text.
	appendPieceEnds(ends []int, s string, base int) []int
}

// newSplitter returns the stage that splits by a pattern.
func newSplitter(pattern string) (pieceSplitter, error) {
	if s := scannerFor(pattern); s != nil {
		return s, nil
	}
	expression, err := regexp2.Compile(pattern, regexp2.None)
	if err != nil {
		return nil, fmt.Errorf("%w: pattern %q: %w", ErrUnsupported, pattern, err)
	}
	return regexSplitter{expression}, nil
}

func (p *scanner) appendPieceEnds(ends []int, s string, base int) []int {
	for i := 0; i < len(s); {
		i = p.next(s, i)
		ends = append(ends, base+i)
	}
	return ends
}

// regexSplitter is a stage for any other pattern. Each match is a piece, and so is
// the text between two matches.
type regexSplitter struct {
	expression *regexp2.Regexp
}

func (m regexSplitter) appendPieceEnds(ends []int, s string, base int) []int {
	at, character := 0, 0 // current position, in bytes and in characters
	skip := func(to int) {
		begin := at
		for ; character < to; character++ {
			_, n := utf8.DecodeRuneInString(s[at:])
			at += n
		}
		if at > begin {
			ends = append(ends, base+at)
		}
	}
	// FindStringMatch can only fail by a timeout, and no timeout is set.
	for match, _ := m.expression.FindStringMatch(s); match != nil; match, _ = m.expression.FindNextMatch(match) {
		skip(match.Index)
		skip(match.Index + match.Length)
	}
	if at < len(s) {
		ends = append(ends, base+len(s))
	}
	return ends
}

// digitSplitter is a stage that separates numbers from other text: each character of \p{N} is
// a piece (single), or each run of such characters.
type digitSplitter struct {
	single bool
	table  *classTable
}

func (d digitSplitter) appendPieceEnds(ends []int, s string, base int) []int {
	for i := 0; i < len(s); {
		first, n := d.isNumberAt(s, i)
		for i += n; i < len(s) && !(first && d.single); i += n {
			var next bool
			if next, n = d.isNumberAt(s, i); next != first {
				break
			}
		}
		ends = append(ends, base+i)
	}
	return ends
}

// isNumberAt reports whether the character of s at byte i is a number, and returns its size
// in bytes. The tokenizers library uses Rust here, with the numbers of Unicode 17.
func (d digitSplitter) isNumberAt(s string, i int) (yes bool, size int) {
	r, size := utf8.DecodeRuneInString(s[i:])
	return d.table.classOf(r)&number != 0 || r >= 0x11DE0 && r <= 0x11DE9 || r >= 0x16FF4 && r <= 0x16FF6, size
}

// pieceIterator is an iterator over the pieces of a text.
type pieceIterator struct {
	scan *scanner
	text string
	ends []int // ends of the pieces that are left, if there is no scanner
	at   int   // beginning of the next piece
}

func (e *Encoding) iteratePieces(s *scratch, text string) pieceIterator {
	p := pieceIterator{scan: e.scan, text: text}
	if e.scan == nil {
		s.ends = append(s.ends[:0], len(text))
		for _, stage := range e.stages {
			s.other = s.other[:0]
			begin := 0
			for _, end := range s.ends {
				s.other = stage.appendPieceEnds(s.other, text[begin:end], begin)
				begin = end
			}
			s.ends, s.other = s.other, s.ends
		}
		p.ends = s.ends
	}
	return p
}

// next returns the end of the piece that begins at p.at, and sets p.at to this end.
func (p *pieceIterator) next() int {
	if p.scan != nil {
		p.at = p.scan.next(p.text, p.at)
	} else {
		p.at, p.ends = p.ends[0], p.ends[1:]
	}
	return p.at
}

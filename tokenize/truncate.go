package tokenize

import (
	"strings"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// Truncate returns the longest prefix of text that ends between characters and
// has at most n tokens. Added tokens are kept whole or left out whole. A text
// that is not valid UTF-8, or not in the form that the encoding brings it to,
// is changed to that first, unless all of it fits.
//
// Longest is meant exactly: a prefix of which Count is at most n, such that it
// is more for every longer one. Counts do not grow evenly with the text:
// "internationa" has more tokens than "international". What is given up, for
// bounded time, are pieces of more than longPiece bytes of which the beginning
// would fall into several pieces (white space with line ends, capitals among
// caseless letters): there only prefixes near the first n tokens are looked at.
func (e *Encoding) Truncate(text string, n int) string {
	if n <= 0 {
		return ""
	}
	if len(text) <= n && !e.nfc && !e.spaceFirst && utf8.ValidString(text) {
		return text // every token has at least one byte
	}
	s := e.take()
	defer e.give(s)
	seen := valid(text)
	if e.nfc && !norm.NFC.IsNormalString(seen) {
		seen = e.normalized(s, seen)
	}
	left := n
	for part := range e.parts(s, seen) {
		if part.id >= 0 {
			if left == 0 {
				return seen[:part.begin]
			}
			left--
			continue
		}
		cut, used := e.fit(s, part.text, left)
		if cut < len(part.text) {
			if e.spaceFirst && seen[part.begin] != ' ' {
				cut = max(0, cut-1)
			}
			return seen[:part.begin+cut]
		}
		left -= used
	}
	return text
}

// normalized returns a text with what is between its added tokens normalized.
func (e *Encoding) normalized(s *scratch, text string) string {
	var b strings.Builder
	for part := range e.parts(s, text) {
		if part.id >= 0 {
			b.WriteString(text[part.begin:part.end])
		} else {
			b.WriteString(nfc(text[part.begin:part.end]))
		}
	}
	return b.String()
}

const (
	// lookahead is the number of bytes behind a piece's end from which on the
	// end is the same, however the text goes on or ends: a contraction has up
	// to three bytes, and two characters tell the last of white space.
	lookahead = 8
	// longPiece is the length in bytes from which on the prefixes of a piece
	// are counted from the tokens of the whole piece.
	longPiece = 64
)

// boundary is where a piece begins and the number of tokens before it.
type boundary struct{ at, tokens int }

// boundaries are those of the last pieces.
type boundaries struct {
	ring [16]boundary
	n    int
}

func (m *boundaries) add(at, tokens int) {
	m.ring[m.n%len(m.ring)] = boundary{at, tokens}
	m.n++
}

// crossing returns the last of them.
func (m *boundaries) crossing() boundary { return m.ring[(m.n-1)%len(m.ring)] }

// before returns the last of them that is lookahead before end, so that all
// pieces before it are those of a text that ends there too, or the beginning
// of the text. If nothing is known of the pattern it is the first of them.
func (m *boundaries) before(end int, known bool) boundary {
	first := max(0, m.n-len(m.ring))
	from := m.n - 1
	if !known {
		from = first
	}
	for i := from; i >= first; i-- {
		if b := m.ring[i%len(m.ring)]; b.at+lookahead <= end {
			return b
		}
	}
	return boundary{}
}

// fit returns the length of the longest prefix of a text without added tokens
// that has at most n tokens. used is the count of the whole text, if it fits.
func (e *Encoding) fit(s *scratch, text string, n int) (cut, used int) {
	last := &s.last
	last.n = 0
	total := 0
	p := e.pieces(s, text)
	for begin := 0; begin < len(text); {
		last.add(begin, total)
		end := p.next()
		total += e.vocabulary.countPiece(s, text, begin, end)
		if total > n {
			return e.search(s, text, n, end), 0
		}
		begin = end
	}
	return len(text), total
}

// prefixes counts the prefixes of one text from the beginnings of its last
// pieces.
type prefixes struct {
	e     *Encoding
	s     *scratch
	text  string
	n     int   // more tokens than these need not be counted
	begin int   // of the piece that crosses n
	long  *long // what is known of that piece, if it is long
}

// search returns what fit does for a text whose first piece that does not fit
// is the last of the boundaries and ends at end.
func (e *Encoding) search(s *scratch, text string, n, end int) int {
	crossing := s.last.crossing()
	p := prefixes{e: e, s: s, text: text, n: n, begin: crossing.at}
	high := min(end+lookahead, len(text)) - 1 // further on, the piece is certain and nothing fits
	if end-p.begin <= longPiece {
		return p.longest(0, high)
	}
	v, l := e.vocabulary, &s.long
	v.encodeLong(s, text[p.begin:end], n-crossing.tokens)
	p.long = l
	best := 0
	for at := l.end + 1; at < len(l.piece) && at <= l.far; at++ {
		if l.count(v, s, at) < l.n {
			l.far = max(l.far, at+v.reach(l.piece[at:]))
		}
		if p.count(p.begin+at) <= n {
			best = p.begin + at
		}
	}
	if l.far >= len(l.piece) {
		best = max(best, p.longest(end-1, high))
	}
	if best == 0 {
		best = p.longest(0, p.begin+l.end)
	}
	return best
}

// longest returns the greatest length of a prefix that fits, above low and up
// to high, or 0.
func (p *prefixes) longest(low, high int) int {
	for at := high; at > low; at-- {
		if p.count(at) <= p.n {
			return at
		}
	}
	return 0
}

// count returns the number of tokens of the prefix of length end, or some
// number above p.n if there are more or the prefix does not end between
// characters.
func (p *prefixes) count(end int) int {
	if !utf8.RuneStart(p.text[end]) {
		return p.n + 1
	}
	from := p.s.last.before(end, p.e.scan != nil)
	total := from.tokens
	rest := p.text[from.at:end]
	all := p.e.pieces(p.s, rest)
	for i := 0; i < len(rest) && total <= p.n; i = all.at {
		next := all.next()
		if p.long != nil && from.at+i == p.begin && next-i <= len(p.long.piece) {
			total += p.long.count(p.e.vocabulary, p.s, next-i)
		} else {
			total += p.e.vocabulary.countPiece(p.s, rest, i, next)
		}
	}
	return total
}

// long is a long piece and its tokens, of which the first n fit.
type long struct {
	piece  string
	tokens []token
	n      int
	end    int // of the first n tokens
	far    int // no prefix above this length has at most n tokens

	counted, is int // the prefix that was counted last, and its number of tokens
}

// encodeLong makes s.long of a piece that has more than n tokens.
func (v *vocabulary) encodeLong(s *scratch, piece string, n int) {
	s.long = long{piece: piece, tokens: append(s.long.tokens[:0], v.merge(s, piece)...), n: n}
	l := &s.long
	for _, t := range l.tokens[:n] {
		l.end += len(v.text(t))
	}
	// The last token of a prefix with n tokens begins where one with fewer
	// ends. Which ones before end these are is not looked at.
	for at := max(0, l.end-v.words.most); at < l.end; at++ {
		l.far = max(l.far, at+v.reach(piece[at:]))
	}
}

// reach returns the most bytes that a token at the beginning of a text has, by
// the first two bytes of it.
func (v *vocabulary) reach(text string) int {
	if len(text) < 2 {
		return 1
	}
	return int(v.most[uint(text[0])<<8|uint(text[1])])
}

// count returns the number of tokens of the first end bytes of the piece.
//
// The first tokens of the piece are the encoding of what they cover. What
// follows from some token on is encoded by itself: if its first token is again
// the piece's, then all before is the piece's too, for the reason that
// mergeLong gives.
func (l *long) count(v *vocabulary, s *scratch, end int) int {
	if l.counted != end {
		l.counted, l.is = end, l.countFrom(v, s, end)
	}
	return l.is
}

func (l *long) countFrom(v *vocabulary, s *scratch, end int) int {
	if v.words.find(l.piece[:end]) != none {
		return 1
	}
	for back := 8; ; back *= 4 {
		from, begin := max(0, l.n-back), l.end
		for _, t := range l.tokens[from:l.n] {
			begin -= len(v.text(t))
		}
		if begin >= end && from > 0 {
			continue
		}
		tokens := v.merge(s, l.piece[begin:end])
		if from == 0 || tokens[0] == l.tokens[from] {
			return from + len(tokens)
		}
	}
}

package tokenize

import (
	"strings"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// Truncate returns the longest prefix of text that ends between characters and
// has at most n tokens. It never splits an added token. If text is not valid
// UTF-8 or is not normalized as the encoding needs it, the result is a prefix
// of the converted text, unless the whole text fits.
//
// The prefix is exactly the longest: Count of the prefix is at most n, and it
// is more for every longer prefix. Counts do not always grow with the text:
// "internationa" has more tokens than "international". In one case Truncate may
// return a shorter prefix, to limit its time: a piece is longer than longPiece
// bytes, and its prefixes would be split into several pieces (white space with
// line ends, capitals among letters without case). In such a piece, Truncate
// tries only prefixes near the first n tokens.
func (e *Encoding) Truncate(text string, n int) string {
	if n <= 0 {
		return ""
	}
	if len(text) <= n && !e.nfc && !e.spaceFirst && utf8.ValidString(text) {
		return text // every token has at least one byte
	}
	s := e.getScratch()
	defer e.putScratch(s)
	seen := toValidUTF8(text)
	if e.nfc && !norm.NFC.IsNormalString(seen) {
		seen = e.normalized(s, seen)
	}
	left := n
	for part := range e.splitAtAddedTokens(s, seen) {
		if part.id >= 0 {
			if left == 0 {
				return seen[:part.begin]
			}
			left--
			continue
		}
		cut, used := e.fitPrefix(s, part.text, left)
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

// normalized returns a text in which the parts between added tokens are
// normalized.
func (e *Encoding) normalized(s *scratch, text string) string {
	var b strings.Builder
	for part := range e.splitAtAddedTokens(s, text) {
		if part.id >= 0 {
			b.WriteString(text[part.begin:part.end])
		} else {
			b.WriteString(normalizeNFC(text[part.begin:part.end]))
		}
	}
	return b.String()
}

const (
	// lookahead is a number of bytes. If so many bytes follow a piece, its end does not
	// depend on the text after them: a contraction has up to three bytes, and two
	// characters decide where white space ends.
	lookahead = 8
	// longPiece is a length in bytes. For a longer piece, the tokens of the whole piece
	// are used to count its prefixes.
	longPiece = 64
)

// boundary is the position where a piece begins, and the number of tokens before it.
type boundary struct{ at, tokens int }

// boundaries has the boundaries of the last 16 pieces.
type boundaries struct {
	ring [16]boundary
	n    int
}

func (m *boundaries) add(at, tokens int) {
	m.ring[m.n%len(m.ring)] = boundary{at, tokens}
	m.n++
}

// last returns the boundary that was added last.
func (m *boundaries) last() boundary { return m.ring[(m.n-1)%len(m.ring)] }

// lastBefore returns the last boundary that is at least lookahead bytes before end, or the
// beginning of the text. A text that ends at end has the same pieces before this
// boundary. If known is false, the pattern has no scanner, and lastBefore returns the
// oldest such boundary.
func (m *boundaries) lastBefore(end int, known bool) boundary {
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

// fitPrefix returns the length of the longest prefix of a text without added tokens
// that has at most n tokens. used is the number of tokens of the whole text, if the
// whole text fits.
func (e *Encoding) fitPrefix(s *scratch, text string, n int) (cut, used int) {
	last := &s.last
	last.n = 0
	total := 0
	p := e.iteratePieces(s, text)
	for begin := 0; begin < len(text); {
		last.add(begin, total)
		end := p.next()
		total += e.vocabulary.countPiece(s, text, begin, end)
		if total > n {
			return e.searchPrefix(s, text, n, end), 0
		}
		begin = end
	}
	return len(text), total
}

// prefixCounter counts the tokens of prefixes of a text. It starts at the boundaries of the
// last pieces and not at the beginning of the text.
type prefixCounter struct {
	e     *Encoding
	s     *scratch
	text  string
	n     int              // largest number of tokens; counts above it need not be exact
	begin int              // beginning of the piece with which the count exceeds n
	long  *longPieceTokens // the tokens of that piece if it is long; otherwise nil
}

// searchPrefix returns the length that fitPrefix returns. The first piece that does not fit
// begins at the last boundary and ends at end.
func (e *Encoding) searchPrefix(s *scratch, text string, n, end int) int {
	crossing := s.last.last()
	p := prefixCounter{e: e, s: s, text: text, n: n, begin: crossing.at}
	high := min(end+lookahead, len(text)) - 1 // a longer prefix has the same pieces up to end, so it does not fit
	if end-p.begin <= longPiece {
		return p.longestPrefix(0, high)
	}
	v, l := e.vocabulary, &s.long
	v.encodeLong(s, text[p.begin:end], n-crossing.tokens)
	p.long = l
	best := 0
	for at := l.end + 1; at < len(l.piece) && at <= l.far; at++ {
		if l.count(v, s, at) < l.n {
			l.far = max(l.far, at+v.maxTokenAt(l.piece[at:]))
		}
		if p.count(p.begin+at) <= n {
			best = p.begin + at
		}
	}
	if l.far >= len(l.piece) {
		best = max(best, p.longestPrefix(end-1, high))
	}
	if best == 0 {
		best = p.longestPrefix(0, p.begin+l.end)
	}
	return best
}

// longestPrefix returns the length of the longest prefix that fits, above low and at most
// high, or 0.
func (p *prefixCounter) longestPrefix(low, high int) int {
	for at := high; at > low; at-- {
		if p.count(at) <= p.n {
			return at
		}
	}
	return 0
}

// count returns the number of tokens of the prefix of end bytes. If the prefix has more
// than p.n tokens, or splits a character, count returns some number above p.n.
func (p *prefixCounter) count(end int) int {
	if !utf8.RuneStart(p.text[end]) {
		return p.n + 1
	}
	from := p.s.last.lastBefore(end, p.e.scan != nil)
	total := from.tokens
	rest := p.text[from.at:end]
	all := p.e.iteratePieces(p.s, rest)
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

// longPieceTokens is a long piece and its tokens. Its first n tokens fit into the limit.
type longPieceTokens struct {
	piece  string
	tokens []token
	n      int
	end    int // byte at which the first n tokens end
	far    int // every prefix longer than far bytes has more than n tokens

	counted, countedTokens int // length of the prefix that was counted last, and its number of tokens
}

// encodeLong stores a piece that has more than n tokens, and its tokens, in s.long.
func (v *vocabulary) encodeLong(s *scratch, piece string, n int) {
	s.long = longPieceTokens{piece: piece, tokens: append(s.long.tokens[:0], v.merge(s, piece)...), n: n}
	l := &s.long
	for _, t := range l.tokens[:n] {
		l.end += len(v.text(t))
	}
	// The last token of a prefix with n tokens begins where a prefix with fewer
	// tokens ends. Try all positions before end, without checking which have
	// fewer tokens.
	for at := max(0, l.end-v.words.maxLength); at < l.end; at++ {
		l.far = max(l.far, at+v.maxTokenAt(piece[at:]))
	}
}

// maxTokenAt returns the length of the longest token with the same first two bytes as
// text; 1 if text is shorter.
func (v *vocabulary) maxTokenAt(text string) int {
	if len(text) < 2 {
		return 1
	}
	return int(v.maxLength[uint(text[0])<<8|uint(text[1])])
}

// count returns the number of tokens of the first end bytes of the piece.
//
// The first tokens of the piece are the encoding of the bytes that they cover.
// The bytes after some token are encoded separately. If the first token of this
// encoding is again the piece's token, then all tokens before it are also
// right, for the reason given at mergeLong.
func (l *longPieceTokens) count(v *vocabulary, s *scratch, end int) int {
	if l.counted != end {
		l.counted, l.countedTokens = end, l.countFrom(v, s, end)
	}
	return l.countedTokens
}

func (l *longPieceTokens) countFrom(v *vocabulary, s *scratch, end int) int {
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

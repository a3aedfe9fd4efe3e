package tokenize

import (
	"errors"
	"strings"
	"sync"
	"unicode/utf8"
	"unsafe"
)

var (
	// ErrUnknown means that there is no encoding with this name.
	ErrUnknown = errors.New("unknown encoding")
	// ErrFormat means that a file is damaged or is not a vocabulary.
	ErrFormat = errors.New("not a vocabulary")
	// ErrUnsupported means that a vocabulary needs another method than the byte-level
	// byte-pair encoding described in doc.go.
	ErrUnsupported = errors.New("vocabulary not supported")
)

// Encoding turns text into the tokens of a model. It is safe for concurrent
// use.
type Encoding struct {
	name       string
	vocabulary *vocabulary
	scan       *scanner          // set if a single known pattern makes the pieces; otherwise nil
	stages     []pieceSplitter   // the steps that make the pieces if scan is nil
	nfc        bool              // text is normalized to Unicode's form C
	spaceFirst bool              // a space is put before a text that does not begin with one
	added      *addedTokenFinder // tokens that are searched in every text, or nil
	tokens     []addedToken
	special    map[string]int
	pool       *sync.Pool // elements are *scratch
}

func newEncoding(name string, v *vocabulary, stages []pieceSplitter, tokens []addedToken) *Encoding {
	e := &Encoding{
		name: name, vocabulary: v, stages: stages, tokens: tokens,
		special: make(map[string]int),
		pool:    &sync.Pool{New: func() any { return new(scratch) }},
	}
	if len(stages) == 1 {
		e.scan, _ = stages[0].(*scanner)
	}
	var always []addedToken
	for _, t := range tokens {
		if t.special {
			e.special[t.text] = t.id
		} else {
			always = append(always, t)
		}
	}
	e.added = newFinder(always)
	return e
}

// WithSpecials returns the same encoding, except that the names of special
// tokens in a text become these tokens. It is for prompts that a chat template
// made. Never use it for text from users, who could then end their turn and
// speak as the system.
func (e *Encoding) WithSpecials() *Encoding {
	with := *e
	with.added = newFinder(e.tokens)
	return &with
}

// Count returns the number of tokens in a text.
func (e *Encoding) Count(text string) int {
	s := e.getScratch()
	defer e.putScratch(s)
	n := 0
	for part := range e.splitAtAddedTokens(s, toValidUTF8(text)) {
		if part.id >= 0 {
			n++
		} else {
			n += e.count(s, part.text)
		}
	}
	return n
}

// CountBytes is like Count, for a byte slice that must not change during the call.
func (e *Encoding) CountBytes(text []byte) int {
	return e.Count(unsafe.String(unsafe.SliceData(text), len(text)))
}

// Encode appends the IDs of the tokens of a text to dst.
func (e *Encoding) Encode(dst []int, text string) []int {
	s := e.getScratch()
	defer e.putScratch(s)
	for part := range e.splitAtAddedTokens(s, toValidUTF8(text)) {
		if part.id >= 0 {
			dst = append(dst, part.id)
		} else {
			dst = e.encode(s, dst, part.text)
		}
	}
	return dst
}

// count returns the number of tokens in a text without added tokens.
func (e *Encoding) count(s *scratch, text string) int {
	v, n := e.vocabulary, 0
	if e.scan != nil { // the loop below does the same with two more calls and takes ten times as long
		for i := 0; i < len(text); {
			end := e.scan.next(text, i)
			n += v.countPiece(s, text, i, end)
			i = end
		}
		return n
	}
	for p, i := e.iteratePieces(s, text), 0; i < len(text); {
		end := p.next()
		n += v.countPiece(s, text, i, end)
		i = end
	}
	return n
}

func (e *Encoding) encode(s *scratch, dst []int, text string) []int {
	v := e.vocabulary
	for p, i := e.iteratePieces(s, text), 0; i < len(text); {
		end := p.next()
		dst = v.encodePiece(s, dst, text, i, end)
		i = end
	}
	return dst
}

// textPart is an added token or the text between two added tokens.
type textPart struct {
	id         int // ID of the added token, or -1
	text       string
	begin, end int // position in the caller's text
}

// splitAtAddedTokens iterates over the added tokens of a valid text and the texts between them. It
// normalizes the texts and adds the leading space.
func (e *Encoding) splitAtAddedTokens(s *scratch, text string) func(yield func(textPart) bool) {
	return func(yield func(textPart) bool) {
		for at := 0; at < len(text); {
			var found *addedToken
			begin, end := len(text), len(text)
			if e.added != nil {
				found, begin, end = e.added.find(text, at)
			}
			if begin > at && !yield(textPart{-1, e.normalizePart(s, text[at:begin]), at, begin}) {
				return
			}
			if found != nil && !yield(textPart{found.id, "", begin, end}) {
				return
			}
			at = end
		}
	}
}

// normalizePart normalizes a text between added tokens and adds the leading space, if the
// encoding requires this. The result may share the memory of s.
func (e *Encoding) normalizePart(s *scratch, text string) string {
	if e.nfc {
		text = normalizeNFC(text)
	}
	if e.spaceFirst && !strings.HasPrefix(text, " ") {
		s.text = append(append(s.text[:0], ' '), text...)
		text = unsafe.String(unsafe.SliceData(s.text), len(s.text))
	}
	return text
}

// toValidUTF8 returns a text in which U+FFFD replaces every byte that is not part of valid
// UTF-8, as JSON encodes it.
func toValidUTF8(text string) string {
	if utf8.ValidString(text) {
		return text
	}
	return string([]rune(text))
}

func (e *Encoding) getScratch() *scratch { return e.pool.Get().(*scratch) }

func (e *Encoding) putScratch(s *scratch) {
	// Do not keep the large memory of a scratch that encoded one long piece.
	if cap(s.tokens)+cap(s.whole)+cap(s.long.tokens)+cap(s.ends)+cap(s.other)+cap(s.text) < maxKeptScratch {
		s.long.piece = ""
		e.pool.Put(s)
	}
}

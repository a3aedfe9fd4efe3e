package tokenize

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// addedToken is a token that is searched in the text before the text is split into
// pieces.
type addedToken struct {
	text        string
	id          int
	special     bool
	left, right bool // the token includes the white space before it (left) or after it (right)
	singleWord  bool // the token must not be part of a word
}

// addedTokenFinder finds the added tokens in a text: always the first token in the text and, at
// the same position, the longest token, as the tokenizers library does.
type addedTokenFinder struct {
	byText  map[string]*addedToken
	lengths [256][]int           // lengths of the tokens that begin with this byte, longest first
	begins  [1 << 16 / 64]uint64 // set of the pairs of bytes that tokens begin with
	first   string               // the bytes that tokens begin with
}

// newFinder returns an addedTokenFinder for tokens, or nil if there are no tokens.
func newFinder(tokens []addedToken) *addedTokenFinder {
	if len(tokens) == 0 {
		return nil
	}
	f := &addedTokenFinder{byText: make(map[string]*addedToken, len(tokens))}
	for i := range tokens {
		t := &tokens[i]
		f.byText[t.text] = t
		first := t.text[0]
		if lengths := f.lengths[first]; !slices.Contains(lengths, len(t.text)) {
			f.lengths[first] = append(lengths, len(t.text))
		}
		for second := range 256 {
			if len(t.text) == 1 || t.text[1] == byte(second) {
				pair := int(first)<<8 | second
				f.begins[pair/64] |= 1 << (pair % 64)
			}
		}
		if strings.IndexByte(f.first, first) < 0 {
			f.first += string([]byte{first})
		}
	}
	for _, lengths := range f.lengths {
		slices.SortFunc(lengths, func(a, b int) int { return b - a })
	}
	return f
}

// find returns the first added token in s that begins at from or later, with its begin
// and end. t is nil if there is none.
func (f *addedTokenFinder) find(s string, from int) (t *addedToken, begin, end int) {
	for at := from; at < len(s); at++ {
		if len(f.first) == 1 {
			skip := strings.IndexByte(s[at:], f.first[0])
			if skip < 0 {
				break
			}
			at += skip
		}
		if at+1 < len(s) {
			if pair := int(s[at])<<8 | int(s[at+1]); f.begins[pair/64]&(1<<(pair%64)) == 0 {
				continue
			}
		}
		for _, n := range f.lengths[s[at]] {
			if at+n > len(s) {
				continue
			}
			t, ok := f.byText[s[at:at+n]]
			if !ok {
				continue
			}
			begin, end := at, at+n
			if t.singleWord && (endsInWord(s[from:begin]) || beginsWithWord(s[end:])) {
				break // do not try shorter tokens
			}
			if t.left {
				begin = from + len(strings.TrimRightFunc(s[from:begin], unicode.IsSpace))
			}
			if t.right {
				end = len(s) - len(strings.TrimLeftFunc(s[end:], unicode.IsSpace))
			}
			return t, begin, end
		}
	}
	return nil, len(s), len(s)
}

func endsInWord(s string) bool {
	r, _ := utf8.DecodeLastRuneInString(s)
	return s != "" && isWord(r)
}

func beginsWithWord(s string) bool {
	r, _ := utf8.DecodeRuneInString(s)
	return s != "" && isWord(r)
}

// isWord reports whether r is a word character, as \w in regular expressions.
func isWord(r rune) bool {
	c := classes().classOf(r)
	return c&(letter|mark) != 0 || c&number != 0 && !unicode.Is(unicode.No, r) ||
		r == '\u200c' || r == '\u200d' || unicode.In(r, unicode.Pc, unicode.Other_Alphabetic)
}

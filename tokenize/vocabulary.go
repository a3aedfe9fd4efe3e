package tokenize

import (
	"fmt"
	"math"
	"unicode/utf8"
)

// vocabulary has the tables of the tokens and merges of a model. It does not change
// after it was built.
type vocabulary struct {
	words     *wordTable
	pairs     *pairTable
	bytes     []byte   // bytes of all tokens, one token after another
	at        []uint32 // offset of each token in the field bytes; one more entry than tokens
	ids       []int32  // the model's ID of each token; -1 for a byte that the model does not have
	byID      []token  // token by the model's ID, or none
	maxLength []uint16 // length of the longest token with these first two bytes

	characters    []token     // by code point, for characters of two or three bytes: the token that the bytes merge to, or none
	unsafeBorders bytePairSet // pairs of bytes at which a merge joins whole characters with a part of a character
}

// text returns the bytes of a token.
func (v *vocabulary) text(t token) []byte { return v.bytes[v.at[t]:v.at[t+1]] }

// vocabularyEntry is a token in a vocabulary file.
type vocabularyEntry struct {
	text    string
	id      int
	foreign bool // not written as bytes, so no text becomes this token
}

// vocabularyBuilder makes a vocabulary: first the bytes, then the merges in order, then
// the other tokens.
//
// It keeps a single pair for each token, the pair that makes the token. As long
// as no merge crosses the borders of a stretch of text, the merges inside do
// not depend on the text around it. So a stretch that becomes a token is always
// merged in the same way, and its last two tokens are the result of the earlier
// merges of its bytes. Other pairs with the same bytes never become
// neighbours. The order of merges is then the order of the tokens' numbers.
type vocabularyBuilder struct {
	v           *vocabulary
	scratch     scratch
	wholePieces bool // a piece that is a token becomes this token, even if no merges make it
}

// newBuilder returns a builder in which the tokens of the 256 bytes are defined.
// entries are all tokens of the vocabulary. whole is the value of wholePieces.
func newBuilder(entries []vocabularyEntry, whole bool) (*vocabularyBuilder, error) {
	size, short, highest := 256, 256, 0
	if len(entries) > int(none)-256 {
		return nil, fmt.Errorf("%w: %d tokens; at most %d", ErrUnsupported, len(entries), none-256)
	}
	bytes := [256]int{}
	for i := range bytes {
		bytes[i] = -1
	}
	for _, e := range entries {
		switch {
		case e.id < 0 || e.id >= int(none):
			return nil, fmt.Errorf("%w: token %q has the id %d, which is not between 0 and %d", ErrFormat, e.text, e.id, none-1)
		case e.text == "":
			return nil, fmt.Errorf("%w: token %d is empty", ErrFormat, e.id)
		case len(e.text) == 1 && !e.foreign:
			bytes[e.text[0]] = e.id
		}
		size += len(e.text)
		highest = max(highest, e.id)
		if len(e.text) <= shortWord {
			short++
		}
	}
	b := &vocabularyBuilder{wholePieces: whole, v: &vocabulary{
		words:     newWordTable(short),
		pairs:     newPairTable(len(entries)),
		bytes:     make([]byte, 0, size),
		at:        make([]uint32, 1, len(entries)+257),
		ids:       make([]int32, 0, len(entries)+256),
		byID:      make([]token, highest+1),
		maxLength: make([]uint16, 1<<16),

		characters: make([]token, 1<<16),
	}}
	for i := range b.v.characters {
		b.v.characters[i] = none
	}
	for i := range b.v.maxLength {
		b.v.maxLength[i] = 1
	}
	for i := range b.v.byID {
		b.v.byID[i] = none
	}
	for value, id := range bytes {
		// Some bytes do not occur in UTF-8, and not every vocabulary has them.
		if id < 0 && (value < 0xC0 || value > 0xC1 && value < 0xF5) {
			return nil, fmt.Errorf("%w: there is no token for the byte 0x%02X", ErrFormat, value)
		}
		if _, err := b.define(vocabularyEntry{text: string([]byte{byte(value)}), id: id}, true); err != nil {
			return nil, err
		}
	}
	return b, nil
}

// define adds a token with the next number. word is true if a whole piece can be this
// token.
func (b *vocabularyBuilder) define(e vocabularyEntry, word bool) (token, error) {
	v := b.v
	t := token(len(v.at) - 1)
	if e.id >= 0 {
		if v.byID[e.id] != none {
			return none, fmt.Errorf("%w: two tokens, %q and %q, have the id %d", ErrFormat, v.text(v.byID[e.id]), e.text, e.id)
		}
		v.byID[e.id] = t
	}
	if n := len(e.text); n > 1 {
		most := &v.maxLength[int(e.text[0])<<8|int(e.text[1])]
		*most = uint16(min(max(int(*most), n), math.MaxUint16))
	}
	v.bytes = append(v.bytes, e.text...)
	v.at = append(v.at, uint32(len(v.bytes)))
	v.ids = append(v.ids, int32(e.id))
	if word && !v.words.add(e.text, t) {
		return none, fmt.Errorf("%w: token %q appears twice", ErrFormat, e.text)
	}
	return t, nil
}

// splitInTwo returns the two tokens to which the merges so far reduce a token's bytes. ok is
// false if the result is not two tokens.
func (b *vocabularyBuilder) splitInTwo(text string) (left, right token, ok bool) {
	tokens := b.v.merge(&b.scratch, text)
	if len(tokens) != 2 {
		return none, none, false
	}
	return tokens[0], tokens[1], true
}

// defineMerge defines the token e that left and right merge to.
func (b *vocabularyBuilder) defineMerge(left, right token, e vocabularyEntry) error {
	product, err := b.define(e, true)
	if err != nil {
		return err
	}
	b.v.pairs.add(left, right, product)
	at := len(b.v.text(left))
	r, size := utf8.DecodeRuneInString(e.text)
	switch {
	case size > 1 && size == len(e.text) && r < 1<<16:
		b.v.characters[r] = product
	case utf8.RuneStart(e.text[at]) && !utf8.ValidString(e.text):
		b.v.unsafeBorders.add(e.text[at-1], e.text[at])
	}
	return nil
}

// defineUnmerged defines the tokens that no merge makes, and returns the vocabulary.
func (b *vocabularyBuilder) defineUnmerged(rest []vocabularyEntry) (*vocabulary, error) {
	for _, e := range rest {
		if _, err := b.define(e, b.wholePieces && !e.foreign); err != nil {
			return nil, err
		}
	}
	return b.v, nil
}

// fromRanks builds a vocabulary of tiktoken. In tiktoken two tokens merge if their
// concatenation is a token, and the rank, which is the ID, gives the order of the
// merges. entries must be in the order of their IDs.
func fromRanks(entries []vocabularyEntry) (*vocabulary, error) {
	b, err := newBuilder(entries, true)
	if err != nil {
		return nil, err
	}
	var rest []vocabularyEntry
	for _, e := range entries {
		if len(e.text) == 1 {
			continue
		}
		left, right, ok := b.splitInTwo(e.text)
		if !ok {
			rest = append(rest, e)
			continue
		}
		if err := b.defineMerge(left, right, e); err != nil {
			return nil, err
		}
	}
	return b.defineUnmerged(rest)
}

// mergeRule is a line of a list of merges: the model's IDs of both parts and of the
// product.
type mergeRule struct {
	left, right, product int
}

// fromMerges builds a vocabulary from a list of merges, in order.
func fromMerges(entries []vocabularyEntry, rules []mergeRule, ignoreMerges bool) (*vocabulary, error) {
	b, err := newBuilder(entries, ignoreMerges)
	if err != nil {
		return nil, err
	}
	byID := b.v.byID
	texts := make(map[int]string, len(entries))
	for _, e := range entries {
		texts[e.id] = e.text
	}
	var early []mergeRule
	for _, rule := range rules {
		if byID[rule.product] != none {
			continue
		}
		left, right := byID[rule.left], byID[rule.right]
		if left == none || right == none {
			early = append(early, rule)
			continue
		}
		text := texts[rule.product]
		l, r, ok := b.splitInTwo(text)
		if !ok || l != left || r != right {
			continue // another pair makes the token, or none does
		}
		if err := b.defineMerge(left, right, vocabularyEntry{text: text, id: rule.product}); err != nil {
			return nil, err
		}
	}
	for _, rule := range early {
		if byID[rule.product] != none {
			continue
		}
		left, right, ok := b.splitInTwo(texts[rule.product])
		if ok && left == byID[rule.left] && right == byID[rule.right] {
			return nil, fmt.Errorf("%w: the merge to %q comes before the merges that make its parts", ErrUnsupported, texts[rule.product])
		}
	}
	var rest []vocabularyEntry
	for _, e := range entries {
		if byID[e.id] == none {
			rest = append(rest, e)
		}
	}
	return b.defineUnmerged(rest)
}

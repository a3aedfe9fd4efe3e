package tokenize

import (
	"fmt"
	"math"
	"unicode/utf8"
)

// vocabulary is the tables of one set of tokens and merges. It does not change
// once it is built.
type vocabulary struct {
	words *wordTable
	pairs *pairTable
	bytes []byte   // of all tokens, one after another
	at    []uint32 // where each token begins in bytes; one more than there are tokens
	ids   []int32  // the id that the model knows each token by; -1 for a byte that it does not know
	known []token  // by id: the token, or none
	most  []uint16 // length of the longest token that begins with two bytes

	characters []token // by code point, of those with two or three bytes: the token that merges make of it, or none
	ragged     byteSet // the bytes on both sides of where a merge joins characters to make a token with part of one
}

// text returns the bytes of a token.
func (v *vocabulary) text(t token) []byte { return v.bytes[v.at[t]:v.at[t+1]] }

// entry is a token as a file has it.
type entry struct {
	text    string
	id      int
	foreign bool // not written in bytes: no text becomes it
}

// builder makes a vocabulary: first the bytes, then the merges in their order,
// then what is left.
//
// One pair is kept for each token, the one that makes it: as long as no merge
// goes across the borders of a stretch of text, what happens inside does not
// depend on what is around it. So a stretch that becomes a token always goes
// the same way, and the last two tokens on it are those that the merges before
// make of its bytes. Whatever other pairs have the same bytes never meet. The
// order of the merges is then the order of the tokens' numbers.
type builder struct {
	v       *vocabulary
	scratch scratch
	whole   bool // a piece that is a token is taken whole, even if no merges lead to it
}

// newBuilder defines the bytes. entries are all tokens there will be.
func newBuilder(entries []entry, whole bool) (*builder, error) {
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
	b := &builder{whole: whole, v: &vocabulary{
		words: newWordTable(short),
		pairs: newPairTable(len(entries)),
		bytes: make([]byte, 0, size),
		at:    make([]uint32, 1, len(entries)+257),
		ids:   make([]int32, 0, len(entries)+256),
		known: make([]token, highest+1),
		most:  make([]uint16, 1<<16),

		characters: make([]token, 1<<16),
	}}
	for i := range b.v.characters {
		b.v.characters[i] = none
	}
	for i := range b.v.most {
		b.v.most[i] = 1
	}
	for i := range b.v.known {
		b.v.known[i] = none
	}
	for value, id := range bytes {
		// Some bytes are in no UTF-8 text, and not in every vocabulary.
		if id < 0 && (value < 0xC0 || value > 0xC1 && value < 0xF5) {
			return nil, fmt.Errorf("%w: there is no token for the byte 0x%02X", ErrFormat, value)
		}
		if _, err := b.define(entry{text: string([]byte{byte(value)}), id: id}, true); err != nil {
			return nil, err
		}
	}
	return b, nil
}

// define gives a token the next number. word says that a piece can be it.
func (b *builder) define(e entry, word bool) (token, error) {
	v := b.v
	t := token(len(v.at) - 1)
	if e.id >= 0 {
		if v.known[e.id] != none {
			return none, fmt.Errorf("%w: two tokens, %q and %q, have the id %d", ErrFormat, v.text(v.known[e.id]), e.text, e.id)
		}
		v.known[e.id] = t
	}
	if n := len(e.text); n > 1 {
		most := &v.most[int(e.text[0])<<8|int(e.text[1])]
		*most = uint16(min(max(int(*most), n), math.MaxUint16))
	}
	v.bytes = append(v.bytes, e.text...)
	v.at = append(v.at, uint32(len(v.bytes)))
	v.ids = append(v.ids, int32(e.id))
	if word && !v.words.add(e.text, t) {
		return none, fmt.Errorf("%w: token %q is there twice", ErrFormat, e.text)
	}
	return t, nil
}

// parts returns what the merges so far make of a token's bytes; ok says that
// these are two tokens.
func (b *builder) parts(text string) (left, right token, ok bool) {
	tokens := b.v.merge(&b.scratch, text)
	if len(tokens) != 2 {
		return none, none, false
	}
	return tokens[0], tokens[1], true
}

// join defines the token that left and right merge to.
func (b *builder) join(left, right token, e entry) error {
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
		b.v.ragged.add(e.text[at-1], e.text[at])
	}
	return nil
}

// finish defines the tokens that no merge makes.
func (b *builder) finish(rest []entry) (*vocabulary, error) {
	for _, e := range rest {
		if _, err := b.define(e, b.whole && !e.foreign); err != nil {
			return nil, err
		}
	}
	return b.v, nil
}

// fromRanks builds the vocabulary of tiktoken, where the concatenation of two
// tokens merges if it is a token itself, and its rank, which is its id, says
// when. entries are in the order of their ids.
func fromRanks(entries []entry) (*vocabulary, error) {
	b, err := newBuilder(entries, true)
	if err != nil {
		return nil, err
	}
	var rest []entry
	for _, e := range entries {
		if len(e.text) == 1 {
			continue
		}
		left, right, ok := b.parts(e.text)
		if !ok {
			rest = append(rest, e)
			continue
		}
		if err := b.join(left, right, e); err != nil {
			return nil, err
		}
	}
	return b.finish(rest)
}

// mergeRule is one line of a list of merges: the ids of both parts and of what
// they become.
type mergeRule struct {
	left, right, product int
}

// fromMerges builds the vocabulary of a list of merges, the first before the
// others. texts is by id.
func fromMerges(entries []entry, rules []mergeRule, ignoreMerges bool) (*vocabulary, error) {
	b, err := newBuilder(entries, ignoreMerges)
	if err != nil {
		return nil, err
	}
	known := b.v.known
	texts := make(map[int]string, len(entries))
	for _, e := range entries {
		texts[e.id] = e.text
	}
	var early []mergeRule
	for _, rule := range rules {
		if known[rule.product] != none {
			continue
		}
		left, right := known[rule.left], known[rule.right]
		if left == none || right == none {
			early = append(early, rule)
			continue
		}
		text := texts[rule.product]
		l, r, ok := b.parts(text)
		if !ok || l != left || r != right {
			continue // another pair makes it, or none
		}
		if err := b.join(left, right, entry{text: text, id: rule.product}); err != nil {
			return nil, err
		}
	}
	for _, rule := range early {
		if known[rule.product] != none {
			continue
		}
		left, right, ok := b.parts(texts[rule.product])
		if ok && left == known[rule.left] && right == known[rule.right] {
			return nil, fmt.Errorf("%w: the merge to %q comes before the merges that make its parts", ErrUnsupported, texts[rule.product])
		}
	}
	var rest []entry
	for _, e := range entries {
		if known[e.id] == none {
			rest = append(rest, e)
		}
	}
	return b.finish(rest)
}

package tokenize

import (
	"encoding/binary"
	"math/bits"
	"unsafe"
)

// token is the number of a token in this program: 0 to 255 are the bytes, then come the
// products of merges in the order of the merges, then the tokens that no merge makes.
// If two merges are possible, the merge with the smaller product comes first.
type token = uint32

// none means that there is no token. Tokens have tokenBits bits.
const (
	tokenBits = 21
	none      = token(1<<tokenBits - 1)
)

// wordTable maps a whole piece to its token, if the piece is one token. Tokens up to
// shortWord bytes are in an open hash table with 16 bytes each, so that most lookups
// read one cache line. Longer tokens are in a map.
type wordTable struct {
	slots     []shortToken
	long      map[string]token
	maxLength int // length of the longest token
}

const shortWord = 12

// shortToken is a token of at most shortWord bytes. head has the first eight bytes;
// tail has, from the lowest bit, the other four bytes, the length (4 bits) and
// the token.
type shortToken struct {
	head, tail uint64
}

const (
	lengthShift = 32
	tokenShift  = 36
	tailMask    = 1<<tokenShift - 1
)

func newWordTable(short int) *wordTable {
	return &wordTable{slots: make([]shortToken, 2*short+1), long: make(map[string]token)}
}

// hash returns a hash of a key: the 128 bits of a product, folded to 64 bits as in
// wyhash.
func hash(head, tail uint64) uint64 {
	high, low := bits.Mul64(head^0x9E3779B97F4A7C15, tail^0xD6E8FEB86659FD93)
	return high ^ low
}

// slot returns the index in slots at which the search for a key with this hash begins.
func (t *wordTable) slot(hash uint64) uint64 {
	at, _ := bits.Mul64(hash, uint64(len(t.slots)))
	return at
}

// add adds a token to the table. It returns false if the table already has these bytes.
func (t *wordTable) add(bytes string, id token) bool {
	t.maxLength = max(t.maxLength, len(bytes))
	if len(bytes) > shortWord {
		_, twice := t.long[bytes]
		t.long[bytes] = id
		return !twice
	}
	head, tail := shortTokenKey(bytes, 0, len(bytes))
	for at := t.slot(hash(head, tail)); ; {
		switch slot := &t.slots[at]; {
		case slot.tail == 0: // every key has a length above 0
			*slot = shortToken{head, tail | uint64(id)<<tokenShift}
			return true
		case slot.head == head && slot.tail&tailMask == tail:
			return false
		}
		if at++; at == uint64(len(t.slots)) {
			at = 0
		}
	}
}

// find returns the token with exactly this text, or none.
func (t *wordTable) find(text string) token {
	if len(text) <= shortWord {
		head, tail := shortTokenKey(text, 0, len(text))
		return t.findShort(hash(head, tail), head, tail)
	}
	if len(text) <= t.maxLength {
		if id, ok := t.long[text]; ok {
			return id
		}
	}
	return none
}

func (t *wordTable) findShort(hash, head, tail uint64) token {
	for at := t.slot(hash); ; {
		slot := &t.slots[at]
		switch {
		case slot.head == head && slot.tail&tailMask == tail:
			return token(slot.tail >> tokenShift)
		case slot.tail == 0:
			return none
		}
		if at++; at == uint64(len(t.slots)) {
			at = 0
		}
	}
}

// shortTokenKey returns the key of the bytes s[i:end], which must be 1 to shortWord bytes: the
// bytes and their number, in two integers as in shortToken.
func shortTokenKey(s string, i, end int) (head, tail uint64) {
	n := end - i
	if i+16 <= len(s) {
		b := unsafe.Slice(unsafe.StringData(s), len(s))[i : i+16]
		head, tail = binary.LittleEndian.Uint64(b), uint64(binary.LittleEndian.Uint32(b[8:]))
	} else {
		var b [16]byte
		copy(b[:], s[i:end])
		head, tail = binary.LittleEndian.Uint64(b[:]), uint64(binary.LittleEndian.Uint32(b[8:]))
	}
	if n < 8 {
		return head & (1<<(8*uint(n)) - 1), uint64(n) << lengthShift
	}
	return head, tail&(1<<(8*uint(n-8))-1) | uint64(n)<<lengthShift
}

// pieceCache caches short pieces and their numbers of tokens. It is small enough for
// the CPU's fastest cache, and a cached piece with several tokens needs no merges to be
// counted. A slot is a word that also has the number of tokens, in the bits above the
// token. The token is none if the piece has several tokens.
type pieceCache [1 << recentBits]shortToken

const (
	recentBits = 12 // 2^12 slots, 64 KB
	countShift = tokenShift + tokenBits
)

// countPiece returns the number of tokens of the piece text[i:end].
func (v *vocabulary) countPiece(s *scratch, text string, i, end int) int {
	if end-i > shortWord {
		if v.words.find(text[i:end]) != none {
			return 1
		}
		return len(v.merge(s, text[i:end]))
	}
	head, tail := shortTokenKey(text, i, end)
	h := hash(head, tail)
	slot := &s.cache[h%uint64(len(s.cache))]
	if slot.head != head || slot.tail&tailMask != tail {
		n, t := 1, v.words.findShort(h, head, tail)
		if t == none {
			n = len(v.merge(s, text[i:end]))
		}
		*slot = shortToken{head, tail | uint64(t)<<tokenShift | uint64(n)<<countShift}
	}
	return int(slot.tail >> countShift)
}

// encodePiece appends the IDs of the tokens of the piece text[i:end] to dst.
func (v *vocabulary) encodePiece(s *scratch, dst []int, text string, i, end int) []int {
	var t token
	if end-i > shortWord {
		t = v.words.find(text[i:end])
	} else {
		head, tail := shortTokenKey(text, i, end)
		h := hash(head, tail)
		if slot := &s.cache[h%uint64(len(s.cache))]; slot.head == head && slot.tail&tailMask == tail {
			t = token(slot.tail>>tokenShift) & none
		} else if t = v.words.findShort(h, head, tail); t != none {
			*slot = shortToken{head, tail | uint64(t)<<tokenShift | 1<<countShift}
		}
	}
	if t != none {
		return append(dst, int(v.ids[t]))
	}
	for _, t := range v.merge(s, text[i:end]) {
		dst = append(dst, int(v.ids[t]))
	}
	return dst
}

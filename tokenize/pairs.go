package tokenize

// pairTable has the token that two neighbouring tokens merge to. For two bytes it is an
// array. Other pairs are in an open hash table with 8 bytes per pair: left, right and
// product, tokenBits bits each. Most pairs that are searched do not exist; a small
// filter finds this out without reading the table.
type pairTable struct {
	bytes  [1 << 16]token
	slots  []uint64
	shift  uint
	filter [1 << filterBits / 64]uint64 // 256 KB; with 200,000 pairs, one in ten unknown pairs passes
}

const filterBits = 21

const emptyPair = ^uint64(0)

// newPairTable returns an empty table for at most n pairs. With n pairs it is at most
// half full.
func newPairTable(n int) *pairTable {
	t := &pairTable{shift: 64 - 4}
	for 1<<(64-t.shift) < 2*n {
		t.shift--
	}
	t.slots = make([]uint64, 1<<(64-t.shift))
	for i := range t.slots {
		t.slots[i] = emptyPair
	}
	for i := range t.bytes {
		t.bytes[i] = none
	}
	return t
}

// hashPair returns a hash of a pair. The upper bits of the hash are the best ones.
func hashPair(pair uint64) uint64 { return pair * 0x9E3779B97F4A7C15 }

func (t *pairTable) add(left, right, product token) {
	if left < 256 && right < 256 {
		t.bytes[left<<8|right] = product
		return
	}
	pair := uint64(left)<<tokenBits | uint64(right)
	h := hashPair(pair)
	bit := h >> (64 - filterBits)
	t.filter[bit/64] |= 1 << (bit % 64)
	at := h >> t.shift
	for t.slots[at] != emptyPair {
		at = (at + 1) & uint64(len(t.slots)-1)
	}
	t.slots[at] = pair<<tokenBits | uint64(product)
}

// find returns the product of a pair, or none if the pair does not merge.
func (t *pairTable) find(left, right token) token {
	if left|right < 256 {
		return t.bytes[left<<8|right]
	}
	pair := uint64(left)<<tokenBits | uint64(right)
	h := hashPair(pair)
	if bit := h >> (64 - filterBits); t.filter[bit/64]>>(bit%64)&1 == 0 {
		return none
	}
	for at := h >> t.shift; ; at = (at + 1) & uint64(len(t.slots)-1) {
		slot := t.slots[at]
		if slot>>tokenBits == pair {
			return token(slot) & none
		}
		if slot == emptyPair {
			return none
		}
	}
}

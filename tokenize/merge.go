package tokenize

import (
	"slices"
	"unicode/utf8"
)

// scratch is the working memory of one call. An Encoding has a pool of scratches.
type scratch struct {
	tokens     []token  // tokens of the current piece
	products   []token  // product of each position's token with the next token, or none
	next, prev []int32  // linked list of the remaining positions
	heap       []uint64 // pending merges: product<<32 | position
	whole      []token  // tokens of a piece that is longer than window
	cache      pieceCache
	last       boundaries
	long       longPieceTokens // a piece that Truncate cuts
	ends       []int           // ends of a text's pieces, if there is no scanner
	other      []int
	text       []byte // a text with a leading space
}

const (
	// fewUnits is the largest number of units for which a linear search finds the next
	// merge. With more units a heap is faster.
	fewUnits = 96
	// window is how many bytes are merged at once. It limits the memory for a long
	// piece, which is 24 bytes for each byte of the window.
	window = 1024
	// overlapTokens is the number of tokens at the end of a window that are
	// assumed to depend on the text after the window. If more tokens depend on
	// this text, the windows do not match and the window grows.
	overlapTokens = 16
	// maxKeptScratch is the largest size of a scratch that goes back to the pool, in
	// elements of its slices.
	maxKeptScratch = 1 << 16
)

// merge returns the tokens of a piece. The tokens are valid until the next call.
//
// merge follows the rule of byte-pair encoding (Sennrich et al. 2016,
// arXiv:1508.07909): as long as neighbours have a product, the product replaces the
// pair with the smallest product, and among equal products the first pair.
func (v *vocabulary) merge(s *scratch, piece string) []token {
	if len(piece) > window {
		return v.mergeLong(s, piece, window)
	}
	return v.mergeWindow(s, piece)
}

func (v *vocabulary) mergeWindow(s *scratch, piece string) []token {
	s.tokens, s.products = grow(s.tokens, len(piece)), grow(s.products, len(piece))
	n := v.fillInitialTokens(s.tokens, piece)
	if n <= fewUnits {
		return v.mergeLinear(s, n)
	}
	return v.mergeHeap(s, n)
}

// fillInitialTokens fills in the tokens that merging a piece starts with, and returns their
// number. These are bytes, and characters that will certainly become one token
// before their bytes merge with others.
//
// A character is certain if no merge crosses its borders before its own bytes
// are merged.
// The first merge across a border joins the token that ends there with the
// token that begins there. If the product begins and ends with whole
// characters, both tokens do too. All other products are recorded in
// unsafeBorders. It does not matter that the character is merged early: all
// merges of the character come later anyway.
func (v *vocabulary) fillInitialTokens(tokens []token, piece string) int {
	n := 0
	for i := 0; i < len(piece); {
		c := piece[i]
		if c < 0x80 {
			tokens[n] = token(c)
			n++
			i++
			continue
		}
		r, size := utf8.DecodeRuneInString(piece[i:])
		t := none
		if size == 2 || size == 3 {
			t = v.characters[r]
		}
		end := i + size
		if t != none && (i == 0 || !v.unsafeBorders.has(piece[i-1], c)) &&
			(end == len(piece) || utf8.RuneStart(piece[end]) && !v.unsafeBorders.has(piece[end-1], piece[end])) {
			tokens[n] = t
			n++
		} else {
			for ; i < end; i++ {
				tokens[n] = token(piece[i])
				n++
			}
		}
		i = end
	}
	return n
}

// bytePairSet is a set of pairs of bytes, as one bit per pair.
type bytePairSet [1 << 16 / 64]uint64

func (b *bytePairSet) has(first, second byte) bool {
	return b[uint(first)<<2|uint(second)>>6]>>(second&63)&1 != 0
}

func (b *bytePairSet) add(first, second byte) {
	b[uint(first)<<2|uint(second)>>6] |= 1 << (second & 63)
}

// mergeLinear merges the first n units of s.tokens, and returns the tokens. Its time is
// quadratic in n.
func (v *vocabulary) mergeLinear(s *scratch, n int) []token {
	tokens, products := s.tokens[:n], s.products[:n]
	products[n-1] = none
	for i := range n - 1 {
		products[i] = v.pairs.find(tokens[i], tokens[i+1])
	}
	for {
		least, at := none, 0
		for i, p := range products {
			if p < least {
				least, at = p, i
			}
		}
		if least == none {
			return tokens
		}
		tokens[at] = least
		n--
		copy(tokens[at+1:], tokens[at+2:])
		copy(products[at:], products[at+1:])
		tokens, products = tokens[:n], products[:n]
		products[at] = none
		if at+1 < n {
			products[at] = v.pairs.find(least, tokens[at+1])
		}
		if at > 0 {
			products[at-1] = v.pairs.find(tokens[at-1], least)
		}
	}
}

// mergeHeap merges the first n units of s.tokens, and returns the tokens. Its time is
// proportional to n log n.
func (v *vocabulary) mergeHeap(s *scratch, n int) []token {
	s.next, s.prev = grow(s.next, n), grow(s.prev, n)
	tokens, products, next, prev := s.tokens[:n], s.products[:n], s.next[:n], s.prev[:n]
	heap := s.heap[:0]
	for i := range n {
		products[i], next[i], prev[i] = none, int32(i+1), int32(i-1)
		if i+1 < n {
			if p := v.pairs.find(tokens[i], tokens[i+1]); p != none {
				products[i] = p
				heap = append(heap, uint64(p)<<32|uint64(i))
			}
		}
	}
	for i := len(heap)/2 - 1; i >= 0; i-- {
		siftDown(heap, i)
	}
	offer := func(at int32) {
		products[at] = none
		if right := next[at]; int(right) < n {
			if p := v.pairs.find(tokens[at], tokens[right]); p != none {
				products[at] = p
				heap = append(heap, uint64(p)<<32|uint64(at))
				siftUp(heap)
			}
		}
	}
	for len(heap) > 0 {
		product, at := token(heap[0]>>32), int32(heap[0]&(1<<32-1))
		last := len(heap) - 1
		heap[0] = heap[last]
		heap = heap[:last]
		siftDown(heap, 0)
		if products[at] != product {
			continue // an outdated entry: one token of the pair has changed
		}
		right := next[at]
		tokens[at], products[right] = product, none
		next[at] = next[right]
		if int(next[at]) < n {
			prev[next[at]] = at
		}
		offer(at)
		if prev[at] >= 0 {
			offer(prev[at])
		}
	}
	s.heap = heap
	left := 0
	for at := 0; at < n; at = int(next[at]) {
		tokens[left] = tokens[at]
		left++
	}
	return tokens[:left]
}

// mergeLong merges a piece in windows of size bytes, so that memory and time
// per byte do not grow with the piece's length.
//
// It uses a property of byte-pair encoding: a sequence of tokens is the
// encoding of its bytes if and only if every two neighbours are the encoding of
// their bytes (shown for the same purpose in the crate bpe of
// github.com/github/rust-gems). A window begins with a token of the window
// before. If it encodes to the same token there, the two encodings joined at
// this token have only correct neighbours, so they are the encoding.
func (v *vocabulary) mergeLong(s *scratch, piece string, size int) []token {
	s.whole = s.whole[:0]
	for begin := 0; ; {
		end := min(begin+size, len(piece))
		tokens := v.mergeWindow(s, piece[begin:end])
		joined := len(s.whole) == 0
		if !joined && s.whole[len(s.whole)-1] == tokens[0] {
			s.whole = s.whole[:len(s.whole)-1]
			joined = true
		}
		if joined && end == len(piece) {
			return append(s.whole, tokens...)
		}
		// The tokens before the cut may differ from the tokens of the piece.
		// The next window begins well before them.
		tokens = tokens[:len(tokens)-min(overlapTokens, len(tokens)/2)]
		if !joined || len(tokens) < 2 {
			size *= 4
			begin, s.whole = 0, s.whole[:0]
			continue
		}
		s.whole = append(s.whole, tokens...)
		for _, t := range tokens[:len(tokens)-1] {
			begin += len(v.text(t))
		}
	}
}

// grow returns a slice with at least n elements, in the memory of s if possible. It may
// drop the old contents.
func grow[T any](s []T, n int) []T {
	if cap(s) >= n {
		return s[:cap(s)]
	}
	return slices.Grow(s[:0], n)[:n]
}

// siftDown moves the element at index i of a heap down to its position.
func siftDown(heap []uint64, i int) {
	if i >= len(heap) {
		return
	}
	moving := heap[i]
	for {
		child := 2*i + 1
		if child >= len(heap) {
			break
		}
		if child+1 < len(heap) && heap[child+1] < heap[child] {
			child++
		}
		if moving <= heap[child] {
			break
		}
		heap[i] = heap[child]
		i = child
	}
	heap[i] = moving
}

// siftUp moves the last element of a heap up to its position.
func siftUp(heap []uint64) {
	i := len(heap) - 1
	moving := heap[i]
	for i > 0 {
		parent := (i - 1) / 2
		if heap[parent] <= moving {
			break
		}
		heap[i] = heap[parent]
		i = parent
	}
	heap[i] = moving
}

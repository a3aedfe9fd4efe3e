package sim

import (
	"bytes"

	"github.com/rowmill/rowmill/engine/sim/batching"
)

// blockHashes returns the chained hashes of the full blocks of a prompt (in the form of
// conversation.prompt), at most limit hashes. A block is hashed by its bytes. A role
// counts as three tokens, which belong to the block of the last of the three.
func blockHashes(prompt []byte, limit int) []uint64 {
	b := hasher{prompt: prompt, hashes: make([]uint64, 0, limit)}
	for at := 0; at < len(prompt); {
		at += bytes.IndexByte(prompt[at:], 0) + 1
		if b.n += messageTokens - 1; b.n >= batching.BlockTokens {
			b.cut(at)
		}
		end := len(prompt)
		if length := bytes.IndexByte(prompt[at:], 0); length >= 0 {
			end = at + length
		}
		b.addContent(at, end)
		at = min(end+1, len(prompt))
		if b.n++; b.n == batching.BlockTokens {
			b.cut(at)
		}
	}
	return b.hashes[:min(limit, len(b.hashes))]
}

// hasher cuts a prompt into blocks.
type hasher struct {
	prompt []byte
	hashes []uint64
	last   uint64 // hash of the prompt up to the present block
	start  int    // first byte of the present block
	n      int    // number of tokens in the present block
}

// cut ends the present block before the byte at end, and stores its hash.
func (b *hasher) cut(end int) {
	b.last = batching.ChainHash(b.last, b.prompt[b.start:end])
	b.hashes = append(b.hashes, b.last)
	b.start = end
	b.n -= batching.BlockTokens
}

// addContent cuts the content of a message into blocks: a full block ends where the next
// token begins.
func (b *hasher) addContent(at, end int) {
	for text := b.prompt[:end]; at < end; b.n++ {
		if b.n == batching.BlockTokens {
			b.cut(at)
		}
		at = endOfToken(text, at)
	}
	if b.n == batching.BlockTokens {
		b.cut(end)
	}
}

package batching

import "math/bits"

// none means that there is no block.
const none int32 = -1

// block is a block of KV cache. It is either used by refs requests, or free: then it is
// in the queue of free blocks, and keeps its content until a request takes it.
type block struct {
	hash       uint64 // hash of the content, if other requests can find the block by the hash; otherwise 0
	refs       int32
	prev, next int32 // neighbours in the queue of free blocks
	chain      int32 // the next block in the same bucket of the hash table
}

// blockCache is a KV cache: all blocks, a hash table of the blocks that can be shared,
// and a queue of the free blocks in the order in which they were freed, so
// that the least recently used is taken first. The blocks themselves form the
// hash table: most of the cost of a row is here, and a map of Go's costs three
// times as much.
type blockCache struct {
	all         []block
	buckets     []int32 // first block of each bucket of the hash table; the index is the low bits of the hash
	first, last int32   // first and last block in the queue of free blocks
	free        int     // number of free blocks
}

func newBlockCache(n int) blockCache {
	b := blockCache{all: make([]block, n), buckets: make([]int32, 1<<bits.Len(uint(n))), first: none, last: none}
	for i := range n {
		b.appendFree(int32(i))
	}
	b.clearHashTable()
	return b
}

func (b *blockCache) bucket(hash uint64) *int32 { return &b.buckets[hash&uint64(len(b.buckets)-1)] }

// lookup returns the index of the block with this hash, or none.
func (b *blockCache) lookup(hash uint64) int32 {
	i := *b.bucket(hash)
	for i != none && b.all[i].hash != hash {
		i = b.all[i].chain
	}
	return i
}

// countCached counts how many blocks at the start of a prompt are cached: the first of hashes,
// at most limit, until a hash is missing. free is how many of these blocks no request
// uses.
func (b *blockCache) countCached(hashes []uint64, limit int) (found, free int) {
	for _, hash := range hashes[:min(limit, len(hashes))] {
		i := b.lookup(hash)
		if i == none {
			break
		}
		found++
		if b.all[i].refs == 0 {
			free++
		}
	}
	return found, free
}

// addReference adds a reference to the cached block with this hash, and returns the index of
// the block. lookup must have found the block.
func (b *blockCache) addReference(hash uint64) int32 {
	i := b.lookup(hash)
	if b.all[i].refs == 0 {
		b.unlink(i)
	}
	b.all[i].refs++
	return i
}

// takeFreeBlock takes the free block that was used least recently, and deletes its content from
// the cache. The caller makes sure that there is a free block.
func (b *blockCache) takeFreeBlock() int32 {
	i := b.first
	b.unlink(i)
	k := &b.all[i]
	if k.hash != 0 {
		at := b.bucket(k.hash)
		for *at != i {
			at = &b.all[*at].chain
		}
		*at, k.hash = k.chain, 0
	}
	k.refs = 1
	return i
}

// publish adds a computed block to the hash table, unless another block has the
// same content. Hash 0 means content that is not shared.
func (b *blockCache) publish(i int32, hash uint64) {
	if hash == 0 || b.lookup(hash) != none {
		return
	}
	head := b.bucket(hash)
	b.all[i].hash, b.all[i].chain = hash, *head
	*head = i
}

// clearHashTable removes all blocks from the hash table.
func (b *blockCache) clearHashTable() {
	for i := range b.all {
		b.all[i].hash = 0
	}
	for i := range b.buckets {
		b.buckets[i] = none
	}
}

// releaseReference removes one reference to a block.
func (b *blockCache) releaseReference(i int32) {
	if b.all[i].refs--; b.all[i].refs == 0 {
		b.appendFree(i)
	}
}

func (b *blockCache) appendFree(i int32) {
	b.all[i].prev, b.all[i].next = b.last, none
	if b.last == none {
		b.first = i
	} else {
		b.all[b.last].next = i
	}
	b.last = i
	b.free++
}

func (b *blockCache) unlink(i int32) {
	prev, next := b.all[i].prev, b.all[i].next
	if prev == none {
		b.first = next
	} else {
		b.all[prev].next = next
	}
	if next == none {
		b.last = prev
	} else {
		b.all[next].prev = prev
	}
	b.free--
}

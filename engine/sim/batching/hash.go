package batching

import (
	"encoding/binary"
	"math/bits"
)

// mixHash combines two numbers like the hash function wyhash: it multiplies them and folds
// the result to 64 bits.
func mixHash(a, b uint64) uint64 {
	high, low := bits.Mul64(a, b)
	return high ^ low
}

func uint64At(b []byte) uint64 { return binary.LittleEndian.Uint64(b) }

// ChainHash returns the hash of a prompt up to the end of a block. previousHash is the hash
// up to the start of the block, 0 for the first block. Equal hashes mean equal prompts up
// to here. The hash is never 0. It costs about a nanosecond for 8 bytes.
func ChainHash(previousHash uint64, block []byte) uint64 {
	h := mixHash(previousHash^0x9e3779b97f4a7c15, uint64(len(block))+0xd6e8feb86659fd93)
	for ; len(block) >= 8; block = block[8:] {
		h = mixHash(h^uint64At(block), 0xa0761d6478bd642f)
	}
	var rest [8]byte
	copy(rest[:], block)
	h = mixHash(h^uint64At(rest[:]), 0xe7037ed1a0b428db)
	return max(h, 1)
}

// jitter is the largest share by which a step time differs from the modelled time.
const jitter = 0.05

// jitterOf returns the factor for the time of a step, uniform in 1 ± jitter. It
// hashes seed and step with the finalizer of SplitMix64.
func jitterOf(seed, step int64) float64 {
	z := uint64(seed) + uint64(step)*0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	z ^= z >> 31
	return 1 + jitter*(2*float64(z>>11)/(1<<53)-1)
}

package sim

import (
	"encoding/binary"
	"math"
	"math/bits"
)

// splitMix64 is the SplitMix64 generator (Steele, Lea and Flood 2014): small, fast
// and the same on every machine and version of Go.
type splitMix64 uint64

// Uint64 returns the next 64 bits.
func (r *splitMix64) Uint64() uint64 {
	*r += 0x9e3779b97f4a7c15
	z := uint64(*r)
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// intN returns a number from 0 to n-1.
func (r *splitMix64) intN(n int) int {
	high, _ := bits.Mul64(r.Uint64(), uint64(n))
	return int(high)
}

// uniform returns a number in [0, 1).
func (r *splitMix64) uniform() float64 { return float64(r.Uint64()>>11) / (1 << 53) }

// normal returns a standard normal number (Box and Muller).
func (r *splitMix64) normal() float64 {
	radius := math.Sqrt(-2 * math.Log(1-r.uniform()))
	return radius * math.Cos(2*math.Pi*r.uniform())
}

// fork returns an independent generator for one part of an answer, so that the numbers
// which one part draws do not change another part.
func (r splitMix64) fork(part uint64) splitMix64 {
	mixed := r ^ splitMix64(part*0xd6e8feb86659fd93)
	mixed.Uint64()
	return splitMix64(mixed.Uint64())
}

// digest is the SHA-256 of the inputs that determine an answer.
type digest [32]byte

func (d *digest) random() splitMix64 { return splitMix64(binary.LittleEndian.Uint64(d[:])) }

// key returns 64 bits of the digest, the key of a prompt in maps.
func (d *digest) key() uint64 { return binary.LittleEndian.Uint64(d[8:]) }

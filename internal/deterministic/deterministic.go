// Package deterministic makes what is random in a process follow from a seed, as
// far as the process lets it: ids, nonces and pauses. It is for simulations that
// shall be repeated, one at a time.
package deterministic

import (
	crand "crypto/rand"
	"math/rand/v2"
	"sync"
	"time"
	_ "unsafe" // for go:linkname

	"github.com/google/uuid"

	"github.com/rowmill/rowmill/retry"
)

// lastV7 is when the last time-ordered UUID was made: ids never go back within
// a process, but every simulation begins at the same time.
//
//go:linkname lastV7 github.com/google/uuid.lastV7time
var lastV7 int64

// Seed has everything follow from seed, until restore is called.
func Seed(seed uint64) (restore func()) {
	source := &locked{source: rand.NewChaCha8([32]byte{0: 1, 1: byte(seed), 2: byte(seed >> 8), 3: byte(seed >> 16), 4: byte(seed >> 24), 5: byte(seed >> 32), 6: byte(seed >> 40), 7: byte(seed >> 48), 8: byte(seed >> 56)})}
	reader, chance := crand.Reader, retry.Chance
	crand.Reader = source
	uuid.SetRand(source)
	lastV7 = 0
	// Who asks when gets the same, whoever else asks.
	retry.Chance = func(n int64) int64 { return int64(mix(seed^uint64(time.Now().UnixNano())) % uint64(n)) }
	return func() {
		crand.Reader, retry.Chance = reader, chance
		uuid.SetRand(nil)
	}
}

func mix(x uint64) uint64 {
	for range 2 {
		x ^= x >> 32
		x *= 0xd6e8feb86659fd93
	}
	return x ^ x>>32
}

type locked struct {
	mu     sync.Mutex
	source *rand.ChaCha8
}

func (l *locked) Read(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.source.Read(p)
}

// Package deterministic derives the random values of a process from a seed: ids, nonces
// and pauses. It is for repeatable simulations, one at a time.
package deterministic

import (
	"context"
	crand "crypto/rand"
	"encoding/binary"
	"hash/fnv"
	"io"
	"math/rand/v2"
	"runtime/pprof"
	"sync"
	"time"
	"unsafe" // and for go:linkname

	"github.com/google/uuid"

	"github.com/rowmill/rowmill/internal/retry"
)

// lastV7 is the variable in which the package uuid stores the time of its last
// time-ordered UUID. Seed resets it, because every simulation begins at the same time,
// and IDs of a process never go back.
//
//go:linkname lastV7 github.com/google/uuid.lastV7time
var lastV7 int64

// Seed makes all random values of the process depend on seed, until restore is called.
func Seed(seed uint64) (restore func()) {
	source := &randomSource{seed: seed}
	reader, chance := crand.Reader, retry.Chance
	crand.Reader = source
	uuid.SetRand(source)
	lastV7 = 0
	// All calls at the same time get the same number, so their order does not matter.
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

// RunNamed calls do and marks its goroutine with a name. If several goroutines ask for random
// bytes at the same time, their bytes depend on their names and not on their order.
func RunNamed(name string, do func()) {
	pprof.Do(context.Background(), pprof.Labels("as", name), func(context.Context) {
		label := uintptr(goroutineLabel())
		names.Store(label, name)
		defer names.Delete(label)
		do()
	})
}

var names sync.Map // names of the running calls of RunNamed, by the label of the goroutine

//go:linkname goroutineLabel runtime/pprof.runtime_getProfLabel
func goroutineLabel() unsafe.Pointer

// A randomSource is a reader of random bytes. The bytes depend on the seed, the time, the
// name given to RunNamed, and the number of earlier calls with this name at this time.
type randomSource struct {
	seed uint64

	mu    sync.Mutex
	at    int64
	asked map[string]uint64
}

func (s *randomSource) Read(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := time.Now().UnixNano(); now != s.at {
		s.at, s.asked = now, map[string]uint64{}
	}
	named, _ := names.Load(uintptr(goroutineLabel()))
	name, _ := named.(string)
	s.asked[name]++
	h := fnv.New64a()
	_, _ = io.WriteString(h, name) // never fails
	var key [32]byte
	for i, part := range []uint64{s.seed, uint64(s.at), h.Sum64(), s.asked[name]} {
		binary.LittleEndian.PutUint64(key[8*i:], part)
	}
	return rand.NewChaCha8(key).Read(p)
}

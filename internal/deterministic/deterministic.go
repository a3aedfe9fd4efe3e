// Package deterministic makes what is random in a process follow from a seed, as
// far as the process lets it: ids, nonces and pauses. It is for simulations that
// shall be repeated, one at a time.
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

// lastV7 is when the last time-ordered UUID was made: ids never go back within
// a process, but every simulation begins at the same time.
//
//go:linkname lastV7 github.com/google/uuid.lastV7time
var lastV7 int64

// Seed has everything follow from seed, until restore is called.
func Seed(seed uint64) (restore func()) {
	source := &source{seed: seed}
	reader, chance := crand.Reader, retry.Chance
	crand.Reader = source
	uuid.SetRand(source)
	lastV7 = 0
	// A question at one moment has one answer, whoever asked before.
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

// As runs do as one of several that may ask for random bytes at the same moment: the
// name then tells them apart, in whatever order they ask.
func As(name string, do func()) {
	pprof.Do(context.Background(), pprof.Labels("as", name), func(context.Context) {
		label := uintptr(goroutineLabel())
		names.Store(label, name)
		defer names.Delete(label)
		do()
	})
}

var names sync.Map // of As, by the label of its goroutine

//go:linkname goroutineLabel runtime/pprof.runtime_getProfLabel
func goroutineLabel() unsafe.Pointer

// A source gives bytes that follow from the seed, the moment, the name by As, and how
// many of that name asked at this moment before.
type source struct {
	seed uint64

	mu    sync.Mutex
	at    int64
	asked map[string]uint64
}

func (s *source) Read(p []byte) (int, error) {
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

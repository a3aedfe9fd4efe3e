// Package seed gives tests the seed of their random choices.
package seed

import (
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
)

// ForTest returns the seed for a test, and logs it: ROWMILL_SEED if it is set, a new seed in
// a soak test (ROWMILL_SOAK), and 1 otherwise, so that the same commit makes the same
// choices each time.
func ForTest(t testing.TB) uint64 {
	t.Helper()
	seed := uint64(1)
	if text := os.Getenv("ROWMILL_SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("ROWMILL_SEED: %v", err)
		}
	} else if os.Getenv("ROWMILL_SOAK") != "" {
		seed = rand.Uint64()
	}
	t.Logf("ROWMILL_SEED=%d", seed)
	return seed
}

package cache

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

// TestLRU compares LRU with a list of keys in order of their last use.
func TestLRU(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		r := LRU[int, int]{Most: rapid.IntRange(1, 5).Draw(t, "most")}
		values := map[int]int{}
		var used []int // most recently used first, without duplicates
		touch := func(key int) {
			kept := []int{key}
			for _, k := range used {
				if k != key {
					kept = append(kept, k)
				}
			}
			used = kept
		}
		for i := range rapid.IntRange(0, 60).Draw(t, "steps") {
			key := rapid.IntRange(0, 12).Draw(t, "key")
			if rapid.Bool().Draw(t, "put") {
				r.Put(key, i)
				values[key] = i
				touch(key)
				continue
			}
			place := math.MaxInt // for a key that was never put
			for j, k := range used {
				if k == key {
					place = j
				}
			}
			got, known := r.Get(key)
			switch {
			case known && got != values[key]:
				t.Fatalf("%d is %d, want %d", key, got, values[key])
			case !known && place < r.Most:
				t.Fatalf("%d, the last but %d of at least %d, is not cached", key, place, r.Most)
			case known && place >= 2*r.Most:
				t.Fatalf("%d, the last but %d of at most %d, is cached", key, place, 2*r.Most)
			}
			if known {
				touch(key)
			}
		}
	})
}

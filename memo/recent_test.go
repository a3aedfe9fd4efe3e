package memo

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

// TestRecent compares with a list of keys by when they were put or asked for.
func TestRecent(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		r := Recent[int, int]{Most: rapid.IntRange(1, 5).Draw(t, "most")}
		values := map[int]int{}
		var asked []int // the last one first, each once
		touch := func(key int) {
			kept := []int{key}
			for _, k := range asked {
				if k != key {
					kept = append(kept, k)
				}
			}
			asked = kept
		}
		for i := range rapid.IntRange(0, 60).Draw(t, "steps") {
			key := rapid.IntRange(0, 12).Draw(t, "key")
			if rapid.Bool().Draw(t, "put") {
				r.Put(key, i)
				values[key] = i
				touch(key)
				continue
			}
			place := math.MaxInt // of one that was never put
			for j, k := range asked {
				if k == key {
					place = j
				}
			}
			got, known := r.Get(key)
			switch {
			case known && got != values[key]:
				t.Fatalf("%d is %d, want %d", key, got, values[key])
			case !known && place < r.Most:
				t.Fatalf("%d, the last but %d of at least %d, is forgotten", key, place, r.Most)
			case known && place >= 2*r.Most:
				t.Fatalf("%d, the last but %d of at most %d, is kept", key, place, 2*r.Most)
			}
			if known {
				touch(key)
			}
		}
	})
}

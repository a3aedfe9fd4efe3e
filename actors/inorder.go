package actors

import (
	"iter"
	"maps"
	"slices"
)

// sortedByKey iterates over a map in the order of its keys; keys that are added meanwhile
// are left out. A node then sends its messages in the same order each time, so that a
// simulated run of e2e/virtual can be repeated exactly.
func sortedByKey[V any](m map[string]V) iter.Seq2[string, V] {
	return func(yield func(string, V) bool) {
		for _, key := range slices.Sorted(maps.Keys(m)) {
			if v, ok := m[key]; ok && !yield(key, v) {
				return
			}
		}
	}
}

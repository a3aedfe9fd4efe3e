package cache

import "sync"

// An LRU is a cache of the most recently used values. It always has the Most values that
// were used last, and at most twice as many values.
type LRU[K comparable, V any] struct {
	Most int

	mu             sync.Mutex
	recent, before map[K]V // when recent is full, recent becomes before and a new map becomes recent
}

// Get returns the value of a key if it is cached. Values are shared: do not modify
// them.
func (r *LRU[K, V]) Get(key K) (V, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	value, known := r.recent[key]
	if !known {
		if value, known = r.before[key]; known {
			r.put(key, value)
		}
	}
	return value, known
}

// Put stores the value of a key.
func (r *LRU[K, V]) Put(key K, value V) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.put(key, value)
}

// Drop removes a key and its value.
func (r *LRU[K, V]) Drop(key K) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.recent, key)
	delete(r.before, key)
}

func (r *LRU[K, V]) put(key K, value V) {
	if _, known := r.recent[key]; !known && len(r.recent) >= r.Most {
		r.recent, r.before = nil, r.recent
	}
	if r.recent == nil {
		r.recent = make(map[K]V, r.Most)
	}
	r.recent[key] = value
}

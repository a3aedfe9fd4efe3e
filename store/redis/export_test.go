package redis

import "github.com/rowmill/rowmill/store/kv"

// Engine returns the engine of the store.
func (s *Store) Engine() kv.Engine { return s.engine }

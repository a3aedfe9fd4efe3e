package redis

import "github.com/rowmill/rowmill/store/kv"

// Engine is what keeps the store's tables.
func (s *Store) Engine() kv.Engine { return s.engine }

package redis

import "github.com/rowmill/rowmill/store/kv"

// Backend returns the backend of the store.
func (s *Store) Backend() kv.Backend { return s.backend }

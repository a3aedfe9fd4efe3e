// Package redis is the store of a cluster: the records (store/records) on a Redis server
// (store/kv/redis), which any number of processes share.
package redis

import (
	"context"
	"errors"

	"github.com/rowmill/rowmill/store"
	"github.com/rowmill/rowmill/store/kv/redis"
	"github.com/rowmill/rowmill/store/records"
)

// Config says where the server is and how it is used.
type Config = redis.Config

// Timeouts bound calls.
type Timeouts = redis.Timeouts

var (
	_ store.Store   = (*Store)(nil)
	_ store.Movable = (*Store)(nil)
)

// Store is the records on a server. All methods are safe for concurrent use.
type Store struct {
	*records.Store
	engine    *redis.Engine
	reserving chan struct{} // holds one while a reservation is made
}

// Open connects to the server. It refuses one that would break the contract (see redis.Open of
// store/kv/redis), and records that another version of the program wrote.
func Open(ctx context.Context, config Config) (*Store, error) {
	engine, err := redis.Open(ctx, config)
	if err != nil {
		return nil, err
	}
	s, err := records.Open(ctx, engine, config.Logger)
	if err != nil {
		return nil, errors.Join(err, engine.Close())
	}
	return &Store{s, engine, make(chan struct{}, 1)}, nil
}

// Reserve sets money aside for a job. Those of one process queue up: all that are made for an
// account at once would meet, and all but one of them would have to look again.
func (s *Store) Reserve(ctx context.Context, f store.Fence, usd float64, limit *float64) (store.Record, error) {
	select {
	case <-ctx.Done():
		return store.Record{}, ctx.Err()
	case s.reserving <- struct{}{}:
	}
	defer func() { <-s.reserving }()
	return s.Store.Reserve(ctx, f, usd, limit)
}

// SetURL changes user and password of the connections from now on. See redis.Engine.
func (s *Store) SetURL(url string) error { return s.engine.SetURL(url) }

// Durability says what the server's settings can lose. See redis.Engine.
func (s *Store) Durability(ctx context.Context) ([]string, error) { return s.engine.Durability(ctx) }

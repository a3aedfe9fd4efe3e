// Package redis is the store of a cluster: the records (store/records) on a Redis server
// (store/kv/redis), which any number of processes share.
package redis

import (
	"context"
	"errors"
	"time"

	"github.com/rowmill/rowmill/store"
	"github.com/rowmill/rowmill/store/kv/redis"
	"github.com/rowmill/rowmill/store/records"
)

// Config names the server and how to connect to it.
type Config = redis.Config

// Timeouts limit how long a call waits for the server.
type Timeouts = redis.Timeouts

var (
	_ store.Store        = (*Store)(nil)
	_ store.MovableStore = (*Store)(nil)
)

// Store stores the records on a server. All methods are safe for concurrent use.
type Store struct {
	*records.Store
	backend   *redis.Backend
	reserving chan struct{} // a lock: holds one item while Reserve runs
}

// Open connects to the server. It refuses a server that cannot fulfil the contract (see
// redis.Open of store/kv/redis), and records in a layout that this version of Rowmill
// does not read.
func Open(ctx context.Context, config Config) (*Store, error) {
	backend, err := redis.Open(ctx, config)
	if err != nil {
		return nil, err
	}
	s, err := records.Open(ctx, backend, config.Logger)
	if err != nil {
		return nil, errors.Join(err, backend.Close())
	}
	return &Store{s, backend, make(chan struct{}, 1)}, nil
}

// Reserve sets money aside for a job. The reservations of a process run one after the
// other, because simultaneous reservations of one account conflict and must run again.
func (s *Store) Reserve(ctx context.Context, f store.Fence, usd float64, limit *float64) (store.Record, error) {
	select {
	case <-ctx.Done():
		return store.Record{}, ctx.Err()
	case s.reserving <- struct{}{}:
	}
	defer func() { <-s.reserving }()
	return s.Store.Reserve(ctx, f, usd, limit)
}

// SetURL changes the user and the password for new connections. See redis.Backend.
func (s *Store) SetURL(url string) error { return s.backend.SetURL(url) }

// ListDurabilityRisks reports the data losses that the server's settings allow. See
// redis.Backend.
func (s *Store) ListDurabilityRisks(ctx context.Context) ([]string, error) {
	return s.backend.ListDurabilityRisks(ctx)
}

// FailedAt returns when the server last did not answer. See redis.Backend.
func (s *Store) FailedAt() time.Time { return s.backend.FailedAt() }

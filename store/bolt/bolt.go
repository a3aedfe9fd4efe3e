// Package bolt is the embedded store: the records (store/records) in one file (store/kv/bolt),
// for one process.
package bolt

import (
	"context"
	"errors"
	"fmt"

	"github.com/rowmill/rowmill/store"
	"github.com/rowmill/rowmill/store/kv/bolt"
	"github.com/rowmill/rowmill/store/records"
)

// Config says where the file is and how it is treated.
type Config = bolt.Config

// Volatile makes a store for simulations.
type Volatile = bolt.Volatile

var (
	_ store.Store   = (*Store)(nil)
	_ store.Movable = (*Store)(nil)
)

// Store is the records in one file. All methods are safe for concurrent use.
type Store struct {
	*records.Store
	engine *bolt.Engine
}

// Open opens the file, or makes it. Every session of an earlier process is dead from then on. A
// file that another process holds is refused, and so is one that another version of the program
// wrote whose records this version cannot read.
func Open(ctx context.Context, config Config) (*Store, error) {
	engine, err := bolt.Open(ctx, config)
	if err != nil {
		return nil, err
	}
	s, err := records.Open(ctx, engine, config.Logger)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open record file %s: %w", config.Path, err), engine.Close())
	}
	return &Store{s, engine}, nil
}

// Copy writes the records as they stand at one moment within the call to a new file, which Open
// opens. See bolt.Engine.
func (s *Store) Copy(ctx context.Context, path string) error { return s.engine.Copy(ctx, path) }

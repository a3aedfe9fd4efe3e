// Package bolt is the embedded store: the records (store/records) in one file
// (store/kv/bolt), for one process.
package bolt

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/rowmill/rowmill/internal/durable"
	"github.com/rowmill/rowmill/store"
	"github.com/rowmill/rowmill/store/kv/bolt"
	"github.com/rowmill/rowmill/store/records"
)

// Config names the file and its limits.
type Config = bolt.Config

var (
	_ store.Store        = (*Store)(nil)
	_ store.MovableStore = (*Store)(nil)
)

// Store stores the records in one file. All methods are safe for concurrent use.
type Store struct {
	*records.Store
	backend *bolt.Backend
}

// Open opens the file, or creates it. The file does not contain sessions, so the sessions
// of earlier processes have ended. Open refuses a file that another process has locked,
// and records that this version of Rowmill cannot read. It repairs damaged indexes.
func Open(ctx context.Context, config Config) (*Store, error) {
	backend, err := bolt.Open(ctx, config)
	if err != nil {
		return nil, err
	}
	s, err := records.Open(ctx, backend, config.Logger)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open record file %s: %w", config.Path, err), backend.Close())
	}
	if err := s.RepairIndexes(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("open record file %s: %w", config.Path, err), backend.Close())
	}
	return &Store{s, backend}, nil
}

// Copy writes a consistent copy of all records to a new file, which Open
// can open. See bolt.Backend.
func (s *Store) Copy(ctx context.Context, path string) error { return s.backend.Copy(ctx, path) }

// A LostPage is a page of a table that cannot be read. Its entries are lost.
type LostPage = bolt.LostPage

// ErrNotDamaged means that Salvage found a record file that Open can open.
var ErrNotDamaged = errors.New("it is not damaged")

// Salvage replaces a damaged record file by a file with the records that can be read. The
// damaged file stays, with the suffix .damaged. It returns the lost pages, and the number
// of other records with a wrong checksum. If Salvage is killed, the damaged file is still
// at config.Path. The file must not be open.
func Salvage(ctx context.Context, config Config) (losses []LostPage, damaged int, err error) {
	path, next, old := config.Path, config.Path+".salvaged", config.Path+".damaged"
	found, err := os.Stat(path)
	if err != nil {
		return nil, 0, err
	}
	if kept, err := os.Stat(old); err == nil && !os.SameFile(found, kept) { // a killed Salvage may have left old as a second name of the same file
		return nil, 0, fmt.Errorf("%s exists: move it away first", old)
	}
	switch s, err := Open(ctx, config); {
	case err == nil:
		return nil, 0, errors.Join(fmt.Errorf("record file %s: %w", path, ErrNotDamaged), s.Close())
	case errors.Is(err, bolt.ErrInUse):
		return nil, 0, err
	}
	return bolt.Salvage(ctx, config, next, func() error {
		config.Path = next
		s, err := Open(ctx, config)
		if err == nil {
			err = errors.Join(s.RebuildAfterLoss(ctx), s.Close())
		}
		if err != nil {
			return err
		}
		if err := os.Link(path, old); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
		return errors.Join(os.Rename(next, path), durable.SyncFolder(filepath.Dir(path)))
	})
}

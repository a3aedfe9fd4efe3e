package bolt

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"

	"github.com/rowmill/rowmill/store"
)

// errClosed is returned by every method of a store that was closed.
var errClosed = errors.New("record store is closed")

// Config says where the file is and how it is treated.
type Config struct {
	// Path is the file. Its folder is made when missing. Required.
	Path string

	// LockTimeout is how long Open waits for another process to let go of the
	// file. Default 1 s: long enough for a predecessor that is just exiting,
	// short enough that a mistake is seen at once.
	LockTimeout time.Duration

	// MaxBatch is the most writes one commit takes. Default 512: beyond it
	// the two syncs are a small share of the time, and one commit stays
	// within a few milliseconds.
	MaxBatch int

	// MaxBytes bounds the file; a write that needs more fails as on a full
	// disk. Default 0: unbounded.
	MaxBytes int

	// MapBytes is the address space reserved for the file at start. Default
	// 1 GiB: growing beyond it waits for readers to finish, so it should
	// rarely happen. It costs no memory.
	MapBytes int

	// PingFresh is how young the last successful commit must be for Ping to
	// take it as the answer instead of writing. Default 1 s: probes then add
	// no load to a busy store.
	PingFresh time.Duration

	// Volatile makes a store for simulations, see there. Default: none.
	Volatile *Volatile

	// Clock judges sessions and idempotency keys. Default time.Now.
	Clock func() time.Time

	// Logger gets what an operator should know once. Default: discarded.
	Logger *slog.Logger

	// Metrics registers the commit figures. Default: none.
	Metrics prometheus.Registerer
}

// WithDefaults returns c with the defaults in place of zero values.
func (c Config) WithDefaults() Config {
	if c.LockTimeout == 0 {
		c.LockTimeout = time.Second
	}
	if c.MaxBatch == 0 {
		c.MaxBatch = 512
	}
	if c.MapBytes == 0 {
		c.MapBytes = 1 << 30
	}
	if c.PingFresh == 0 {
		c.PingFresh = time.Second
	}
	if c.Clock == nil {
		c.Clock = time.Now
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

// Validate names the first field that makes no sense.
func (c Config) Validate() error {
	switch {
	case c.Path == "":
		return errors.New("bolt: Path is empty: name the record file")
	case c.LockTimeout < 0:
		return fmt.Errorf("bolt: LockTimeout is %v: it must not be negative", c.LockTimeout)
	case c.MaxBatch < 0:
		return fmt.Errorf("bolt: MaxBatch is %d: it must be at least 1", c.MaxBatch)
	case c.MaxBytes < 0:
		return fmt.Errorf("bolt: MaxBytes is %d: it must not be negative", c.MaxBytes)
	case c.MapBytes < 0:
		return fmt.Errorf("bolt: MapBytes is %d: it must not be negative", c.MapBytes)
	case c.PingFresh < 0:
		return fmt.Errorf("bolt: PingFresh is %v: it must not be negative", c.PingFresh)
	}
	return nil
}

// Volatile is what stores share that stand for one that several nodes reach, and
// that is put back to an earlier state of its file: one that opens after another
// has its sessions, as far as they live. Nothing that they write is synced.
type Volatile struct {
	once     sync.Once
	sessions *sessions
}

func (v *Volatile) share(clock func() time.Time) *sessions {
	v.once.Do(func() { v.sessions = newSessions(clock) })
	return v.sessions
}

var _ store.Store = (*Store)(nil)

// Store is a store in one file. All methods are safe for concurrent use.
type Store struct {
	config   Config
	db       *bbolt.DB
	sessions *sessions
	commits  *committer
	seen     seen
	closing  sync.Once
	closed   error
}

// Open opens the file, or makes it. Every session of an earlier process is
// dead from then on. A file that another process holds is refused.
func Open(ctx context.Context, config Config) (*Store, error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	config = config.WithDefaults()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := makeFolder(filepath.Dir(config.Path)); err != nil {
		return nil, fmt.Errorf("open record file %s: %w", config.Path, err)
	}
	db, err := config.openBolt()
	if err != nil {
		return nil, openError(config, err)
	}
	if err := prepare(db, config.Path); err != nil {
		return nil, errors.Join(fmt.Errorf("open record file %s: %w", config.Path, err), db.Close())
	}
	s := &Store{config: config, db: db, seen: seen{Most: seenJobs}}
	if config.Volatile != nil {
		s.sessions = config.Volatile.share(config.Clock)
	} else {
		s.sessions = newSessions(config.Clock)
	}
	s.commits = startCommitter(db, config)
	return s, nil
}

// openError says what is wrong with the file and what to do about it.
func openError(config Config, err error) error {
	switch {
	case errors.Is(err, berrors.ErrTimeout):
		return fmt.Errorf("record file %s is in use by another process (waited %v): "+
			"stop the other rowmill that uses this data directory, or give this one a directory of its own", config.Path, config.LockTimeout)
	case errors.Is(err, berrors.ErrInvalid), errors.Is(err, berrors.ErrChecksum), errors.Is(err, berrors.ErrVersionMismatch):
		return fmt.Errorf("record file %s is not a record file or is damaged: restore it from a backup, or move it away to start empty: %w", config.Path, err)
	}
	return fmt.Errorf("open record file %s: %w", config.Path, err)
}

// prepare makes the buckets that a file lacks, refuses a file written by a
// newer version, and makes the file's own directory entry durable.
func prepare(db *bbolt.DB, path string) error {
	ready := false
	err := db.View(func(btx *bbolt.Tx) error {
		meta := btx.Bucket(bucketMeta)
		if meta == nil {
			return nil
		}
		version, err := number(meta.Get(keySchema))
		if err != nil {
			return fmt.Errorf("read its schema version: %w", err)
		}
		if version != store.SchemaVersion {
			return fmt.Errorf("its records have schema version %d, this program reads %d: start the version of rowmill that wrote it", version, store.SchemaVersion)
		}
		ready = !slices.ContainsFunc(buckets, func(name []byte) bool { return btx.Bucket(name) == nil })
		return nil
	})
	if err != nil || ready {
		return err
	}
	err = db.Update(func(btx *bbolt.Tx) error {
		for _, name := range buckets {
			if _, err := btx.CreateBucketIfNotExists(name); err != nil {
				return err
			}
		}
		return btx.Bucket(bucketMeta).Put(keySchema, binary.BigEndian.AppendUint64(nil, store.SchemaVersion))
	})
	if err != nil {
		return err
	}
	return syncFolder(filepath.Dir(path))
}

// Close waits for the commit in flight, fails what waits, and lets go of the
// file.
func (s *Store) Close() error {
	s.closing.Do(func() {
		s.commits.stop()
		if err := s.db.Close(); err != nil {
			s.closed = fmt.Errorf("close record file %s: %w", s.config.Path, err)
		}
	})
	return s.closed
}

// Time is the time by Config.Clock: a store in a file has no other.
func (s *Store) Time(ctx context.Context) (time.Time, error) { return s.config.Clock(), ctx.Err() }

// Ping writes to the file unless a commit has just succeeded.
func (s *Store) Ping(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if s.commits.succeededWithin(s.config.PingFresh) {
		return nil
	}
	return s.write(ctx, func(t *tx) error {
		now := s.config.Clock().UnixNano()
		return t.put(bucketMeta, keyPing, binary.BigEndian.AppendUint64(nil, uint64(now)))
	})
}

// view runs a read transaction.
func (s *Store) view(ctx context.Context, read func(*tx) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	err := s.db.View(func(btx *bbolt.Tx) error { return read(&tx{Tx: btx}) })
	if errors.Is(err, berrors.ErrDatabaseNotOpen) {
		return errClosed
	}
	return err
}

// write runs one write in the next commit and returns once it is on disk. run
// may be repeated, so it must set its results only at its end.
func (s *Store) write(ctx context.Context, run func(*tx) error) error {
	w := store.WriterOf(ctx)
	var holds int64
	err := s.commits.do(ctx, func(t *tx) error {
		t.writer = w
		err := run(t)
		holds = t.holds
		return err
	})
	if err == nil {
		w.Ack(holds)
	}
	return err
}

// makeFolder makes a folder and its missing parents, each durable in its own
// parent.
func makeFolder(path string) error {
	if info, err := os.Stat(path); err == nil {
		if !info.IsDir() {
			return fmt.Errorf("%s is not a folder", path)
		}
		return nil
	}
	parent := filepath.Dir(path)
	if parent != path {
		if err := makeFolder(parent); err != nil {
			return err
		}
	}
	if err := os.Mkdir(path, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	return syncFolder(parent)
}

// syncFolder makes the names in a folder durable.
func syncFolder(path string) error {
	folder, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(folder.Sync(), folder.Close())
}

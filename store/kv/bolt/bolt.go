// Package bolt is the backend of the embedded store: one bbolt file for one process. It
// owns the format of that file and combines transactions into commits. It does not know
// the meaning of the tables.
//
// # The file
//
// A table is a bucket of bbolt, and a value is stored as kv.Seal returns it. The bucket
// "engine" holds the number of this format under "form", and the id of the last
// transaction as its sequence. No table has that name.
//
// # Durability
//
// A commit is one bbolt transaction. bbolt syncs it twice: first its pages, then the
// page that refers to them. When a write fails (disk full), nothing of its transaction
// is visible and the store continues. When a sync fails, the content of the disk is
// unknown, and a later sync may wrongly report success. The store then refuses every
// write until the process restarts.
//
// # Free pages
//
// At the start, bbolt finds the free pages by a walk over the file; the list of free
// pages is not written. The removal of old inputs leaves many free pages, 15 for 60 KB,
// and their list would add 8 bytes per page to every commit.
package bolt

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"

	"github.com/rowmill/rowmill/internal/durable"
	"github.com/rowmill/rowmill/store/kv"
)

// Config names the file and its limits.
type Config struct {
	// Path is the file. Its folder is created when missing. Required.
	Path string

	// LockTimeout is how long Open waits for another process to unlock the file.
	// Default 1 s: long enough for an earlier process that is just ending, short enough
	// to report soon that another node uses the file.
	LockTimeout time.Duration

	// MaxBatch is the largest number of writes in one commit. Default 512: at this size
	// the two syncs are already a small share of the time, and a commit takes only a few
	// milliseconds.
	MaxBatch int

	// MaxBytes limits the size of the file. A write that needs more fails as on a full
	// disk. Default 0: no limit.
	MaxBytes int

	// MapBytes is the address space in bytes that is reserved for the file at the start.
	// Default 1 GiB. To grow beyond it, the file must wait for all readers, so this should
	// happen rarely. Reserved address space takes no memory.
	MapBytes int

	// PingFresh is the greatest age of the last successful commit at which Ping
	// succeeds without a write. Default 1 s: probes then add no load to a busy store.
	PingFresh time.Duration

	// Clock decides when sessions and idempotency keys expire. Default time.Now.
	Clock func() time.Time

	// Logger receives messages for operators. Default: none are logged.
	Logger *slog.Logger

	// Metrics registers the metrics of commits. Default: none.
	Metrics prometheus.Registerer
}

// WithDefaults returns c with defaults for the zero fields.
func (c Config) WithDefaults() Config {
	c.LockTimeout = cmp.Or(c.LockTimeout, time.Second)
	c.MaxBatch = cmp.Or(c.MaxBatch, 512)
	c.MapBytes = cmp.Or(c.MapBytes, 1<<30)
	c.PingFresh = cmp.Or(c.PingFresh, time.Second)
	if c.Clock == nil {
		c.Clock = time.Now
	}
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	return c
}

// Validate names the first invalid field.
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

var _ kv.Backend = (*Backend)(nil)

// Backend stores tables in one file. All methods are safe for concurrent use.
type Backend struct {
	*kv.Sessions
	config  Config
	db      *bbolt.DB
	commits *committer
	path    pathCheck
	closing sync.Once
	closed  error
}

// fileFormat is the number of the file format that the package comment describes. Open
// returns an error for a file with another number.
const fileFormat = 2

var (
	bucketForm = []byte("engine")
	keyFormat  = []byte("form")
	keyPing    = []byte("ping")
)

// Open opens the file, or creates it. The file does not contain sessions, so the sessions
// of earlier processes have ended. Open refuses a file that another process has locked.
func Open(ctx context.Context, config Config) (*Backend, error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	config = config.WithDefaults()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := durable.MakeFolder(filepath.Dir(config.Path)); err != nil {
		return nil, fmt.Errorf("open record file %s: %w", config.Path, err)
	}
	db, err := config.openBolt()
	if err != nil {
		return nil, openError(config, err)
	}
	if err := ensureFileFormat(db, config.Path); err != nil {
		return nil, errors.Join(fmt.Errorf("open record file %s: %w", config.Path, err), db.Close())
	}
	sessions := kv.NewSessions(config.Clock)
	e := &Backend{Sessions: sessions, config: config, db: db, commits: startCommitter(db, sessions, config)}
	if e.path.opened, err = os.Stat(config.Path); err != nil {
		return nil, errors.Join(openError(config, err), e.Close())
	}
	return e, nil
}

// ErrInUse means that another process has opened the file.
var ErrInUse = errors.New("is in use by another process")

// openError adds the cause and the remedy to an error of opening the file.
func openError(config Config, err error) error {
	switch {
	case errors.Is(err, berrors.ErrTimeout):
		return fmt.Errorf("record file %s %w (waited %v): "+
			"stop the other rowmill that uses this data directory, or give this one a directory of its own", config.Path, ErrInUse, config.LockTimeout)
	case errors.Is(err, berrors.ErrInvalid), errors.Is(err, berrors.ErrChecksum), errors.Is(err, berrors.ErrVersionMismatch):
		return fmt.Errorf("record file %s is not a record file or is damaged: restore it from a backup, or move it away to start empty: %w", config.Path, err)
	}
	return fmt.Errorf("open record file %s: %w", config.Path, err)
}

// ensureFileFormat writes the format number into a new file and refuses a file of another
// format. It also makes the directory entry of a new file durable.
func ensureFileFormat(db *bbolt.DB, path string) error {
	fresh := true
	err := db.View(func(btx *bbolt.Tx) error {
		if first, _ := btx.Cursor().First(); first == nil {
			return nil
		}
		fresh = false
		bucket := btx.Bucket(bucketForm)
		if bucket == nil {
			return errors.New("another version of rowmill wrote it, in a format that this version does not read: start that version, or move the file away to start without records")
		}
		raw := bucket.Get(keyFormat)
		if len(raw) != 8 {
			return errors.New("its format number is damaged: restore it from a backup")
		}
		if found := binary.BigEndian.Uint64(raw); found != fileFormat {
			return fmt.Errorf("it has format %d, this version of rowmill reads format %d: start the version that wrote it", found, fileFormat)
		}
		return nil
	})
	if err != nil || !fresh {
		return err
	}
	err = db.Update(func(btx *bbolt.Tx) error {
		bucket, err := btx.CreateBucket(bucketForm)
		if err != nil {
			return err
		}
		return bucket.Put(keyFormat, binary.BigEndian.AppendUint64(nil, fileFormat))
	})
	if err != nil {
		return err
	}
	return durable.SyncFolder(filepath.Dir(path))
}

// Close waits for the present commit, fails the queued writes, and unlocks the file.
func (e *Backend) Close() error {
	e.closing.Do(func() {
		e.commits.stop()
		if err := e.db.Close(); err != nil {
			e.closed = fmt.Errorf("close record file %s: %w", e.config.Path, err)
		}
	})
	return e.closed
}

// Time returns the time of Config.Clock.
func (e *Backend) Time(ctx context.Context) (time.Time, error) { return e.config.Clock(), ctx.Err() }

// ConfirmPrimary checks nothing: unlike a Redis replica, no other backend can replace this one.
func (e *Backend) ConfirmPrimary(ctx context.Context) error { return ctx.Err() }

// Ping writes to the file, unless a commit succeeded within PingFresh.
func (e *Backend) Ping(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := e.path.check(e.config.Path); err != nil {
		return err
	}
	if e.commits.succeededWithin(e.config.PingFresh) {
		return nil
	}
	return e.Update(ctx, func(t kv.Tx) error {
		t.Put(kv.Table(bucketForm), keyPing, nil)
		return nil
	})
}

// View runs a read transaction.
func (e *Backend) View(ctx context.Context, read func(kv.Tx) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	err := e.db.View(func(btx *bbolt.Tx) error {
		t := &tx{btx: btx, sessions: e.Sessions, now: e.config.Clock()}
		err := read(t)
		if err == nil && t.HasWrites() {
			err = kv.ErrViewWrites
		}
		return err
	})
	if errors.Is(err, berrors.ErrDatabaseNotOpen) {
		return kv.ErrClosed
	}
	return err
}

// Update runs a transaction in the next commit and returns after the commit is on disk.
func (e *Backend) Update(ctx context.Context, run func(kv.Tx) error) error {
	if err := e.path.check(e.config.Path); err != nil {
		return err
	}
	return e.commits.submit(ctx, run)
}

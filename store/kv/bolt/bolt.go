// Package bolt is the engine of the embedded store: one bbolt file, one process. It owns the
// form of that file and the gathering of transactions into commits. It knows nothing of what
// the records are for.
//
// # The file
//
// A table is a bucket of bbolt; a value is stored as kv.Seal returns it. The bucket "engine" has
// the number of this form under "form", and the id of the last transaction as its sequence: no
// table has that name.
//
// # Durability
//
// A commit is one bbolt transaction, which bbolt flushes twice: its pages, then the page that
// names them. When a write fails (disk full) nothing of its transaction is visible and the
// store goes on. When a flush fails nobody knows what is on disk, and a second flush may lie
// about the first: the store then refuses every write until the process is started again.
//
// # Free pages
//
// A walk over the file at the start finds which pages are free; the list is not written.
// Inputs that went with the data of their jobs leave free pages behind, 15 for 60 KB, and a
// commit that wrote the list of them all would grow by 8 bytes for each.
package bolt

import (
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

	"github.com/rowmill/rowmill/store/kv"
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
	sessions *kv.Sessions
}

func (v *Volatile) share(clock func() time.Time) *kv.Sessions {
	v.once.Do(func() { v.sessions = kv.NewSessions(clock) })
	return v.sessions
}

var _ kv.Engine = (*Engine)(nil)

// Engine keeps tables in one file. All methods are safe for concurrent use.
type Engine struct {
	*kv.Sessions
	config  Config
	db      *bbolt.DB
	commits *committer
	present present
	closing sync.Once
	closed  error
}

// form is the number of what a file looks like, as the package comment has it. A file of
// another form is refused.
const form = 2

var (
	bucketEngine = []byte("engine")
	keyForm      = []byte("form")
	keyPing      = []byte("ping")
)

// Open opens the file, or makes it. Every session of an earlier process is
// dead from then on. A file that another process holds is refused.
func Open(ctx context.Context, config Config) (*Engine, error) {
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
	sessions := kv.NewSessions(config.Clock)
	if config.Volatile != nil {
		sessions = config.Volatile.share(config.Clock)
	}
	e := &Engine{Sessions: sessions, config: config, db: db, commits: startCommitter(db, sessions, config)}
	if config.Volatile == nil {
		if e.present.opened, err = os.Stat(config.Path); err != nil {
			return nil, errors.Join(openError(config, err), e.Close())
		}
	}
	return e, nil
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

// prepare gives a new file its form, refuses a file of another form, and makes the file's own
// directory entry durable.
func prepare(db *bbolt.DB, path string) error {
	fresh := true
	err := db.View(func(btx *bbolt.Tx) error {
		if first, _ := btx.Cursor().First(); first == nil {
			return nil
		}
		fresh = false
		bucket := btx.Bucket(bucketEngine)
		if bucket == nil {
			return errors.New("another version of rowmill wrote it, in a form that this version does not read: start that version, or move the file away to start without records")
		}
		raw := bucket.Get(keyForm)
		if len(raw) != 8 {
			return errors.New("the number of its form is damaged: restore it from a backup")
		}
		if found := binary.BigEndian.Uint64(raw); found != form {
			return fmt.Errorf("it has the form %d, this version of rowmill reads %d: start the version that wrote it", found, form)
		}
		return nil
	})
	if err != nil || !fresh {
		return err
	}
	err = db.Update(func(btx *bbolt.Tx) error {
		bucket, err := btx.CreateBucket(bucketEngine)
		if err != nil {
			return err
		}
		return bucket.Put(keyForm, binary.BigEndian.AppendUint64(nil, form))
	})
	if err != nil {
		return err
	}
	return syncFolder(filepath.Dir(path))
}

// Close waits for the commit in flight, fails what waits, and lets go of the
// file.
func (e *Engine) Close() error {
	e.closing.Do(func() {
		e.commits.stop()
		if err := e.db.Close(); err != nil {
			e.closed = fmt.Errorf("close record file %s: %w", e.config.Path, err)
		}
	})
	return e.closed
}

// Time is the time by Config.Clock: a store in a file has no other.
func (e *Engine) Time(ctx context.Context) (time.Time, error) { return e.config.Clock(), ctx.Err() }

// Confirm has nothing to check: no other engine takes the place of this one.
func (e *Engine) Confirm(ctx context.Context) error { return ctx.Err() }

// Ping writes to the file unless a commit has just succeeded.
func (e *Engine) Ping(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := e.present.check(e.config.Path); err != nil {
		return err
	}
	if e.commits.succeededWithin(e.config.PingFresh) {
		return nil
	}
	return e.Update(ctx, func(t kv.Tx) error {
		t.Put(kv.Table(bucketEngine), keyPing, nil)
		return nil
	})
}

// View runs a read transaction.
func (e *Engine) View(ctx context.Context, read func(kv.Tx) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	err := e.db.View(func(btx *bbolt.Tx) error {
		t := &tx{btx: btx, sessions: e.Sessions, now: e.config.Clock()}
		err := read(t)
		if list, bad := t.writes.All(); err == nil && (len(list) > 0 || bad != nil) {
			err = kv.ErrViewWrites
		}
		return err
	})
	if errors.Is(err, berrors.ErrDatabaseNotOpen) {
		return errClosed
	}
	return err
}

// Update runs one transaction in the next commit and returns once it is on disk.
func (e *Engine) Update(ctx context.Context, run func(kv.Tx) error) error {
	if err := e.present.check(e.config.Path); err != nil {
		return err
	}
	return e.commits.do(ctx, run)
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

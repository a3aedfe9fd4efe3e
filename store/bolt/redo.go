package bolt

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"
	"golang.org/x/sys/unix"

	"github.com/rowmill/rowmill/store/bolt/redo"
)

// openFile opens the record file for bbolt, which comes to it only once it is locked and
// holds what its log has.
func (c Config) openFile(path string, flag int, mode os.FileMode) (*os.File, error) {
	file, err := os.OpenFile(path, flag, mode)
	if err != nil || c.Volatile != nil {
		return file, err
	}
	if err := c.recover(file); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

func (c Config) recover(file *os.File) error {
	if err := c.lock(file); err != nil {
		return err
	}
	begun := time.Now()
	done, err := redo.Recover(file, c.Path)
	switch {
	case err != nil:
		return fmt.Errorf("recover what was written before a crash: %w", err)
	case done.Dropped:
		c.Logger.Warn("dropped the log of the record store, as a version without one has gone on with its file")
	case done.Transactions > 0:
		c.Logger.Info("recovered the record store after a crash", slog.Int("commits", done.Transactions), slog.Duration("took", time.Since(begun)))
	}
	if err := redo.Check(file); err != nil {
		return damaged(err)
	}
	return nil
}

func damaged(reason any) error {
	return fmt.Errorf("it is damaged (%v): restore it from a backup", reason)
}

// openBolt opens a file whose pages are whole. What else is wrong with it makes bbolt
// panic.
func (c Config) openBolt() (db *bbolt.DB, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = damaged(p)
		}
	}()
	return bbolt.Open(c.Path, 0o600, &bbolt.Options{
		OpenFile:        c.openFile,
		Timeout:         c.LockTimeout,
		FreelistType:    bbolt.FreelistMapType,
		NoFreelistSync:  true, // see "Free pages" in doc.go
		InitialMmapSize: c.MapBytes,
		MaxSize:         c.MaxBytes,
		NoSync:          c.Volatile != nil,
		NoGrowSync:      c.Volatile != nil,
	})
}

// lockRetry is the pause between two tries to lock a file.
const lockRetry = 50 * time.Millisecond

// lock takes the lock that bbolt takes; to take it again through the same file does
// nothing.
func (c Config) lock(file *os.File) error {
	for begun := time.Now(); ; time.Sleep(lockRetry) {
		err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		switch {
		case !errors.Is(err, unix.EWOULDBLOCK):
			return err
		case time.Since(begun) > c.LockTimeout:
			return berrors.ErrTimeout
		}
	}
}

// startLog flushes the file and begins its log; nil for a volatile store.
func startLog(db *bbolt.DB, config Config) (*redo.Log, error) {
	if config.Volatile != nil {
		return nil, nil
	}
	if err := db.Sync(); err != nil {
		return nil, err
	}
	return redo.Start(redo.Config{
		Path: config.Path, SegmentBytes: int64(config.LogBytes), Sync: db.Sync,
		Doubt: func(err error) {
			config.Logger.Warn("the log of the record store could not take a commit, whose file was flushed instead", slog.Any("err", err))
		},
	})
}

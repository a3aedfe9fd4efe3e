package bolt

import (
	"errors"
	"fmt"
	"os"
	"time"

	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"
	"golang.org/x/sys/unix"

	"github.com/rowmill/rowmill/store/kv/bolt/pages"
)

// openFile opens the record file for bbolt, once it is locked and its pages are whole.
func (c Config) openFile(path string, flag int, mode os.FileMode) (*os.File, error) {
	file, err := os.OpenFile(path, flag, mode)
	if err != nil || c.Volatile != nil {
		return file, err
	}
	if err := c.lock(file); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	if err := pages.Check(file); err != nil {
		return nil, errors.Join(damaged(err), file.Close())
	}
	return file, nil
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

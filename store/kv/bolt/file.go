package bolt

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"
	"golang.org/x/sys/unix"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/store/kv/bolt/pages"
)

// openFile opens and locks the record file for bbolt and checks its pages.
func (c Config) openFile(path string, flag int, mode os.FileMode) (*os.File, error) {
	file, err := os.OpenFile(path, flag, mode)
	if err != nil {
		return file, err
	}
	if err := c.lock(file); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	if err := pages.Check(file); err != nil {
		return nil, errors.Join(damagedFileError(err), file.Close())
	}
	return file, nil
}

// damagedFileError returns the error for a damaged record file, with the reason and the remedy.
func damagedFileError(reason any) error {
	return fmt.Errorf("it is damaged (%v): restore it from a backup, or keep what can be read with rowmill storage salvage", reason)
}

// openBolt opens the record file. bbolt panics on damage that pages.Check does not
// find.
func (c Config) openBolt() (db *bbolt.DB, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = damagedFileError(p)
		}
	}()
	return bbolt.Open(c.Path, 0o600, &bbolt.Options{
		OpenFile:        c.openFile,
		Timeout:         c.LockTimeout,
		FreelistType:    bbolt.FreelistMapType,
		NoFreelistSync:  true, // see "Free pages" in the package comment
		InitialMmapSize: c.MapBytes,
		MaxSize:         c.MaxBytes,
	})
}

// lockRetry is the pause between two attempts to lock the file.
const lockRetry = 50 * time.Millisecond

// lock locks the record file and waits up to LockTimeout for another process to unlock
// it. bbolt locks the same open file again later, which has no effect.
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

// checkEvery is the time between two checks of the record file's path. A check takes
// microseconds.
const checkEvery = 500 * time.Millisecond

// pathCheck checks that the path of the record file still leads to the open file. Writes to
// a file that was deleted succeed, but are lost when the process ends.
type pathCheck struct {
	opened  os.FileInfo
	checked atomic.Int64 // last time when path led to the open file, ns since 1970
}

func (p *pathCheck) check(path string) error {
	now := time.Now().UnixNano()
	if now-p.checked.Load() < int64(checkEvery) {
		return nil
	}
	if found, err := os.Stat(path); err != nil || !os.SameFile(found, p.opened) {
		return fmt.Errorf("%w: record file %s was deleted or replaced while the node runs: put the file back, or restart the node", rowmill.ErrUnavailable, path)
	}
	p.checked.Store(now)
	return nil
}

package dir

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// lockName is the file that a living process holds locked in its folder.
const lockName = "lock"

// A scratch is one process's folder for what is not finished. The lock on it
// ends with the process, however it ends: so a folder whose lock can be taken
// is a dead one's.
type scratch struct {
	folder string
	lock   *os.File
	count  atomic.Int64
	closed atomic.Bool
}

// openScratch removes the folders of dead processes and makes one for this.
func openScratch(root string, log *slog.Logger) (*scratch, error) {
	if err := os.MkdirAll(root, 0o700); err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(root)
	if err != nil {
		return nil, err
	}
	for _, entry := range entries {
		path := filepath.Join(root, entry.Name())
		left, err := removeDead(path)
		if err != nil {
			return nil, fmt.Errorf("remove what a dead process left in %s: %w", path, err)
		}
		if left > 0 {
			log.Info("removed unfinished objects of a dead process", slog.Int("files", left))
		}
	}
	// Another process that starts now may take this one's folder for a dead
	// one's until it is locked; then there is another.
	for range maxStarts {
		s, err := newScratch(root)
		if s != nil || err != nil {
			return s, err
		}
	}
	return nil, fmt.Errorf("%s: other processes remove what this one makes there", root)
}

// maxStarts is how often a process that starts gives way to others that do.
const maxStarts = 20

// newScratch makes a folder and locks it; nil when another process got it.
func newScratch(root string) (*scratch, error) {
	folder, err := os.MkdirTemp(root, "")
	if err != nil {
		return nil, err
	}
	lock, err := os.OpenFile(filepath.Join(folder, lockName), os.O_CREATE|os.O_RDWR, 0o600)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	err = unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if err == nil {
		if _, err = os.Stat(lock.Name()); err == nil {
			return &scratch{folder: folder, lock: lock}, nil
		}
	}
	if errors.Is(err, unix.EWOULDBLOCK) || errors.Is(err, os.ErrNotExist) {
		return nil, lock.Close()
	}
	return nil, errors.Join(fmt.Errorf("lock %s: %w", lock.Name(), err), lock.Close())
}

// removeDead removes a process's folder unless the process lives, and returns
// how many unfinished files it held.
func removeDead(path string) (left int, err error) {
	lock, err := os.OpenFile(filepath.Join(path, lockName), os.O_RDWR, 0)
	if errors.Is(err, os.ErrNotExist) {
		// It died between making its folder and locking it, or is there now.
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) && !errors.Is(err, unix.ENOTEMPTY) {
			return 0, err
		}
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		if errors.Is(err, unix.EWOULDBLOCK) {
			return 0, nil
		}
		return 0, err
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return 0, err
	}
	return len(entries) - 1, os.RemoveAll(path)
}

// name returns a path in the folder that was never used.
func (s *scratch) name() string {
	return filepath.Join(s.folder, strconv.FormatInt(s.count.Add(1), 36))
}

// close removes the folder, then lets go of the lock.
func (s *scratch) close() error {
	if s.closed.Swap(true) {
		return nil
	}
	return errors.Join(os.RemoveAll(s.folder), s.lock.Close())
}

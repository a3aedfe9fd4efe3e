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

// lockName is the file that a running process keeps locked in its folder.
const lockName = "lock"

// scratch is a process's folder for unfinished files. Its lock is released when
// the process ends for any reason. So if this process can lock a folder, the
// process that made the folder has ended.
type scratch struct {
	folder string
	lock   *os.File
	count  atomic.Int64
	closed atomic.Bool
}

// openScratch removes the folders of processes that have ended, and makes a
// folder for this process.
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
			return nil, fmt.Errorf("remove unfinished files of a dead process in %s: %w", path, err)
		}
		if left > 0 {
			log.Info("removed unfinished objects of a crashed process", slog.Int("files", left))
		}
	}
	// Another process that starts now may find the new folder before this process
	// has locked it, and may remove it like the folder of a crashed process. Then
	// this process makes another folder.
	for range maxFolderTries {
		s, err := newScratch(root)
		if s != nil || err != nil {
			return s, err
		}
	}
	return nil, fmt.Errorf("%s: other starting processes keep removing this process's folder", root)
}

// maxFolderTries is the number of folders that this process makes before it gives up because
// other processes remove the folder each time.
const maxFolderTries = 20

// newScratch makes a folder and locks it. It returns nil if another process locked
// or removed the folder first.
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

// removeDead removes the folder of a process if that process has ended. It returns
// the number of unfinished files that were in the folder.
func removeDead(path string) (left int, err error) {
	lock, err := os.OpenFile(filepath.Join(path, lockName), os.O_RDWR, 0)
	if errors.Is(err, os.ErrNotExist) {
		// The folder's process died before it locked the folder, or is just starting.
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

// newPath returns a path in the folder that was never returned before.
func (s *scratch) newPath() string {
	return filepath.Join(s.folder, strconv.FormatInt(s.count.Add(1), 36))
}

// close removes the folder, then releases the lock.
func (s *scratch) close() error {
	if s.closed.Swap(true) {
		return nil
	}
	return errors.Join(os.RemoveAll(s.folder), s.lock.Close())
}

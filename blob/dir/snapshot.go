package dir

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"
)

// Snapshot is a folder with second names (hard links) of the objects' files. It
// needs disk space only for its folders, until objects are deleted. Objects
// that are deleted or replaced later stay in the snapshot.
type Snapshot struct {
	// Folder contains the folder "objects", with the same layout as in the bucket's
	// directory, and the files that the callback of Bucket.Snapshot wrote. If the
	// process ends before Close, the next Open of the bucket removes Folder.
	Folder string
}

// Close removes the folder of the snapshot.
func (s *Snapshot) Close() error {
	if err := os.RemoveAll(s.Folder); err != nil {
		return fmt.Errorf("remove a snapshot: %w", err)
	}
	return nil
}

// Snapshot makes a folder, calls the function capture with its path, and then walks over all
// objects. The snapshot has every object that existed at any time while capture ran, in the
// version of that time or a later version. It may also have objects that were added
// later. Writers and deletions do not wait for capture or for the walk. When ctx ends, the
// walk stops and Snapshot fails.
func (b *Bucket) Snapshot(ctx context.Context, capture func(folder string) error) (*Snapshot, error) {
	b.linker.snapshotMu.Lock()
	defer b.linker.snapshotMu.Unlock()
	s := &Snapshot{Folder: b.scratch.newPath()}
	err := os.Mkdir(s.Folder, 0o700)
	if err == nil {
		b.linker.startSnapshot(b.objects, filepath.Join(s.Folder, "objects"))
		if err = capture(s.Folder); err == nil {
			err = b.linker.linkAll(ctx)
		}
		err = errors.Join(err, b.linker.endSnapshot())
	}
	if err == nil && b.scratch.closed.Load() {
		err = errors.New("the bucket was closed")
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("make a snapshot of the objects in %s: %w", b.config.Root, err), s.Close())
	}
	return s, nil
}

// linker gives files of objects a second name before they are deleted, while a
// snapshot is being made.
type linker struct {
	snapshotMu sync.Mutex // locked while a snapshot is being made, so that there is only one at a time

	// Each deletion read-locks mu: from before the call of linkBeforeDelete until the name
	// of the file is removed.
	mu       sync.RWMutex
	from, to string // folders of the first and the second names; empty while no snapshot is being made

	relinkMu sync.Mutex // locked while relink moves a second name to a newer file
	failedMu sync.Mutex // guards failed
	failed   error      // the first error of linkBeforeDelete
}

// startSnapshot starts the linker: from now on, linkBeforeDelete gives second names.
// startSnapshot waits for the deletions that are in progress.
func (k *linker) startSnapshot(from, to string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.from, k.to, k.failed = from, to, nil
}

// endSnapshot stops the linker, and returns its first error.
func (k *linker) endSnapshot() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.from, k.to = "", ""
	return k.failed
}

// linkBeforeDelete gives second names to the file at path, or to all files in that folder, if a
// snapshot is being made. An error makes the snapshot fail, not the caller's deletion.
// The caller must have read-locked mu.
func (k *linker) linkBeforeDelete(path string) {
	if k.to == "" {
		return
	}
	if err := k.link(context.Background(), path); err != nil {
		k.failedMu.Lock()
		defer k.failedMu.Unlock()
		if k.failed == nil {
			k.failed = err
		}
	}
}

func (k *linker) linkAll(ctx context.Context) error { return k.link(ctx, k.from) }

// link gives files second names. It ignores missing files: the call that deleted
// them preserved them first.
func (k *linker) link(ctx context.Context, top string) error {
	return filepath.WalkDir(top, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case isMissing(err):
			return nil
		case err != nil:
			return err
		}
		name := k.to + path[len(k.from):]
		if entry.IsDir() {
			return os.MkdirAll(name, 0o700)
		}
		if path == top {
			if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
				return err
			}
		}
		err = linkTo(path, name)
		if errors.Is(err, fs.ErrExist) {
			err = k.relink(path, name)
		}
		switch {
		case isMissing(err):
			return nil
		case errors.Is(err, unix.EPERM), errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.ENOSYS), errors.Is(err, unix.EXDEV), errors.Is(err, unix.EMLINK):
			return fmt.Errorf("%w: this file system cannot give a file a second name (a hard link), which a snapshot of a running node needs; stop the node and copy its data directory", err)
		}
		return err
	})
}

// relink makes name the second name of the file that is at path now.
func (k *linker) relink(path, name string) error {
	k.relinkMu.Lock()
	defer k.relinkMu.Unlock()
	temp := name + "+newer"
	if err := linkTo(path, temp); err != nil {
		return err
	}
	// If temp and name are names of the same file, the rename does nothing and leaves
	// temp.
	return errors.Join(os.Rename(temp, name), removeIfThere(temp))
}

// linkTo gives the file at path a second name. While the file is being replaced,
// link(2) can fail as if the file did not exist; then linkTo tries again.
func linkTo(path, name string) error {
	for {
		err := os.Link(path, name)
		if !isMissing(err) {
			return err
		}
		if _, gone := os.Lstat(path); gone != nil {
			return err
		}
		if _, nowhere := os.Stat(filepath.Dir(name)); nowhere != nil {
			return fmt.Errorf("the folder of the snapshot is missing: %s", filepath.Dir(name))
		}
	}
}

func removeIfThere(path string) error {
	if err := os.Remove(path); !isMissing(err) {
		return err
	}
	return nil
}

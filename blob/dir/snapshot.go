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

// A Snapshot is a folder with second names of the objects' files. It takes no room
// but for its folders, as long as the objects are there too; what is deleted or
// replaced afterwards stays in it.
type Snapshot struct {
	// Folder holds "objects", as the bucket's directory does, and what else was
	// put beside it. The next Open removes it, should the process die.
	Folder string
}

// Close removes the folder.
func (s *Snapshot) Close() error {
	if err := os.RemoveAll(s.Folder); err != nil {
		return fmt.Errorf("remove a snapshot: %w", err)
	}
	return nil
}

// Snapshot calls at with the new folder, and returns one that holds every object
// that was there at any moment within at: as it was then, or as it has been since
// where it was written over. It may hold objects that came later, too. Writers and
// deletions wait neither for at nor for the walk over all objects, which follows.
// ctx ends it.
func (b *Bucket) Snapshot(ctx context.Context, at func(folder string) error) (*Snapshot, error) {
	b.keeper.one.Lock()
	defer b.keeper.one.Unlock()
	s := &Snapshot{Folder: b.scratch.name()}
	err := os.Mkdir(s.Folder, 0o700)
	if err == nil {
		b.keeper.begin(b.objects, filepath.Join(s.Folder, "objects"))
		if err = at(s.Folder); err == nil {
			err = b.keeper.linkAll(ctx)
		}
		err = errors.Join(err, b.keeper.end())
	}
	if err == nil && b.scratch.closed.Load() {
		err = errors.New("the bucket was closed")
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("hold the objects in %s as they are: %w", b.config.Root, err), s.Close())
	}
	return s, nil
}

// A keeper gives files of objects a second name before they are deleted, while a
// snapshot is being made.
type keeper struct {
	one sync.Mutex // one snapshot at a time

	// mu is held for reading by whoever deletes, from before keep until the name is
	// gone.
	mu       sync.RWMutex
	from, to string // of the names; empty while none is made

	newer   sync.Mutex // held while a second name goes to a newer file
	failing sync.Mutex
	failed  error // the first failure of keep
}

// begin has keep work from now on: no name is on its way out when it returns.
func (k *keeper) begin(from, to string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.from, k.to, k.failed = from, to, nil
}

// end has it stop, and says whether it has failed.
func (k *keeper) end() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.from, k.to = "", ""
	return k.failed
}

// keep gives the file at path, or those in the folder there, second names where a
// snapshot is being made. Where that fails it is the snapshot that fails, and not
// what the caller is about to do. mu is held for reading.
func (k *keeper) keep(path string) {
	if k.to == "" {
		return
	}
	if err := k.link(context.Background(), path); err != nil {
		k.failing.Lock()
		defer k.failing.Unlock()
		if k.failed == nil {
			k.failed = err
		}
	}
}

func (k *keeper) linkAll(ctx context.Context) error { return k.link(ctx, k.from) }

// link gives files second names. What is gone was kept by who has deleted it.
func (k *keeper) link(ctx context.Context, top string) error {
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
			err = k.renew(path, name)
		}
		switch {
		case isMissing(err):
			return nil
		case errors.Is(err, unix.EPERM), errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.ENOSYS), errors.Is(err, unix.EXDEV), errors.Is(err, unix.EMLINK):
			return fmt.Errorf("%w: this file system gives a file no second name, which it takes while a node runs; stop the node and copy its data directory", err)
		}
		return err
	})
}

// renew gives a second name to the file that has the first one now.
func (k *keeper) renew(path, name string) error {
	k.newer.Lock()
	defer k.newer.Unlock()
	temp := name + "+newer"
	if err := linkTo(path, temp); err != nil {
		return err
	}
	// Where both are names of one file a rename does nothing, and leaves the first.
	return errors.Join(os.Rename(temp, name), removeIfThere(temp))
}

// linkTo gives the file at path a second name. One that is being replaced meanwhile can
// have none any more, and link(2) says of it that it is not there.
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
			return fmt.Errorf("the folder of the snapshot is away: %s", filepath.Dir(name))
		}
	}
}

func removeIfThere(path string) error {
	if err := os.Remove(path); !isMissing(err) {
		return err
	}
	return nil
}

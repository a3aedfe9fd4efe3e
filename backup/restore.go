package backup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"
)

// unfinished is the folder in a data directory that files are restored into. What
// is in it counts for nobody.
const unfinished = "restoring"

// syncsAtOnce is how many files are synced side by side: a file system makes many
// durable in one step.
const syncsAtOnce = 16

// Restore reads an archive into a data directory, which must be empty or not there.
// Nothing but the folder "restoring" is in it before all was read, checked and made
// durable; the records come last. After an error nothing is left. told is as
// for Read.
func Restore(ctx context.Context, r io.Reader, directory string, told func(h Header, bytes int64)) (h Header, err error) {
	if err := mkdirs(directory); err != nil {
		return h, fmt.Errorf("restore: %w", err)
	}
	if err := checkEmpty(directory); err != nil {
		return h, err
	}
	u := &unpacking{folder: filepath.Join(directory, unfinished)}
	if err := os.Mkdir(u.folder, 0o700); err != nil {
		return h, fmt.Errorf("restore: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(u.folder)) }()
	u.syncs.SetLimit(syncsAtOnce)
	h, err = Read(ctx, r, u.file, told)
	if synced := u.syncs.Wait(); err == nil {
		err = synced
	}
	if err == nil {
		err = u.show(directory)
	}
	if err != nil {
		return h, fmt.Errorf("restore into %s: %w", directory, err)
	}
	return h, nil
}

// checkEmpty refuses a directory that holds anything, and one that its owner could
// not use afterwards.
func checkEmpty(directory string) error {
	entries, err := os.ReadDir(directory)
	if err != nil {
		return fmt.Errorf("restore: %w", err)
	}
	for _, entry := range entries {
		if entry.Name() == unfinished {
			return fmt.Errorf("restore: %s is under way by another process, or one was killed at it: if none is, remove that folder and begin again", filepath.Join(directory, unfinished))
		}
	}
	if len(entries) > 0 {
		return fmt.Errorf("restore: %s is not empty, it holds %s: name a directory that is not there yet, or move away what is in this one", directory, entries[0].Name())
	}
	return nil
}

// An unpacking is a folder that fills.
type unpacking struct {
	folder string
	syncs  errgroup.Group
}

// file writes a file; the sync of it is still under way then.
func (u *unpacking) file(name string, modified time.Time, content io.Reader) error {
	path := filepath.Join(u.folder, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	if _, err := io.Copy(f, content); err != nil {
		return errors.Join(err, f.Close())
	}
	if err := os.Chtimes(path, modified, modified); err != nil {
		return errors.Join(err, f.Close())
	}
	u.syncs.Go(func() error { return errors.Join(f.Sync(), f.Close()) })
	return nil
}

// show makes the folders durable and gives everything its name.
func (u *unpacking) show(directory string) error {
	objects := filepath.Join(u.folder, Objects)
	if err := os.MkdirAll(objects, 0o700); err != nil {
		return err
	}
	err := filepath.WalkDir(objects, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.IsDir() {
			return err
		}
		return syncFolder(path)
	})
	if err != nil {
		return err
	}
	// Somebody may have started a node here meanwhile.
	if entries, err := os.ReadDir(directory); err != nil || len(entries) > 1 {
		return errors.Join(err, fmt.Errorf("something else was put into it meanwhile"))
	}
	for _, name := range []string{Objects, Records} {
		if err := os.Rename(filepath.Join(u.folder, name), filepath.Join(directory, name)); err != nil {
			return err
		}
		if err := syncFolder(directory); err != nil {
			return err
		}
	}
	return nil
}

// mkdirs makes a directory and its missing parents, each durable in its own.
func mkdirs(path string) error {
	path, err := filepath.Abs(path)
	if err != nil {
		return err
	}
	if info, err := os.Stat(path); err == nil {
		if !info.IsDir() {
			return fmt.Errorf("%s is no directory", path)
		}
		return nil
	}
	if err := mkdirs(filepath.Dir(path)); err != nil {
		return err
	}
	if err := os.Mkdir(path, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return syncFolder(filepath.Dir(path))
}

func syncFolder(path string) error {
	folder, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(folder.Sync(), folder.Close())
}

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

	"github.com/rowmill/rowmill/internal/durable"
)

// unfinished is the name of the folder in a data directory that contains the files until
// a restore is complete. Only Restore uses this folder.
const unfinished = "restoring"

// maxSyncs is the number of files that are synced at the same time. Parallel syncs are
// faster, because a file system can make many files durable in one step.
const maxSyncs = 16

// Restore reads an archive into a data directory, which must be empty or missing. Until
// all files are read, checked and durable, they are in the folder "restoring". Then
// Restore moves them to their final names, the records last. After an error it removes
// the folder. progress is called as in Read.
func Restore(ctx context.Context, r io.Reader, directory string, progress func(h Header, bytes int64)) (h Header, err error) {
	if err := durable.MakeFolder(directory); err != nil {
		return h, fmt.Errorf("restore: %w", err)
	}
	if err := checkEmpty(directory); err != nil {
		return h, err
	}
	u := &unpacker{folder: filepath.Join(directory, unfinished)}
	if err := os.Mkdir(u.folder, 0o700); err != nil {
		return h, fmt.Errorf("restore: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(u.folder)) }()
	u.syncs.SetLimit(maxSyncs)
	h, err = Read(ctx, r, u.writeFile, progress)
	if synced := u.syncs.Wait(); err == nil {
		err = synced
	}
	if err == nil {
		err = u.publish(directory)
	}
	if err != nil {
		return h, fmt.Errorf("restore into %s: %w", directory, err)
	}
	return h, nil
}

// checkEmpty refuses a directory that is not empty or cannot be read.
func checkEmpty(directory string) error {
	entries, err := os.ReadDir(directory)
	if err != nil {
		return fmt.Errorf("restore: %w", err)
	}
	for _, entry := range entries {
		if entry.Name() == unfinished {
			return fmt.Errorf("restore: another process is restoring into %s, or was killed during a restore: if none is running, remove that folder and start again", filepath.Join(directory, unfinished))
		}
	}
	if len(entries) > 0 {
		return fmt.Errorf("restore: %s is not empty, it contains %s: name a new directory, or empty this one", directory, entries[0].Name())
	}
	return nil
}

// An unpacker writes the files of an archive into a folder and syncs them.
type unpacker struct {
	folder string
	syncs  errgroup.Group
}

// writeFile writes a file and starts its sync.
func (u *unpacker) writeFile(name string, modified time.Time, content io.Reader) error {
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

// publish makes the folders durable and moves everything to its final name.
func (u *unpacker) publish(directory string) error {
	objects := filepath.Join(u.folder, Objects)
	if err := os.MkdirAll(objects, 0o700); err != nil {
		return err
	}
	err := filepath.WalkDir(objects, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.IsDir() {
			return err
		}
		return durable.SyncFolder(path)
	})
	if err != nil {
		return err
	}
	// A node may have been started here during the restore.
	entries, err := os.ReadDir(directory)
	if err != nil {
		return err
	}
	if len(entries) > 1 {
		return fmt.Errorf("another file appeared in the directory during the restore: make sure that no node uses the directory, and restore into an empty one")
	}
	for _, name := range []string{Objects, Records} {
		if err := os.Rename(filepath.Join(u.folder, name), filepath.Join(directory, name)); err != nil {
			return err
		}
		if err := durable.SyncFolder(directory); err != nil {
			return err
		}
	}
	return nil
}

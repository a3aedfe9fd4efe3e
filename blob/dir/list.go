package dir

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/rowmill/rowmill/blob"
)

// List returns the objects under a prefix in key order. It reads each folder
// once and calls stat once per object.
func (b *Bucket) List(ctx context.Context, prefix string) ([]blob.ObjectInfo, error) {
	if err := blob.CheckPrefixCall(ctx, prefix); err != nil {
		return nil, blob.Wrap(err, "list objects under", prefix)
	}
	top := b.path(prefix)
	var found []blob.ObjectInfo
	err := filepath.WalkDir(top, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case isMissing(err):
			return nil // the file was deleted meanwhile, or the folder never existed
		case err != nil:
			return err
		case !entry.Type().IsRegular() || strings.Contains(entry.Name(), "+"):
			return nil
		case path == top: // a prefix names a folder, never an object
			return nil
		}
		info, err := entry.Info()
		if isMissing(err) {
			return nil
		}
		if err != nil {
			return err
		}
		key := filepath.ToSlash(path[len(b.objects)+1:])
		found = append(found, describe(key, info))
		return nil
	})
	if err != nil {
		return nil, blob.Wrap(err, "list objects under", prefix)
	}
	// The walk visits a/b before a-b, because it sorts the names within a folder.
	slices.SortFunc(found, func(x, y blob.ObjectInfo) int { return strings.Compare(x.Key, y.Key) })
	return found, nil
}

// Folders returns the names of folders directly under a prefix. It reads a
// single folder.
func (b *Bucket) Folders(ctx context.Context, prefix, after string, limit int) ([]string, error) {
	err := blob.CheckPrefixCall(ctx, prefix)
	var entries []fs.DirEntry
	if err == nil {
		entries, err = os.ReadDir(b.path(prefix))
	}
	if err != nil && !isMissing(err) {
		return nil, blob.Wrap(err, "list folders under", prefix)
	}
	var names []string
	for _, entry := range entries {
		if name := entry.Name() + "/"; entry.IsDir() && (after == "" || name > after+"/") {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	names = names[:min(limit, len(names))]
	for i, name := range names {
		names[i] = strings.TrimSuffix(name, "/")
	}
	return names, nil
}

// Delete removes an object.
func (b *Bucket) Delete(ctx context.Context, key string) error {
	err := checkContextAndKey(ctx, key)
	if err == nil {
		err = b.delete(b.path(key))
	}
	return blob.Wrap(err, "delete object", key)
}

func (b *Bucket) delete(path string) error {
	info, err := os.Stat(path)
	if isMissing(err) || err == nil && info.IsDir() {
		return nil
	}
	if err == nil {
		err = b.remove(path, path+typeSuffix)
	}
	if err == nil {
		err = b.folders.sync(filepath.Dir(path))
	}
	if isMissing(err) {
		return nil // another call removed the folder
	}
	return err
}

// remove removes files of objects. If a snapshot is being made, remove first gives the
// files a second name in the snapshot.
func (b *Bucket) remove(paths ...string) error {
	b.linker.mu.RLock()
	defer b.linker.mu.RUnlock()
	for _, path := range paths {
		b.linker.linkBeforeDelete(path)
		if err := removeIfThere(path); err != nil {
			return err
		}
	}
	return nil
}

// DeletePrefix removes the objects under a prefix, all at once, and makes open
// writers under it fail.
func (b *Bucket) DeletePrefix(ctx context.Context, prefix string) error {
	err := cmp.Or(ctx.Err(), blob.CheckPrefix(prefix))
	if err == nil {
		err = b.deletePrefix(prefix)
	}
	return blob.Wrap(err, "delete objects under", prefix)
}

func (b *Bucket) deletePrefix(prefix string) error {
	for _, w := range b.openWriters(prefix) {
		// The writer belongs to another goroutine, so only its file is removed.
		// Its Commit then fails because the file is missing.
		if err := removeIfThere(w.temp); err != nil {
			return err
		}
	}
	path := b.path(prefix)
	info, err := os.Stat(path)
	if isMissing(err) || err == nil && !info.IsDir() {
		return nil
	}
	if err != nil {
		return err
	}
	b.folders.forget(path)
	trash := b.scratch.newPath()
	if err := b.moveToTrash(path, trash); err != nil {
		if isMissing(err) { // another call removed the folder first
			return nil
		}
		return err
	}
	return errors.Join(b.folders.sync(filepath.Dir(path)), os.RemoveAll(trash))
}

// moveToTrash moves the folder of objects at path to trash. If a snapshot is being made,
// moveToTrash first gives the files a second name in the snapshot.
func (b *Bucket) moveToTrash(path, trash string) error {
	b.linker.mu.RLock()
	defer b.linker.mu.RUnlock()
	b.linker.linkBeforeDelete(path)
	return os.Rename(path, trash)
}

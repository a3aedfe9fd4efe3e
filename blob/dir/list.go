package dir

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/rowmill/rowmill/blob"
)

// List returns the objects under a prefix in key order. It reads each folder
// once and calls stat once per object.
func (b *Bucket) List(ctx context.Context, prefix string) ([]blob.Info, error) {
	top := b.objects
	if prefix != "" {
		if err := checkPrefix(prefix); err != nil {
			return nil, fmt.Errorf("list objects: %w", err)
		}
		top = b.path(prefix)
	}
	var found []blob.Info
	err := filepath.WalkDir(top, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case isMissing(err):
			return nil // deleted meanwhile, or never existed
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
		return nil, fmt.Errorf("list objects under %q: %w", prefix, err)
	}
	// The walk sorts within folders, which puts a/b before a-b.
	slices.SortFunc(found, func(x, y blob.Info) int { return strings.Compare(x.Key, y.Key) })
	return found, nil
}

// Folders returns the names of folders directly under a prefix. It reads a
// single folder.
func (b *Bucket) Folders(ctx context.Context, prefix, after string, limit int) ([]string, error) {
	err := ctx.Err()
	if err == nil && prefix != "" {
		err = checkPrefix(prefix)
	}
	var entries []fs.DirEntry
	if err == nil {
		entries, err = os.ReadDir(b.path(prefix))
	}
	if err != nil && !isMissing(err) {
		return nil, fmt.Errorf("list folders under %q: %w", prefix, err)
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
	if err := checkCall(ctx, key); err != nil {
		return fmt.Errorf("delete object: %w", err)
	}
	path := b.path(key)
	info, err := os.Stat(path)
	switch {
	case isMissing(err), err == nil && info.IsDir():
		return nil
	case err != nil:
		return fmt.Errorf("delete object %s: %w", key, err)
	}
	if err := b.remove(path, path+typeSuffix); err != nil {
		return fmt.Errorf("delete object %s: %w", key, err)
	}
	if err := b.folders.sync(filepath.Dir(path)); err != nil && !isMissing(err) {
		return fmt.Errorf("delete object %s: %w", key, err)
	}
	return nil
}

// remove removes files of objects.
func (b *Bucket) remove(paths ...string) error {
	b.linker.mu.RLock()
	defer b.linker.mu.RUnlock()
	for _, path := range paths {
		b.linker.preserve(path)
		if err := os.Remove(path); err != nil && !isMissing(err) {
			return err
		}
	}
	return nil
}

// DeletePrefix removes the objects under a prefix, all at once, and makes open
// writers under it fail.
func (b *Bucket) DeletePrefix(ctx context.Context, prefix string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := checkPrefix(prefix); err != nil {
		return fmt.Errorf("delete objects: %w", err)
	}
	for _, w := range b.unfinished(prefix) {
		// The writer belongs to another goroutine, so only its file is removed.
		// Its Commit then fails because the file is missing.
		if err := os.Remove(w.temp); err != nil && !isMissing(err) {
			return fmt.Errorf("delete objects under %q: %w", prefix, err)
		}
	}
	path := b.path(prefix)
	info, err := os.Stat(path)
	switch {
	case isMissing(err), err == nil && !info.IsDir():
		return nil
	case err != nil:
		return fmt.Errorf("delete objects under %q: %w", prefix, err)
	}
	b.folders.forget(path)
	trash := b.scratch.name()
	if err := b.discard(path, trash); err != nil {
		if isMissing(err) { // another call was faster
			return nil
		}
		return fmt.Errorf("delete objects under %q: %w", prefix, err)
	}
	if err := errors.Join(b.folders.sync(filepath.Dir(path)), os.RemoveAll(trash)); err != nil {
		return fmt.Errorf("delete objects under %q: %w", prefix, err)
	}
	return nil
}

// discard moves a folder of objects away.
func (b *Bucket) discard(path, trash string) error {
	b.linker.mu.RLock()
	defer b.linker.mu.RUnlock()
	b.linker.preserve(path)
	return os.Rename(path, trash)
}

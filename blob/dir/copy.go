package dir

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/blob"
)

// Copy gives the file of an object a second name (a hard link) if the file system
// supports that. This is safe because a committed file is never changed, only replaced.
// Otherwise Copy writes another file.
func (b *Bucket) Copy(ctx context.Context, from, to string) error {
	err := errors.Join(checkContextAndKey(ctx, from), checkContextAndKey(ctx, to))
	if err == nil {
		err = b.copy(ctx, from, to)
	}
	return blob.Wrap(err, "copy object", from)
}

func (b *Bucket) copy(ctx context.Context, from, to string) error {
	kind, err := b.readContentType(from)
	if err != nil {
		return err
	}
	path := b.path(to)
	if err := b.folders.makeFolder(filepath.Dir(path)); err != nil {
		return err
	}
	temp := b.scratch.newPath()
	switch err := os.Link(b.path(from), temp); {
	case errors.Is(err, fs.ErrNotExist):
		return rowmill.ErrNotFound
	case err != nil:
		return blob.CopyContent(ctx, b, from, b, to, kind)
	}
	// If temp and path are already names of the same file, the rename does nothing
	// and leaves temp.
	defer os.Remove(temp)
	if err := b.storeContentType(path, to, kind); err != nil {
		return err
	}
	if err := os.Rename(temp, path); err != nil {
		return err
	}
	return b.folders.makeDurable(filepath.Dir(path))
}

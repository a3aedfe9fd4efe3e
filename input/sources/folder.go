package sources

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/rowmill/rowmill/blob"
)

// Folder is a Place in the file system. A symbolic link that leads out of the folder, or out of the
// allowed prefix, is never followed.
type Folder struct {
	dir      string
	prefixes []string
}

var _ Place = (*Folder)(nil)

// NewFolder returns the place in a directory. prefixes are the folders that may be read, as
// CleanPrefix returns them; empty: the whole place.
func NewFolder(dir string, prefixes []string) *Folder {
	if len(prefixes) == 0 {
		prefixes = []string{""}
	}
	return &Folder{dir, prefixes}
}

// errOutside means that a path is outside of all allowed prefixes.
var errOutside = errors.New("the path is outside of the folders that may be read")

// openRoot opens the allowed folder in which file is, and returns the path of file in it.
func (f *Folder) openRoot(file string) (root *os.Root, prefix, rest string, err error) {
	for _, prefix = range f.prefixes {
		if rest, inside := strings.CutPrefix(file, prefix); inside {
			whole, err := os.OpenRoot(f.dir)
			if err != nil || prefix == "" {
				return whole, prefix, rest, err
			}
			defer func() { _ = whole.Close() }() // it was only read
			root, err = whole.OpenRoot(strings.TrimSuffix(prefix, "/"))
			return root, prefix, rest, err
		}
	}
	return nil, "", "", errOutside
}

// List returns the regular files with paths that begin with prefix and match. It follows no link to a
// folder, except in prefix. A matching link that leads out of the place is an error. It finds the files in
// the order of their paths.
func (f *Folder) List(ctx context.Context, prefix string, match func(path string) bool, more func(found []blob.ObjectInfo) bool) (files []blob.ObjectInfo, err error) {
	root, allowed, rest, err := f.openRoot(prefix)
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }() // it was only read
	start := path.Dir(rest)
	if strings.HasSuffix(rest, "/") {
		start = strings.TrimSuffix(rest, "/")
	}
	if info, err := fs.Stat(root.FS(), start); errors.Is(err, fs.ErrNotExist) || err == nil && !info.IsDir() {
		return nil, nil
	}
	err = walk(root.FS(), start, func(name string, entry fs.DirEntry) error {
		file := allowed + name
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case entry.IsDir() && !strings.HasPrefix(file+"/", prefix) && !strings.HasPrefix(prefix, file+"/"):
			return fs.SkipDir
		case entry.IsDir() || !strings.HasPrefix(file, prefix) || !match(file):
			return nil
		}
		info, err := root.Stat(filepath.FromSlash(name)) // follows links within the root
		switch {
		case err != nil:
			return fmt.Errorf("%s: %w", file, hidePath(err))
		case !info.Mode().IsRegular():
			return nil
		}
		if files = append(files, describe(file, info)); !more(files) {
			return fs.SkipAll
		}
		return nil
	})
	if errors.Is(err, fs.SkipAll) {
		err = nil
	}
	return files, hidePath(err)
}

// walk calls visit for everything below a folder. The order is the order of the paths, in which a folder has
// a slash at its end: a-b comes before a/c. If visit returns fs.SkipDir for a folder, walk leaves the folder
// out. Any other error ends walk.
func walk(files fs.FS, folder string, visit func(name string, entry fs.DirEntry) error) error {
	entries, err := fs.ReadDir(files, folder)
	if err != nil {
		return err
	}
	inPath := func(entry fs.DirEntry) string {
		if entry.IsDir() {
			return entry.Name() + "/"
		}
		return entry.Name()
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(inPath(a), inPath(b)) })
	for _, entry := range entries {
		name := path.Join(folder, entry.Name())
		err := visit(name, entry)
		switch {
		case errors.Is(err, fs.SkipDir):
			continue
		case err == nil && entry.IsDir():
			err = walk(files, name, visit)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// describe returns the version of a file. The time and the size tell versions apart.
func describe(file string, info fs.FileInfo) blob.ObjectInfo {
	return blob.ObjectInfo{Key: file, Size: info.Size(), ETag: fmt.Sprintf(`"%x-%x"`, info.ModTime().UnixNano(), info.Size()), Modified: info.ModTime()}
}

// hidePath removes the path from an error of the file system: clients need not know the
// directories of the server.
func hidePath(err error) error {
	var failed *fs.PathError
	if errors.As(err, &failed) {
		return failed.Err
	}
	return err
}

// Open opens one version of a file.
func (f *Folder) Open(_ context.Context, file blob.ObjectInfo) (blob.Object, error) {
	root, _, rest, err := f.openRoot(file.Key)
	if err != nil {
		return nil, hidePath(err)
	}
	defer func() { _ = root.Close() }() // the file stays open
	opened, err := root.Open(filepath.FromSlash(rest))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, blob.ErrLost
	case err != nil:
		return nil, hidePath(err)
	}
	o := &folderFile{opened, file}
	if err := o.check(); err != nil {
		return nil, errors.Join(err, o.Close())
	}
	return o, nil
}

// folderFile is an open file of a Folder.
type folderFile struct {
	*os.File
	info blob.ObjectInfo
}

// check returns blob.ErrLost if the file has changed since it was listed.
func (o *folderFile) check() error {
	now, err := o.Stat()
	if err == nil && describe(o.info.Key, now).ETag != o.info.ETag {
		err = blob.ErrLost
	}
	return hidePath(err)
}

// ReadAt reads from the version that was listed.
func (o *folderFile) ReadAt(p []byte, off int64) (int, error) {
	n, err := o.File.ReadAt(p, off)
	if err != nil && !errors.Is(err, io.EOF) {
		return n, hidePath(err)
	}
	if changed := o.check(); changed != nil { // after the read: the bytes may be new already
		return 0, changed
	}
	return n, err
}

func (o *folderFile) Size() int64 { return o.info.Size }

func (o *folderFile) Info() blob.ObjectInfo { return o.info }

// Write writes a file beside its final name, and renames it when it is on disk.
func (f *Folder) Write(ctx context.Context, file string, write func(w io.Writer) error) (err error) {
	root, _, rest, err := f.openRoot(file)
	if err != nil {
		return hidePath(err)
	}
	defer func() { _ = root.Close() }()
	name := filepath.FromSlash(rest)
	folder := filepath.Dir(name)
	if err := root.MkdirAll(folder, 0o755); err != nil {
		return hidePath(err)
	}
	temporary := filepath.Join(folder, "."+uuid.NewString()+".rowmill")
	opened, err := root.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return hidePath(err)
	}
	defer func() {
		if err != nil {
			_ = root.Remove(temporary)
		}
	}()
	if err = write(opened); err == nil {
		err = hidePath(opened.Sync())
	}
	if closeErr := opened.Close(); err == nil {
		err = hidePath(closeErr)
	}
	if err == nil {
		err = ctx.Err()
	}
	if err == nil {
		err = hidePath(root.Rename(temporary, name))
	}
	if err != nil {
		return err
	}
	return syncFolder(root, folder)
}

// syncFolder makes the names in a folder durable.
func syncFolder(root *os.Root, folder string) error {
	opened, err := root.Open(folder)
	if err != nil {
		return hidePath(err)
	}
	return hidePath(errors.Join(opened.Sync(), opened.Close()))
}

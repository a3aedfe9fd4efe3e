package dir

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/rowmill/rowmill/blob"
	"github.com/rowmill/rowmill/internal/retry"
)

// writeBuffer is the size in bytes of the buffer that collects small writes. Larger
// writes skip the buffer, because they do not become cheaper when they are collected.
const writeBuffer = 64 << 10

// file has the methods of *os.File that a writer needs. Tests replace it with
// files that fail.
type file interface {
	io.WriteCloser
	Sync() error
}

// createFile makes the file for a writer.
func createFile(path string) (file, error) {
	return os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
}

// Create opens a new object for writing.
func (b *Bucket) Create(ctx context.Context, key, contentType string) (blob.Writer, error) {
	return b.create(ctx, key, contentType, createFile)
}

func (b *Bucket) create(ctx context.Context, key, contentType string, newFile func(string) (file, error)) (_ blob.Writer, err error) {
	defer func() { err = blob.Wrap(err, "create object", key) }()
	if err := cmp.Or(checkContextAndKey(ctx, key), blob.CheckContentType(contentType)); err != nil {
		return nil, err
	}
	path := b.path(key)
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return nil, errors.New("the key is a folder of other objects")
	}
	if err := b.folders.makeFolder(filepath.Dir(path)); err != nil {
		return nil, err
	}
	temp := b.scratch.newPath()
	f, err := newFile(temp)
	if err != nil {
		return nil, err
	}
	w := &writer{bucket: b, ctx: ctx, key: key, contentType: contentType, temp: temp, file: f, newFile: newFile}
	w.buffer = bufio.NewWriterSize(writerFunc(w.append), writeBuffer)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.writers[w] = struct{}{}
	return w, nil
}

// writer writes one object to a temporary file.
type writer struct {
	bucket      *Bucket
	ctx         context.Context // the context of Create
	key         string
	contentType string
	temp        string
	file        file
	newFile     func(string) (file, error)
	buffer      *bufio.Writer // keeps the first write error, so that Commit returns it
	failed      error         // the first error of Append
	renamed     bool          // publish has renamed the temporary file
	ended       bool
}

var errEnded = errors.New("the writer was already committed or aborted")

// Write appends to the object.
func (w *writer) Write(p []byte) (int, error) {
	if w.ended {
		return 0, blob.Wrap(errEnded, "write object", w.key)
	}
	n, err := w.buffer.Write(p)
	return n, blob.Wrap(err, "write object", w.key)
}

// Commit makes the object durable, then visible.
func (w *writer) Commit() (blob.ObjectInfo, error) {
	if w.ended {
		return blob.ObjectInfo{}, blob.Wrap(errEnded, "commit object", w.key)
	}
	info, err := w.commit()
	if err != nil {
		w.Abort()
		return blob.ObjectInfo{}, blob.Wrap(err, "commit object", w.key)
	}
	w.ended = true
	w.bucket.forget(w)
	return info, nil
}

func (w *writer) commit() (blob.ObjectInfo, error) {
	b := w.bucket
	if err := cmp.Or(w.failed, w.buffer.Flush()); err != nil {
		return blob.ObjectInfo{}, err
	}
	at := b.clock.next()
	if err := w.retryDisk(func() error { return os.Chtimes(w.temp, at, at) }); err != nil {
		return blob.ObjectInfo{}, err // Chtimes also fails if DeletePrefix removed the file
	}
	if !b.config.NoSync { // without retryDisk: after a failed sync data may be lost although a second sync succeeds
		if err := w.file.Sync(); err != nil {
			return blob.ObjectInfo{}, err
		}
	}
	info, err := os.Stat(w.temp)
	if err != nil {
		return blob.ObjectInfo{}, err
	}
	if err := w.file.Close(); err != nil {
		return blob.ObjectInfo{}, err
	}
	if err := w.retryDisk(w.publish); err != nil {
		return blob.ObjectInfo{}, err
	}
	return describe(w.key, info), nil
}

// publish renames the temporary file to the object's name and makes the name
// durable. It can be repeated after an error.
func (w *writer) publish() error {
	b, path := w.bucket, w.bucket.path(w.key)
	if !w.renamed {
		// Create made the folder, but DeletePrefix may have removed it.
		if err := b.folders.makeFolder(filepath.Dir(path)); err != nil {
			return err
		}
		if err := b.storeContentType(path, w.key, w.contentType); err != nil {
			return err
		}
		if err := os.Rename(w.temp, path); err != nil {
			return err
		}
		w.renamed = true
	}
	return b.folders.makeDurable(filepath.Dir(path))
}

// append writes p to the file, with the retries of retryDisk.
func (w *writer) append(p []byte) (n int, err error) {
	err = w.retryDisk(func() error {
		more, err := w.file.Write(p[n:])
		n += more
		return err
	})
	return n, err
}

// retryDisk calls do. If the writer's context has unlimited retries, retryDisk calls do
// again while the disk is full or fails. (Sync in Commit reports data that the disk
// lost meanwhile.) retryDisk gives up if two checks in a row found that the disk
// accepts a test file but still refuses this file: then the disk works again, but
// without this file.
func (w *writer) retryDisk(do func() error) error {
	if !retry.IsUnlimited(w.ctx) {
		return do()
	}
	others := 0 // how many checks in a row found that the disk accepts a test file
	return retry.Storage.Do(w.ctx, do, func(err error) bool {
		full := errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
		if !full && blob.IsTransient(err) {
			if others++; w.probeDisk() != nil {
				others = 0
			}
		}
		return full || blob.IsTransient(err) && others < 2
	}, nil)
}

// probeDisk writes and removes a small test file, to find out whether the disk
// accepts writes.
func (w *writer) probeDisk() error {
	path := w.bucket.scratch.newPath()
	defer func() { _ = os.Remove(path) }() // after an error, the next Open removes the file
	return w.bucket.writeFile(w.newFile, path, "x")
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// Abort drops the written data.
func (w *writer) Abort() {
	if w.ended {
		return
	}
	w.ended = true
	// The file is temporary. If an error leaves it behind, the next Open
	// removes it.
	_ = w.file.Close()
	_ = os.Remove(w.temp)
	w.bucket.forget(w)
}

func (b *Bucket) forget(w *writer) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.writers, w)
}

// openWriters returns the open writers whose keys are under a prefix.
func (b *Bucket) openWriters(prefix string) []*writer {
	b.mu.Lock()
	defer b.mu.Unlock()
	var found []*writer
	for w := range b.writers {
		if strings.HasPrefix(w.key, prefix) {
			found = append(found, w)
		}
	}
	return found
}

// typeSuffix is the end of the name of the file with an object's content type. There is
// such a file only if the key's extension does not give the type.
const typeSuffix = "+type"

// IsTypeFile reports whether a file in the folder of objects holds the content
// type of the object beside it.
func IsTypeFile(name string) bool { return strings.HasSuffix(name, typeSuffix) }

// defaultType is the type of a key with an unknown extension.
const defaultType = "application/octet-stream"

// defaultContentType returns the content type for a key's extension. It does not use the
// system's table, which differs between machines.
func defaultContentType(key string) string {
	switch filepath.Ext(key) {
	case ".parquet":
		return "application/vnd.apache.parquet"
	case ".json":
		return "application/json"
	case ".jsonl", ".ndjson":
		return "application/x-ndjson"
	case ".zip":
		return "application/zip"
	case ".csv":
		return "text/csv"
	case ".txt":
		return "text/plain; charset=utf-8"
	}
	return defaultType
}

// storeContentType stores an object's content type before the object appears.
func (b *Bucket) storeContentType(path, key, contentType string) error {
	if contentType == "" || contentType == defaultContentType(key) {
		return removeIfThere(path + typeSuffix)
	}
	temp := b.scratch.newPath()
	defer func() { _ = os.Remove(temp) }() // does nothing after a successful rename
	if err := b.writeFile(createFile, temp, contentType); err != nil {
		return err
	}
	return os.Rename(temp, path+typeSuffix)
}

// writeFile writes a small file and syncs it.
func (b *Bucket) writeFile(newFile func(string) (file, error), path, content string) error {
	f, err := newFile(path)
	if err != nil {
		return err
	}
	_, err = io.WriteString(f, content)
	if err == nil && !b.config.NoSync {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// readContentType returns the type that was passed to Create, or the type for the
// key's extension.
func (b *Bucket) readContentType(key string) (string, error) {
	raw, err := os.ReadFile(b.path(key) + typeSuffix)
	switch {
	case err == nil:
		return string(raw), nil
	case errors.Is(err, fs.ErrNotExist):
		return defaultContentType(key), nil
	}
	return "", err
}

package dir

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/rowmill/rowmill/blob"
	"github.com/rowmill/rowmill/retry"
)

// writeBuffer gathers small writes. 64 KiB is where larger ones stop being
// cheaper; writes of that size pass it by.
const writeBuffer = 64 << 10

// A file is what a writer needs of an *os.File; tests make it fail.
type file interface {
	io.WriteCloser
	Sync() error
}

// createFile makes the file a writer writes to.
func createFile(path string) (file, error) {
	return os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
}

// Create opens a new object for writing.
func (b *Bucket) Create(ctx context.Context, key, contentType string) (blob.Writer, error) {
	return b.create(ctx, key, contentType, createFile)
}

func (b *Bucket) create(ctx context.Context, key, contentType string, newFile func(string) (file, error)) (blob.Writer, error) {
	if err := begin(ctx, key); err != nil {
		return nil, fmt.Errorf("create object: %w", err)
	}
	if err := blob.CheckContentType(contentType); err != nil {
		return nil, fmt.Errorf("create object %s: %w", key, err)
	}
	path := b.path(key)
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return nil, fmt.Errorf("create object %s: other objects' keys continue it", key)
	}
	if err := b.folders.make(filepath.Dir(path)); err != nil {
		return nil, fmt.Errorf("create object %s: %w", key, err)
	}
	temp := b.scratch.name()
	f, err := newFile(temp)
	if err != nil {
		return nil, fmt.Errorf("create object %s: %w", key, err)
	}
	w := &writer{bucket: b, ctx: ctx, key: key, contentType: contentType, temp: temp, file: f, newFile: newFile}
	w.buffer = bufio.NewWriterSize(writerFunc(w.append), writeBuffer)
	b.mu.Lock()
	b.writers[w] = struct{}{}
	b.mu.Unlock()
	return w, nil
}

// A writer writes one object to a temporary file.
type writer struct {
	bucket      *Bucket
	ctx         context.Context // Create's
	key         string
	contentType string
	temp        string
	file        file
	newFile     func(string) (file, error)
	buffer      *bufio.Writer // keeps the first error, so that Commit cannot miss it
	failed      error         // the first error of Append
	ended       bool
}

var errEnded = errors.New("its writer was committed or aborted")

// Write appends to the object.
func (w *writer) Write(p []byte) (int, error) {
	if w.ended {
		return 0, fmt.Errorf("write object %s: %w", w.key, errEnded)
	}
	n, err := w.buffer.Write(p)
	if err != nil {
		err = fmt.Errorf("write object %s: %w", w.key, err)
	}
	return n, err
}

// Commit makes the object durable, then visible.
func (w *writer) Commit() (blob.Info, error) {
	if w.ended {
		return blob.Info{}, fmt.Errorf("commit object %s: %w", w.key, errEnded)
	}
	info, err := w.commit()
	if err != nil {
		w.Abort()
		return blob.Info{}, fmt.Errorf("commit object %s: %w", w.key, err)
	}
	w.ended = true
	w.bucket.forget(w)
	return info, nil
}

func (w *writer) commit() (blob.Info, error) {
	b := w.bucket
	if err := cmp.Or(w.failed, w.buffer.Flush()); err != nil {
		return blob.Info{}, err
	}
	at := b.stamp.next()
	if err := w.patiently(func() error { return os.Chtimes(w.temp, at, at) }); err != nil {
		return blob.Info{}, err // also: DeletePrefix has taken the file away
	}
	if !b.config.NoSync { // not patiently: what it fails for may be gone, and a second one succeed
		if err := w.file.Sync(); err != nil {
			return blob.Info{}, err
		}
	}
	info, err := os.Stat(w.temp)
	if err != nil {
		return blob.Info{}, err
	}
	if err := w.file.Close(); err != nil {
		return blob.Info{}, err
	}
	if err := w.patiently(w.show); err != nil {
		return blob.Info{}, err
	}
	return describe(w.key, info), nil
}

// show gives the file the object's name. It may be repeated as long as it fails
// before the last step.
func (w *writer) show() error {
	b, path := w.bucket, w.bucket.path(w.key)
	// Create made the folder, but a DeletePrefix may have taken it away.
	if err := b.folders.make(filepath.Dir(path)); err != nil {
		return err
	}
	if err := b.setType(path, w.key, w.contentType); err != nil {
		return err
	}
	if err := os.Rename(w.temp, path); err != nil {
		return err
	}
	return b.folders.settle(filepath.Dir(path))
}

// append writes to the file, and waits for the disk where the writer's context
// says that it is worth it.
func (w *writer) append(p []byte) (n int, err error) {
	err = w.patiently(func() error {
		more, err := w.file.Write(p[n:])
		n += more
		return err
	})
	return n, err
}

// patiently does something, again as long as the disk has no room or refuses
// where the writer's context is patient. What the disk loses of what it had taken
// before, Sync tells. Where it takes other files and still not this one, it has
// come back without it: an open file does not outlive every failure.
func (w *writer) patiently(do func() error) error {
	if !retry.IsPatient(w.ctx) {
		return do()
	}
	others := 0 // looks that found it to take others
	return retry.Storage.Do(w.ctx, do, func(err error) bool {
		full := errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
		if !full && blob.SystemPasses(err) {
			if others++; w.tryOther() != nil {
				others = 0
			}
		}
		return full || blob.SystemPasses(err) && others < 2
	}, nil)
}

// tryOther writes another file.
func (w *writer) tryOther() error {
	path := w.bucket.scratch.name()
	f, err := w.newFile(path)
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(path) }() // else the next Open does
	_, err = f.Write([]byte{0})
	if err == nil && !w.bucket.config.NoSync {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// Abort drops what was written.
func (w *writer) Abort() {
	if w.ended {
		return
	}
	w.ended = true
	// The file is a temporary one: whatever stays behind after an error here
	// is removed by the next Open.
	_ = w.file.Close()
	_ = os.Remove(w.temp)
	w.bucket.forget(w)
}

func (b *Bucket) forget(w *writer) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.writers, w)
}

// unfinished are the open writers of keys under a prefix.
func (b *Bucket) unfinished(prefix string) []*writer {
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

// typeSuffix is the end of the file that holds an object's content type where
// its key's extension does not say it.
const typeSuffix = "+type"

// Aside reports whether a file in the folder of objects is no object, but says what
// type the one beside it has.
func Aside(name string) bool { return strings.HasSuffix(name, typeSuffix) }

// defaultType is what a key of unknown extension has.
const defaultType = "application/octet-stream"

// typeOf is the content type that a key's extension says. The table is our
// own, since the system's differs from machine to machine.
func typeOf(key string) string {
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

// setType notes an object's content type before the object appears.
func (b *Bucket) setType(path, key, contentType string) error {
	if contentType == "" || contentType == typeOf(key) {
		if err := os.Remove(path + typeSuffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	temp := b.scratch.name()
	f, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.WriteString(f, contentType)
	if err == nil && !b.config.NoSync {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(temp, path+typeSuffix)
	}
	if err != nil {
		_ = os.Remove(temp)
	}
	return err
}

// contentType is what Create was told, or what the key's extension says.
func (b *Bucket) contentType(key string) (string, error) {
	raw, err := os.ReadFile(b.path(key) + typeSuffix)
	switch {
	case err == nil:
		return string(raw), nil
	case errors.Is(err, fs.ErrNotExist):
		return typeOf(key), nil
	}
	return "", err
}

// Package dir stores objects as files in a directory and serves them under
// signed URLs. It defines the layout of the directory, durability, and the
// signature. It does not know the content of objects or who may get a signed
// URL.
//
// # Layout
//
//	objects/<key>         an object, a plain file
//	objects/<key>+type    its content type, if the key's extension does not give it
//	tmp/<process>/lock    locked by the process while it runs
//	tmp/<process>/…       files being written, folders being deleted, snapshots
//
// No key contains "+", so no other file can be mistaken for an object. Files
// become objects by a rename within one file system, after a sync. Before
// Commit returns, it syncs the object's folder and all parent folders that it
// made. The next Open removes the files of dead processes from tmp; the time
// for that does not depend on the number of objects.
package dir

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rowmill/rowmill/blob"
)

// Config says where objects are stored and how clients reach them.
type Config struct {
	// Root is the directory. It is made if it does not exist. Required.
	Root string

	// Name is the bucket's name for results-url. Default "rowmill".
	Name string

	// PublicURL is the beginning of all signed URLs, such as
	// "https://rows.example.org". Handler must be reachable under it. SetPublicURL can
	// set it later, when the port is known.
	PublicURL string

	// Keys has the secrets that sign URLs. Required for SignURL and Handler.
	Keys SigningKeys

	// NoSync turns off every sync to disk. Only for benchmarks and tests: an object may
	// be lost or empty after a power failure.
	NoSync bool

	// Clock returns the current time, to decide whether URLs have expired. Default
	// time.Now.
	Clock func() time.Time

	// Logger gets messages for the operator. Default: discarded.
	Logger *slog.Logger
}

// WithDefaults returns c with defaults for zero values.
func (c Config) WithDefaults() Config {
	c.Name = cmp.Or(c.Name, "rowmill")
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	if c.Clock == nil {
		c.Clock = time.Now
	}
	return c
}

// Validate returns an error that names the first invalid field.
func (c Config) Validate() error {
	if c.Root == "" {
		return errors.New("dir: Root is empty: name the directory of the objects")
	}
	if c.PublicURL != "" {
		return checkPublicURL(c.PublicURL)
	}
	return nil
}

var _ blob.Bucket = (*Bucket)(nil)

// Bucket is a bucket in a directory. Its methods are safe for concurrent use.
type Bucket struct {
	config  Config
	objects string // folder of the objects
	scratch *scratch
	folders *folders
	public  atomic.Pointer[string]
	clock   uniqueClock
	linker  linker

	mu      sync.Mutex
	writers map[*writer]struct{} // open writers: neither committed nor aborted
}

// Open opens a directory and removes the unfinished files of processes that have ended.
func Open(config Config) (*Bucket, error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	config = config.WithDefaults()
	b := &Bucket{
		config:  config,
		objects: filepath.Join(config.Root, "objects"),
		writers: map[*writer]struct{}{},
	}
	b.public.Store(&config.PublicURL)
	var err error
	if b.folders, err = openFolders(b.objects, config.NoSync); err == nil {
		b.scratch, err = openScratch(filepath.Join(config.Root, "tmp"), config.Logger)
	}
	if err != nil {
		return nil, blob.Wrap(err, "open object directory", config.Root)
	}
	return b, nil
}

// Close removes the process's folder in tmp, so that no writer can commit
// afterwards. Objects can still be read and served. A second call does nothing.
func (b *Bucket) Close() error {
	return blob.Wrap(b.scratch.close(), "close object directory", b.config.Root)
}

// Name returns the bucket's name.
func (b *Bucket) Name() string { return b.config.Name }

// MinStorageCopySize returns 0: the operating system copies ranges of any length.
func (b *Bucket) MinStorageCopySize() int64 { return 0 }

// path returns the file of a key. The key must be valid.
func (b *Bucket) path(key string) string { return filepath.Join(b.objects, filepath.FromSlash(key)) }

// Open opens an object for reading.
func (b *Bucket) Open(ctx context.Context, key string) (blob.Object, error) {
	err := checkContextAndKey(ctx, key)
	var file *os.File
	var info fs.FileInfo
	if err == nil {
		file, info, err = b.openFile(key)
	}
	if err != nil {
		return nil, blob.Wrap(err, "open object", key)
	}
	return &object{File: file, info: describe(key, info)}, nil
}

// object is the open file of an object. Its content stays readable after a deletion or
// replacement.
type object struct {
	*os.File
	info blob.ObjectInfo
}

func (o *object) Size() int64           { return o.info.Size }
func (o *object) Info() blob.ObjectInfo { return o.info }

// openFile opens the file of an object, or returns rowmill.ErrNotFound.
func (b *Bucket) openFile(key string) (*os.File, fs.FileInfo, error) {
	file, err := os.Open(b.path(key))
	if err != nil {
		return nil, nil, translateMissing(err)
	}
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fs.ErrNotExist // a folder, not an object
	}
	if err != nil {
		return nil, nil, errors.Join(translateMissing(err), file.Close())
	}
	return file, info, nil
}

// Stat describes an object.
func (b *Bucket) Stat(ctx context.Context, key string) (blob.ObjectInfo, error) {
	if err := checkContextAndKey(ctx, key); err != nil {
		return blob.ObjectInfo{}, blob.Wrap(err, "stat object", key)
	}
	info, err := os.Stat(b.path(key))
	if err == nil && !info.Mode().IsRegular() {
		err = fs.ErrNotExist
	}
	if err != nil {
		return blob.ObjectInfo{}, blob.Wrap(translateMissing(err), "stat object", key)
	}
	return describe(key, info), nil
}

// describe returns the ObjectInfo of an object from its file.
//
// The ETag is made of the size and the time of the last change in nanoseconds.
// The ETag is strong because uniqueClock gives every commit of a process a
// different, later time. It survives restarts and copies that keep file times,
// because the file system stores it with the file. To compute it, describe need
// not read the content.
func describe(key string, info fs.FileInfo) blob.ObjectInfo {
	return blob.ObjectInfo{
		Key:      key,
		Size:     info.Size(),
		ETag:     fmt.Sprintf(`"%x-%x"`, info.ModTime().UnixNano(), info.Size()),
		Modified: info.ModTime().UTC(),
	}
}

// uniqueClock is a clock that never returns the same time twice.
type uniqueClock struct {
	mu   sync.Mutex
	last time.Time
}

// next returns the current time. If next has returned this time or a later one
// before, it returns the last returned time plus one nanosecond. The clock of the
// file system would not do: it has steps of several milliseconds.
func (s *uniqueClock) next() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now().Round(0)
	if !now.After(s.last) {
		now = s.last.Add(1)
	}
	s.last = now
	return now
}

// Package dir keeps objects as files of a directory and serves them under
// signed URLs. It owns the layout of the directory, durability, and the
// signature; it knows nothing of what objects hold and of who may have a URL
// signed.
//
// # Layout
//
//	objects/<key>         an object, a plain file
//	objects/<key>+type    its content type, where the key's extension does not say it
//	tmp/<process>/lock    held by the process for as long as it lives
//	tmp/<process>/…       files being written, folders being deleted, snapshots
//
// "+" is in no key, so nothing in there can be mistaken for an object. Files
// become objects by rename within one file system, after they were synced;
// the folders they appear in are synced before Commit returns, parents that
// had to be made included. Whatever a dead process left in its folder of tmp
// is removed by the next Open; that costs nothing for the objects there are.
package dir

import (
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

// Config says where objects are kept and how they are reached.
type Config struct {
	// Root is the directory; it is made when missing. Required.
	Root string

	// Name is the bucket's name as results-url reports it. Default "rowmill".
	Name string

	// PublicURL is what signed URLs start with, such as
	// "https://rows.example.org"; Handler must be reachable under it.
	// SetPublicURL may set it later, when the port is known.
	PublicURL string

	// Keys sign URLs. Required for SignURL and Handler.
	Keys Keys

	// NoSync leaves out every sync. For benchmarks and tests alone: an object
	// may be lost or empty after a power failure.
	NoSync bool

	// Clock judges the expiry of URLs. Default time.Now.
	Clock func() time.Time

	// Logger gets what an operator should know once. Default: discarded.
	Logger *slog.Logger
}

// WithDefaults returns c with the defaults in place of zero values.
func (c Config) WithDefaults() Config {
	if c.Name == "" {
		c.Name = "rowmill"
	}
	if c.Clock == nil {
		c.Clock = time.Now
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

// Validate names the first field that makes no sense.
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

// Bucket is a bucket in a directory. All methods are safe for concurrent use.
type Bucket struct {
	config  Config
	objects string // folder of the objects
	scratch *scratch
	folders *folders
	public  atomic.Pointer[string]
	stamp   stamp
	keeper  keeper

	mu      sync.Mutex
	writers map[*writer]struct{} // neither committed nor aborted
}

// Open opens a directory and removes what dead processes left unfinished.
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
	if b.folders, err = openFolders(b.objects, config.NoSync); err != nil {
		return nil, fmt.Errorf("open object directory %s: %w", config.Root, err)
	}
	if b.scratch, err = openScratch(filepath.Join(config.Root, "tmp"), config.Logger); err != nil {
		return nil, fmt.Errorf("open object directory %s: %w", config.Root, err)
	}
	return b, nil
}

// Close gives up the process's place in the directory: no writer can commit
// any more. Objects are still read and served. Calling it twice is harmless.
func (b *Bucket) Close() error {
	if err := b.scratch.close(); err != nil {
		return fmt.Errorf("close object directory %s: %w", b.config.Root, err)
	}
	return nil
}

// Name is the bucket's name.
func (b *Bucket) Name() string { return b.config.Name }

// AppendsFrom is 0: files are copied whatever their length.
func (b *Bucket) AppendsFrom() int64 { return 0 }

// path is the file of a key, which must be valid.
func (b *Bucket) path(key string) string { return filepath.Join(b.objects, filepath.FromSlash(key)) }

// Open opens an object for reading.
func (b *Bucket) Open(ctx context.Context, key string) (blob.Object, error) {
	if err := begin(ctx, key); err != nil {
		return nil, fmt.Errorf("open object: %w", err)
	}
	file, info, err := b.openFile(key)
	if err != nil {
		return nil, fmt.Errorf("open object %s: %w", key, err)
	}
	return &object{File: file, info: describe(key, info)}, nil
}

// An object is an open file: its content stays after a delete or a replace.
type object struct {
	*os.File
	info blob.Info
}

func (o *object) Size() int64     { return o.info.Size }
func (o *object) Info() blob.Info { return o.info }

// openFile opens the file of an object, or returns rowmill.ErrNotFound.
func (b *Bucket) openFile(key string) (*os.File, fs.FileInfo, error) {
	file, err := os.Open(b.path(key))
	if err != nil {
		return nil, nil, notFound(err)
	}
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fs.ErrNotExist // a folder: keys start with it, but it is none
	}
	if err != nil {
		return nil, nil, errors.Join(notFound(err), file.Close())
	}
	return file, info, nil
}

// Stat describes an object.
func (b *Bucket) Stat(ctx context.Context, key string) (blob.Info, error) {
	if err := begin(ctx, key); err != nil {
		return blob.Info{}, fmt.Errorf("stat object: %w", err)
	}
	info, err := os.Stat(b.path(key))
	if err == nil && !info.Mode().IsRegular() {
		err = fs.ErrNotExist
	}
	if err != nil {
		return blob.Info{}, fmt.Errorf("stat object %s: %w", key, notFound(err))
	}
	return describe(key, info), nil
}

// describe is what a file says of its object.
//
// The ETag is the size and the time of the last change in nanoseconds. It is
// strong because stamp gives every commit of a process a time of its own,
// later than all before; it is as old as the file, so it survives restarts and
// copies that keep times; and it costs no read of the content.
func describe(key string, info fs.FileInfo) blob.Info {
	return blob.Info{
		Key:      key,
		Size:     info.Size(),
		ETag:     fmt.Sprintf(`"%x-%x"`, info.ModTime().UnixNano(), info.Size()),
		Modified: info.ModTime().UTC(),
	}
}

// begin checks what every call on a key starts with.
func begin(ctx context.Context, key string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return checkKey(key)
}

// A stamp hands out times that are never the same twice.
type stamp struct {
	mu   sync.Mutex
	last time.Time
}

// next returns now, or a nanosecond after the last time where that is later.
// The files' own clock ticks only every few milliseconds.
func (s *stamp) next() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now().Round(0)
	if !now.After(s.last) {
		now = s.last.Add(1)
	}
	s.last = now
	return now
}

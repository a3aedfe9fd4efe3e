// Package blob keeps objects: inputs, shards, parts and results. It owns the
// contract (Bucket) and its conformance suite (blobtest); blob/dir keeps
// objects in a directory, blob/s3 on an S3 server. It knows nothing of what the
// objects hold.
//
// Keys are slash-separated paths of the characters A-Z a-z 0-9 . _ ~ = and -,
// without empty, "." or ".." elements, at most 512 bytes long.
package blob

import (
	"context"
	"errors"
	"io"
	"time"
)

// ErrLost is what a reader ends with whose object was replaced or deleted, on
// a bucket that cannot keep what is being read.
var ErrLost = errors.New("the object was replaced or deleted while it was read")

// Bucket holds objects by key.
type Bucket interface {
	// Create opens a new object for writing. Nothing is visible under key
	// before Commit, which replaces an object of that key at once and as a
	// whole. contentType is what GET answers. The writer may end with ctx.
	Create(ctx context.Context, key, contentType string) (Writer, error)

	// Open opens an object for reading, or returns rowmill.ErrNotFound. The
	// object may be replaced or deleted meanwhile; the reader goes on with
	// what it opened or, where the bucket cannot keep that, ends with ErrLost.
	// It never mixes two versions. The object may end with ctx.
	Open(ctx context.Context, key string) (Object, error)

	// Stat describes an object, or returns rowmill.ErrNotFound.
	Stat(ctx context.Context, key string) (Info, error)

	// List returns the objects whose keys start with prefix, in key order.
	// prefix must end in a slash or be empty.
	List(ctx context.Context, prefix string) ([]Info, error)

	// Folders returns up to limit (> 0) names in the folder prefix, which must
	// end in a slash or be empty, that keys continue with a slash: "b" for the prefix "a/"
	// and the key "a/b/c". They come in the order of their keys and behind
	// after, a name. A folder may be empty.
	Folders(ctx context.Context, prefix, after string, limit int) ([]string, error)

	// Copy makes an object at the key to that holds what the one at from does,
	// at once and as a whole; the copy is independent of its source, and replaces
	// what was there. rowmill.ErrNotFound where there is no source. No byte passes
	// through this process where that can be avoided.
	Copy(ctx context.Context, from, to string) error

	// Delete removes an object; a missing one is no error.
	Delete(ctx context.Context, key string) error

	// DeletePrefix removes every object whose key starts with prefix, which
	// must end in a slash, and what unfinished writers under it left behind.
	// Writers of this process cannot commit there any more.
	DeletePrefix(ctx context.Context, prefix string) error

	// SignURL returns a URL that lets whoever holds it GET or HEAD the object
	// (not both) until expires has passed, 1 s to 7 days. filename becomes
	// the download's Content-Disposition.
	SignURL(ctx context.Context, method, key, filename string, expires time.Duration) (string, error)

	// AppendsFrom is how long a range must be, in bytes, for an Appender of this
	// bucket to copy bytes of the range at the store, past this process; 0 if any
	// length will do.
	AppendsFrom() int64

	// Name is the bucket's name, as results-url reports it.
	Name() string
}

// Writer writes one object. Exactly one of Commit and Abort must be called;
// calling Abort after Commit is harmless, so that it can be deferred.
type Writer interface {
	io.Writer
	// Commit makes the object durable and visible.
	Commit() (Info, error)
	// Abort drops what was written.
	Abort()
}

// Object is an open object. ReadAt is safe for concurrent use.
type Object interface {
	io.ReaderAt
	io.Closer
	Size() int64
	// Info describes what was opened, as Stat did at that time.
	Info() Info
}

// Info describes an object.
type Info struct {
	Key      string
	Size     int64     // bytes
	ETag     string    // strong, with its quotes; equal contents may have equal ones
	Modified time.Time // to the second at least; from Commit, about when it returned
}

// NewReader returns a sequential reader over a whole object.
func NewReader(o Object) *io.SectionReader { return io.NewSectionReader(o, 0, o.Size()) }
